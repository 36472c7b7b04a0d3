//! A real daemon configured by a document, and restored to its earlier configuration.

use crate::serve::{ask, end, start, start_with, wait_until_served};
use rustix::process::Signal;
use std::fs;
use std::io::Read;
use std::path::Path;

const DOCUMENT: &str = r#"schema = 1
[volume.v]
size = "8MiB"
backend = { kind = "ram" }
[host.web]
initiators = ["iqn.2001-04.com.example:web"]
chap = { secret_file = "web.secret" }
[[present]]
volume = "v"
host = "web"
"#;

fn say(dir: &Path, line: &str) -> (i32, String, String) {
    let outcome = ask(dir, &line.split(' ').collect::<Vec<_>>());
    (outcome.code, outcome.stdout, outcome.stderr)
}

#[test]
fn document_makes_the_array_twice_changes_nothing_and_earlier_ones_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    fs::write(dir.join("web.secret"), "twelve bytes and more\n").expect("a file");
    let path = dir.join("array.toml");
    fs::write(&path, DOCUMENT).expect("a file");
    let file = path.display();

    let steps = "+ volume v: 8 MiB (8.4 MB)\n+ host web: iqn.2001-04.com.example:web\n\
                 + presentation of volume v to web: LUN 0 of target default\n";
    assert_eq!(say(dir, &format!("diff -f {file} --exit-code")), (10, steps.to_owned(), String::new()));
    assert_eq!(say(dir, &format!("apply -f {file} --dry-run")).1, steps);
    assert_eq!(say(dir, "volume list --no-headers").1, "", "nothing was done yet");
    let (code, said, _) = say(dir, &format!("apply -f {file}"));
    assert_eq!((code, said), (0, format!("{steps}3 steps applied\n")));
    assert_eq!(say(dir, &format!("apply -f {file} --prune")).1, "no changes\n");
    let (_, exported, _) = say(dir, "export");
    assert!(exported.contains("[host.web.chap]\nuser = \"web\"\n") && !exported.contains("twelve"), "{exported}");
    let copy = dir.join("copy.toml");
    fs::write(&copy, exported).expect("a file");
    assert_eq!(say(dir, &format!("diff -f {} --prune --exit-code", copy.display())).0, 0, "it is what there is");

    fs::write(&path, DOCUMENT.replace("[host.web]", "[host.db]").replace("\"web\"", "\"db\"")).expect("a file");
    let (code, _, why) = say(dir, &format!("apply -f {file} --prune"));
    assert_eq!(code, 4);
    assert!(why.contains("2 objects would be deleted, and 0 sessions notice; repeat with --yes"), "{why}");
    let (code, said, why) = say(dir, &format!("apply -f {file} --prune --yes"));
    assert_eq!(code, 0, "{said}{why}");
    assert!(said.contains("+ host db") && said.contains("- host web"), "{said}");

    let (_, configs, _) = say(dir, "config list --no-headers");
    let before =
        configs.lines().find(|line| line.contains("host db") && line.contains("more")).expect("the one before");
    let version = before.split('\t').next().expect("a number");
    assert_eq!(say(dir, &format!("config restore {version}")).0, 4, "somebody loses something");
    assert_eq!(say(dir, &format!("config restore {version} --yes")).0, 0);
    assert!(say(dir, "host list --no-headers").1.starts_with("web\t"));
    assert_eq!(say(dir, "config restore 99999").0, 3);

    for (text, exit, wanted) in [
        ("schema = 1\n[host.x]\nwrong = 1\n", 2, "unknown field `wrong`"),
        ("schema = 2\n", 2, "start it with schema = 1"),
        ("schema = 1\n[[present]]\nvolume = \"nothing\"\nhost = \"web\"\n", 3, "BY-1103"),
    ] {
        fs::write(&path, text).expect("a file");
        let (code, _, why) = say(dir, &format!("diff -f {file}"));
        assert_eq!(code, exit, "{text}");
        assert!(why.contains(wanted), "{why}");
    }

    fs::write(&path, DOCUMENT).expect("a file");
    assert_eq!(say(dir, &format!("apply -f {file} --yes")).0, 0);
    let (code, _, why) = say(dir, "support bundle --to bundle.tar");
    assert_eq!(code, 0, "{why}");
    let bytes = fs::read(dir.join("bundle.tar")).expect("the bundle");
    assert!(!bytes.windows(6).any(|window| window == b"twelve"), "no secret is in it");
    let mut bundle = tar::Archive::new(bytes.as_slice());
    let names: Vec<String> = bundle
        .entries()
        .expect("an archive")
        .map(|entry| entry.expect("a file").path().expect("a name").display().to_string())
        .collect();
    for wanted in [
        "status.json",
        "config.json",
        "events.json",
        "metrics.txt",
        "doctor.json",
        "machine/proc/version",
        "daemon/limits",
    ] {
        assert!(names.iter().any(|name| name.ends_with(&format!("/{wanted}"))), "{wanted} is not among {names:?}");
    }
    assert_eq!(say(dir, "support bundle --to bundle.tar").0, 1, "nothing is written over");
    end(&mut daemon, Signal::TERM);
}

#[test]
fn one_command_goes_from_bare_disks_to_a_volume_that_a_host_uses() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    for n in 0..4 {
        fs::File::create(dir.join(format!("d{n}.img"))).expect("a file").set_len(64 << 20).expect("a sparse file");
    }
    let iqn = "iqn.1993-08.org.debian:01:abc123";
    let disks = "d0.img d1.img d2.img d3.img";
    let (code, _, why) = say(dir, &format!("up tank/vm1 9GiB {disks} --initiator {iqn}"));
    assert_eq!(code, 4, "there is no such room: {why}");
    assert_eq!(say(dir, "disk list --no-headers").1, "", "and nothing is left of it");
    let (code, said, why) = say(dir, &format!("up tank/vm1 32MiB {disks} --initiator {iqn}"));
    assert_eq!(code, 0, "{why}");
    for wanted in ["+ pool tank: raid6 of 4 disks\n", "+ host abc123: ", "iscsiadm -m discovery"] {
        assert!(said.contains(wanted), "{said}");
    }
    let (code, said, _) = say(dir, "up tank/vm2 16MiB --host abc123 --thin");
    assert_eq!(code, 0);
    assert!(
        said.starts_with("+ volume tank/vm2: 16 MiB (16.8 MB)\n+ presentation of volume tank/vm2 to abc123: LUN 1"),
        "{said}"
    );
    for (line, wanted) in [
        (format!("up tank/vm3 16MiB d9.img --initiator {iqn}"), "pool tank already exists"),
        ("up tank/vm3 16MiB --host abc123 --initiator iqn.1993-08.org.debian:01:other".to_owned(), "without initiator"),
    ] {
        let (code, _, why) = say(dir, &line);
        assert_eq!(code, 4, "{line}");
        assert!(why.contains(wanted), "{why}");
    }
    assert_eq!(say(dir, "up vm3 16MiB d0.img --host abc123").0, 2, "a volume without a pool has no disks");
    end(&mut daemon, Signal::TERM);
}

#[test]
fn document_brings_secrets_of_receivers_from_files_beside_it_and_no_user_without_a_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    let sections = "schema = 1\n[user.alice]\nrole = \"admin\"\n[receiver.desk]\nurl = \"http://127.0.0.1:9/hook\"\nsigned = true\n";
    let path = dir.join("array.toml");
    let file = path.display();
    fs::write(&path, sections).expect("a file");
    let (code, _, why) = say(dir, &format!("apply -f {file}"));
    assert_eq!(code, 2, "{why}");
    assert!(why.contains("receiver desk: its messages are signed, but no signing secret is stored here"), "{why}");
    fs::write(&path, format!("{sections}secret_file = \"desk.secret\"\n")).expect("a file");
    assert!(say(dir, &format!("apply -f {file}")).2.contains("desk.secret cannot be read"));
    fs::write(dir.join("desk.secret"), "twelve bytes and more\n").expect("a file");
    let steps = "+ user alice: admin, who can log in with what blockyard web link --user alice prints\n\
                 + receiver desk: generic webhook http://127.0.0.1:9/hook\n";
    assert_eq!(say(dir, &format!("apply -f {file}")), (0, format!("{steps}2 steps applied\n"), String::new()));
    assert_eq!(say(dir, &format!("apply -f {file} --prune")).1, "no changes\n");
    let (_, exported, _) = say(dir, "export");
    let told = "[user.alice]\nrole = \"admin\"\n\n[receiver.desk]\nurl = \"http://127.0.0.1:9/hook\"\nsigned = true\n";
    assert!(exported.ends_with(told) && !exported.contains("twelve"), "{exported}");
    end(&mut daemon, Signal::TERM);
}

#[test]
fn log_is_told_to_admins_goes_into_the_bundle_and_holds_no_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut daemon = start_with(dir, "test", &["--no-web", "--log", "trace"]);
    wait_until_served(dir);
    fs::write(dir.join("web.secret"), "twelve bytes and more\n").expect("a file");
    let add = "host add web --initiator iqn.2001-04.com.example:web --chap-secret-file web.secret";
    assert_eq!(say(dir, add).0, 0);
    let token = say(dir, "token create backup --role operator").1;
    let token = token.trim();
    assert!(token.len() > 20, "a token: {token:?}");

    let (code, log, why) = say(dir, "log");
    assert_eq!((code, why.as_str()), (0, ""));
    assert!(log.lines().any(|line| line.contains("serving")), "{log}");
    assert_eq!(say(dir, "log --limit 1").1.lines().count(), 1);
    assert!(say(dir, "log -o json").1.contains("\"lines\": ["));
    let (code, _, why) = say(dir, "log --limit 0");
    assert!(code == 2 && why.contains("1..=2000"), "{why}");
    let (code, _, why) = say(dir, "support bundle --to bundle.tar");
    assert_eq!(code, 0, "{why}");

    let bytes = fs::read(dir.join("bundle.tar")).expect("the bundle");
    let mut bundle = tar::Archive::new(bytes.as_slice());
    let mut kept = bundle.entries().expect("an archive").map(|entry| entry.expect("a file"));
    let mut file = kept.find(|entry| entry.path().expect("a name").ends_with("daemon.log")).expect("the log");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("text");
    assert!(text.contains("serving"), "{text}");
    let everything = String::from_utf8_lossy(&bytes);
    for (secret, what) in [("twelve", "a CHAP secret"), (token, "a token")] {
        assert!(![&log, &text, &*everything].iter().any(|all| all.contains(secret)), "{what} is in it");
    }
    end(&mut daemon, Signal::TERM);
}

#[test]
fn odd_sizes_that_the_array_exports_are_taken_back_and_sizes_without_a_unit_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    let good = |line: &str| {
        let (code, out, why) = say(dir, line);
        assert_eq!(code, 0, "{line}: {why}");
        out
    };
    for disk in ["d0", "d1", "d2", "d3"] {
        good(&format!("disk add --name {disk} --create 134300001B {disk}.img"));
    }
    good("pool create tank --level raid6 d0 d1 d2 d3 --member-size exact");
    good("pool set tank rebuild.max=559513B/s");
    good("pool set tank disk.deadline=12s disk.wait=95s disk.errors=17 disk.error-rate=45% disk.slow=off");
    good("volume create tank/odd 12345678B");
    good("volume create tank/thin 1.5MB --thin --granule 64KiB");
    good("volume set tank/odd --bandwidth 1000001B/s --read-ahead 5000B");
    for form in ["table", "json"] {
        let exported = good(&format!("export -o {form}"));
        for text in ["559513B/s", "1000001B/s", "5000B", "12s", "95s", "17", "45%", "off"] {
            assert!(exported.contains(text), "{text} is not in {exported}");
        }
        let file = dir.join(format!("copy.{form}"));
        fs::write(&file, exported).expect("a file");
        let so = "no changes\n";
        assert_eq!(good(&format!("diff -f {} --prune --exit-code", file.display())), so);
        assert_eq!(good(&format!("apply -f {} --prune", file.display())), so);
    }
    let file = dir.join("bare.toml");
    for (entry, why) in [
        ("[volume.\"tank/new\"]\nsize = \"8\"\n", "size \"8\" has no unit; write a number with a unit, such as 1GiB"),
        ("[volume.\"tank/new\"]\nsize = 4096\n", "volume tank/new of 4 KiB is too small; give at least 1MiB"),
        (
            "[volume.\"tank/odd\"]\n[volume.\"tank/odd\".settings]\nbandwidth = \"1000001/s\"\n",
            "bandwidth cannot be \"1000001/s\"; write a rate such as",
        ),
    ] {
        fs::write(&file, format!("schema = 1\n{entry}")).expect("a file");
        let (code, _, said) = say(dir, &format!("diff -f {}", file.display()));
        assert!(code == 2 && said.contains(why), "{code}: {said}");
    }
    end(&mut daemon, Signal::TERM);
}

#[test]
fn document_with_chap_and_no_secret_is_told_what_documents_have() {
    let lab = crate::lab::Lab::new();
    let path = lab.dir.path().join("array.toml");
    let document =
        "schema = 1\n[host.web]\ninitiators = [\"iqn.2001-04.com.example:web\"]\n[host.web.chap]\nuser = \"web\"\n";
    fs::write(&path, document).expect("a file");
    let sentence = lab.bad(&["apply", "-f", "array.toml"], 2);
    assert_eq!(
        sentence,
        "[host.web.chap] has no secret, and the array has none; write secret_file = \"FILE\" there; the file lies \
         beside the document and contains only the secret (BY-1605)"
    );
    fs::write(lab.dir.path().join("web.secret"), "twelve bytes and more\n").expect("a file");
    fs::write(&path, format!("{document}secret_file = \"web.secret\"\n")).expect("a file");
    lab.good(&["apply", "-f", "array.toml", "--yes"]);
    // An export has no secrets, and applying it keeps the known ones.
    fs::write(&path, lab.good(&["export"])).expect("a file");
    assert_eq!(lab.good(&["apply", "-f", "array.toml"]), "no changes\n");
}
