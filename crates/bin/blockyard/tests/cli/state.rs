//! Damaged state files of a real array: the state in use is the one that was written, or an older one with changes
//! refused.

use crate::serve::{Daemon, PATIENCE, ask, ask_line, end, good, start, start_with, wait_until_served};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn serve(dir: &Path) -> Daemon {
    let daemon = start(dir);
    wait_until_served(dir);
    daemon
}

/// Returns the daemon's message in place of serving.
fn refused(dir: &Path) -> String {
    let serve = ["serve", "--state-dir", "state", "--socket", "socket", "--portal", "127.0.0.1:0", "--no-web"];
    let outcome = ask(dir, &serve);
    assert_ne!(outcome.code, 0, "it serves");
    outcome.stderr
}

/// Returns the files of the versions of the state, latest last.
fn versions(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.join("state/state")).expect("a folder").map(|file| file.expect("an entry").path());
    let is_version = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "state");
    let mut versions: Vec<PathBuf> = files.filter(is_version).collect();
    versions.sort();
    versions
}

/// Changes the name of an initiator in the latest version.
fn change_initiator(dir: &Path, from: &str, to: &str) {
    let path = versions(dir).pop().expect("a version");
    let text = fs::read_to_string(&path).expect("text");
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replace(from, to)).expect("writes");
}

/// Regression: one flipped bit of a name gave another host access.
#[test]
fn name_that_a_disk_has_changed_is_not_believed_and_changes_wait_until_an_older_version_is_accepted() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = serve(dir);
    good(dir, "host add alpha --initiator iqn.2001-01.org.example:alpha");
    good(dir, "host add beta --initiator iqn.2001-01.org.example:beta");
    assert!(end(&mut daemon, Signal::KILL).code().is_none());
    change_initiator(dir, ":beta", ":betc");
    let mut daemon = serve(dir);
    let hosts = good(dir, "host list");
    assert!(hosts.contains(":alpha") && !hosts.contains(":bet"), "{hosts}");
    assert!(good(dir, "state show").contains("is damaged: its checksum does not match"));
    assert_eq!(ask_line(dir, "status --check").code, 7);
    assert!(good(dir, "event list").contains("BY-E921"));
    let refused = ask_line(dir, "host add gamma --initiator iqn.2001-01.org.example:gamma");
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("BY-1821") && refused.stderr.contains("blockyard state accept"),
        "{}",
        refused.stderr
    );
    assert!(end(&mut daemon, Signal::TERM).success());

    let mut daemon = serve(dir);
    assert_eq!(
        ask_line(dir, "host add gamma --initiator iqn.2001-01.org.example:gamma").code,
        4,
        "a restart accepts nothing"
    );
    good(dir, "state accept");
    good(dir, "host add gamma --initiator iqn.2001-01.org.example:gamma");
    assert_eq!(ask_line(dir, "status --check").code, 0);
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut daemon = serve(dir);
    let hosts = good(dir, "host list");
    assert!(hosts.contains(":alpha") && hosts.contains(":gamma"), "{hosts}");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn array_does_not_begin_anew_beside_what_shows_that_there_was_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = serve(dir);
    good(dir, "host add alpha --initiator iqn.2001-01.org.example:alpha");
    assert!(end(&mut daemon, Signal::TERM).success());
    fs::rename(dir.join("state/node.key"), dir.join("node.key")).expect("moves");
    let said = refused(dir);
    let key = fs::read_to_string(dir.join("node.key")).expect("reads");
    let id = key.split(' ').nth(1).expect("an ID");
    assert!(said.contains("BY-1811") && said.contains(id) && said.contains("state/node.key"), "{said}");
    assert!(!dir.join("state/node.key").exists(), "no second key is made");
    fs::rename(dir.join("node.key"), dir.join("state/node.key")).expect("moves back");

    fs::rename(dir.join("state/state"), dir.join("versions")).expect("moves");
    let said = refused(dir);
    assert!(said.contains("BY-1823") && said.contains("--new"), "{said}");
    fs::remove_dir_all(dir.join("state/state")).expect("removes");
    fs::rename(dir.join("versions"), dir.join("state/state")).expect("moves back");
    let mut daemon = serve(dir);
    assert!(good(dir, "host list").contains(":alpha"));

    fs::rename(dir.join("state"), dir.join("away")).expect("moves");
    let refused = ask_line(dir, "host add beta --initiator iqn.2001-01.org.example:beta");
    assert!(refused.code != 0 && refused.stderr.contains("BY-1822"), "{}", refused.stderr);
    assert_eq!(ask_line(dir, "status --check").code, 7);
    fs::rename(dir.join("away"), dir.join("state")).expect("moves back");
    good(dir, "host add beta --initiator iqn.2001-01.org.example:beta");
    assert!(end(&mut daemon, Signal::TERM).success());
}

/// Disks record the machine that owned their pool, independent of its state.
#[test]
fn array_does_not_begin_anew_beside_a_pool_of_its_machine() {
    if fs::read_to_string("/etc/machine-id").map_or(true, |id| id.trim().len() != 32) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::create_dir(dir.join("disks")).expect("a folder");
    let config = format!("disk_search = [\"{}\"]\n", dir.join("disks").display());
    fs::write(dir.join("config.toml"), config).expect("writes");
    let configured = |more: &[&str]| {
        let daemon = start_with(dir, "test", &[&["--no-web", "--config", "config.toml"], more].concat());
        wait_until_served(dir);
        daemon
    };
    let mut daemon = configured(&[]);
    for disk in ["d0", "d1"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB disks/{disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    assert!(end(&mut daemon, Signal::TERM).success());
    fs::rename(dir.join("state"), dir.join("away")).expect("moves");
    for _ in 0..2 {
        let daemon = ["serve", "--state-dir", "state", "--socket", "socket", "--portal", "127.0.0.1:0", "--no-web"];
        let outcome = ask(dir, &[&daemon[..], &["--config", "config.toml"]].concat());
        assert!(outcome.code != 0 && outcome.stderr.contains("BY-1823"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("pool tank, last used by node test of this machine"), "{}", outcome.stderr);
    }
    let mut daemon = configured(&["--new"]);
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn lost_state_is_taken_from_a_copy_that_an_operator_chooses() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = serve(dir);
    for disk in ["d0", "d1"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    good(dir, "host add alpha --initiator iqn.2001-01.org.example:alpha");
    let begun = Instant::now();
    let copies = || good(dir, "state recover d0.img d1.img --state-dir elsewhere");
    while !copies().contains("version") {
        assert!(begun.elapsed() < PATIENCE, "the disks get a copy");
        std::thread::sleep(Duration::from_millis(200));
    }
    // Two changes between two copies: the next copy has a version of the same parity.
    good(dir, "host add gamma --initiator iqn.2001-01.org.example:gamma");
    good(dir, "host add delta --initiator iqn.2001-01.org.example:delta");
    while copies().lines().count() < 2 || !copies().contains("hosts: -delta -gamma") {
        assert!(begun.elapsed() < 2 * PATIENCE, "the disks have two versions: {}", copies());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(end(&mut daemon, Signal::TERM).success());
    fs::remove_dir_all(dir.join("state/state")).expect("removes");
    assert!(refused(dir).contains("blockyard state recover"));
    let listed = good(dir, "state recover d0.img d1.img --state-dir state");
    let version = listed.split(' ').nth(1).expect("a version");
    assert!(listed.contains("on d0.img, d1.img: no difference"), "{listed}");
    assert_eq!(ask_line(dir, "state recover d0.img --state-dir state --take 999999").code, 3);
    good(dir, &format!("state recover d0.img d1.img --state-dir state --take {version}"));
    let mut daemon = serve(dir);
    assert!(good(dir, "host list").contains(":alpha"));
    assert!(good(dir, "pool list").contains("tank"));
    good(dir, "host add beta --initiator iqn.2001-01.org.example:beta");
    assert!(end(&mut daemon, Signal::TERM).success());
}

/// Regression: one flipped bit of the last record kept the daemon from starting.
#[test]
fn audit_that_is_damaged_or_cannot_be_read_stops_no_volume() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = serve(dir);
    good(dir, "host add alpha --initiator iqn.2001-01.org.example:alpha");
    assert!(end(&mut daemon, Signal::KILL).code().is_none());
    let file = dir.join("state/audit/000000000001.jsonl");
    let mut bytes = fs::read(&file).expect("reads");
    let at = bytes.len() - 100;
    bytes[at] ^= 0x80;
    fs::write(&file, &bytes).expect("writes");
    let mut daemon = serve(dir);
    let verified = ask_line(dir, "audit verify");
    assert!(verified.code == 1 && verified.stdout.contains("record 2 failed verification"), "{}", verified.stdout);
    assert!(good(dir, "event list").contains("BY-E511"));
    good(dir, "host add beta --initiator iqn.2001-01.org.example:beta");
    assert!(end(&mut daemon, Signal::TERM).success());

    fs::rename(dir.join("state/audit"), dir.join("audit")).expect("moves");
    fs::write(dir.join("state/audit"), "no folder").expect("writes");
    let mut daemon = serve(dir);
    let refused = ask_line(dir, "host add gamma --initiator iqn.2001-01.org.example:gamma");
    assert!(refused.code != 0 && refused.stderr.contains("BY-1824"), "{}", refused.stderr);
    assert!(!good(dir, "host list").contains(":gamma"));
    assert_eq!(ask_line(dir, "status --check").code, 7);
    fs::remove_file(dir.join("state/audit")).expect("removes");
    fs::rename(dir.join("audit"), dir.join("state/audit")).expect("moves back");
    good(dir, "host add gamma --initiator iqn.2001-01.org.example:gamma");
    assert!(end(&mut daemon, Signal::TERM).success());
}
