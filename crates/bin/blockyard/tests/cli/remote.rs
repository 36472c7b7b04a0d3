//! Pools on disks of other arrays: lost paths, lost arrays, and their return.

use crate::initiator::{Initiator, present};
use crate::serve::{Daemon, ask_line, cell, end, good, start_with, wait_for, wait_until_served};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Array with two portals that exports volumes.
struct Target {
    dir: tempfile::TempDir,
    daemon: Daemon,
    portals: [String; 2],
}

impl Target {
    /// Starts a node `node` with portals on these two addresses.
    fn start(node: &str, addresses: [&str; 2]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = start_with(dir.path(), node, &["--no-web"]);
        wait_until_served(dir.path());
        let portals = addresses.map(|address| {
            let free = TcpListener::bind((address, 0)).expect("an address of this machine");
            free.local_addr().expect("it listens").to_string()
        });
        for portal in &portals {
            good(dir.path(), &format!("portal add {portal}"));
        }
        good(dir.path(), "disk add --name d0 --create 2GiB d0.img");
        good(dir.path(), "pool create tank --level raid0 d0");
        Self { dir, daemon, portals }
    }

    /// Presents a volume to every initiator, and returns its address over both portals.
    fn export(&self, volume: &str) -> String {
        let dir = self.dir.path();
        good(dir, &format!("volume create tank/{volume} 128MiB"));
        if good(dir, "host list --no-headers").is_empty() {
            good(dir, "host add others --any");
        }
        let said = good(dir, &format!("present tank/{volume} others -o json"));
        let lun: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let lun = lun.pointer("/presentation/lun").or(lun.pointer("/presentations/0/lun")).and_then(|lun| lun.as_u64());
        let [one, other] = &self.portals;
        format!("iscsi://{one},{other}/{}/{}", cell(dir, "target", 1), lun.expect("a LUN"))
    }
}

/// Waits until `is_so` holds for the disk.
#[track_caller]
fn wait_for_disk(dir: &Path, name: &str, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
    wait_for(dir, &format!("disk show {name} -o json"), |said| {
        serde_json::from_str(said).is_ok_and(|disk: serde_json::Value| is_so(disk.get("disk").unwrap_or(&disk)))
    });
    assert!(!what.is_empty());
}

fn paths_up(disk: &serde_json::Value) -> usize {
    let paths = disk.pointer("/remote/paths").and_then(|paths| paths.as_array());
    paths.map_or(0, |paths| paths.iter().filter(|path| path["state"] == "up").count())
}

#[test]
fn raid6_on_disks_of_two_arrays_survives_a_path_and_an_array() {
    let (one, mut two) =
        (Target::start("one", ["127.0.0.2", "127.0.0.3"]), Target::start("two", ["127.0.0.4", "127.0.0.5"]));
    // RAID-6 survives the loss of two disks, which is all that the second array has.
    let mut disks: Vec<String> = ["a", "b", "c", "d"].iter().map(|volume| one.export(volume)).collect();
    disks.extend(["a", "b"].iter().map(|volume| two.export(volume)));
    let names = ["r0", "r1", "r2", "r3", "r4", "r5"];
    let ours = tempfile::tempdir().expect("a folder");
    let dir = ours.path();
    let mut daemon = start_with(dir, "front", &["--no-web"]);
    wait_until_served(dir);
    for (name, address) in names.iter().zip(&disks) {
        good(dir, &format!("disk add --name {name} {address}"));
    }
    let twice = ask_line(dir, &format!("disk add --name r6 {}", disks[5]));
    assert!(twice.code != 0 && twice.stderr.contains("is already disk r5"), "{}", twice.stderr);
    good(dir, &format!("pool create tank --level raid6 {}", names.join(" ")));
    good(dir, "volume create tank/v 32MiB");
    present(dir);
    let mut host = Initiator::login(dir);
    host.write(0, 64, 1).expect("it is written");
    for name in names {
        wait_for_disk(dir, name, "both paths up", |disk| paths_up(disk) == 2);
    }
    let reserved = ask_line(one.dir.path(), "volume show tank/a -o json").stdout;
    assert!(reserved.contains("write_exclusive"), "the volume is reserved: {reserved}");

    // One path is lost: only the operator notices.
    good(one.dir.path(), &format!("portal remove {} --force", one.portals[0]));
    host.write(64, 64, 2).expect("it is written");
    for name in &names[..4] {
        wait_for_disk(dir, name, "one path up", |disk| paths_up(disk) == 1);
    }
    let events = wait_for(dir, "event list", |said| said.contains("BY-E115"));
    assert!(events.contains("r0"), "{events}");
    let status = good(dir, "disk list --no-headers");
    assert!(status.contains("(1 of 2 paths up)") && status.contains("(2 of 2 paths up)"), "{status}");

    // One array is lost: a write waits for a path, then the pool continues without the array, and resynchronizes it
    // later.
    end(&mut two.daemon, Signal::KILL);
    host.be_patient(Duration::from_secs(90));
    host.write(128, 64, 3).expect("it is written without the other array");
    drop(host);
    wait_long(dir, "pool show tank", |said| said.contains("degraded"));
    two.daemon = start_again(&two);
    wait_long(dir, "event list", |said| said.contains("BY-E104"));
    wait_long(dir, "pool show tank", |said| said.starts_with("pool tank: healthy\n"));
    // Each of the two gets the writes that it has missed, not all of its 128 MiB.
    let events = good(dir, "event list");
    let filled: Vec<&str> = events.lines().filter(|line| line.contains("BY-E202")).collect();
    assert!(!events.contains("BY-E114"), "the disks were unreachable until then, and did not answer: {events}");
    assert!(filled.len() == 2 && filled.iter().all(|line| line.contains(" KiB written to it")), "{events}");
    let mut host = Initiator::login(dir);
    for (from, fill) in [(0, 1), (64, 2), (128, 3)] {
        assert!(host.read(from, 64).expect("it is read").iter().all(|byte| *byte == fill));
    }
    drop(host);
    assert!(end(&mut daemon, Signal::TERM).success());
    let left = ask_line(one.dir.path(), "volume show tank/a -o json").stdout;
    assert!(!left.contains("write_exclusive"), "nothing stays reserved: {left}");
}

/// Waits like [`wait_for`], as long as I/O waits for a path.
#[track_caller]
fn wait_long(dir: &Path, line: &str, is_so: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let said = ask_line(dir, line).stdout;
        if is_so(&said) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{line}: {said}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn start_again(target: &Target) -> Daemon {
    let daemon = start_with(target.dir.path(), "two", &["--no-web"]);
    wait_until_served(target.dir.path());
    daemon
}

#[test]
fn address_that_leads_nowhere_says_what_to_check() {
    let ours = tempfile::tempdir().expect("a folder");
    let dir = ours.path();
    let mut daemon = start_with(dir, "front", &["--no-web"]);
    wait_until_served(dir);
    let refused = ask_line(dir, "disk add iscsi://127.0.0.1:9/iqn.2026-11.io.blockyard:none/0");
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("BY-1314") && refused.stderr.contains(":initiator."), "{}", refused.stderr);
    let refused = ask_line(dir, "disk add iscsi://web@127.0.0.1:9/iqn.2026-11.io.blockyard:none/0");
    assert!(refused.stderr.contains("--chap-secret-file"), "{}", refused.stderr);
    assert_eq!(good(dir, "disk list --no-headers"), "");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn login_with_mutual_chap_and_digests_keeps_its_secrets() {
    let target = Target::start("one", ["127.0.0.6", "127.0.0.7"]);
    let ours = tempfile::tempdir().expect("a folder");
    let (dir, there) = (ours.path(), target.dir.path());
    let mut daemon = start_with(dir, "front", &["--no-web"]);
    wait_until_served(dir);
    let [one, other] = &target.portals;
    let refused = ask_line(dir, &format!("disk add iscsi://{one}/iqn.2026-11.io.blockyard:none/0")).stderr;
    let name = refused.split("to the initiator ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a name");
    for folder in [dir, there] {
        fs::write(folder.join("own.secret"), "a secret of the host").expect("it is written");
        fs::write(folder.join("target.secret"), "another secret of the array").expect("it is written");
    }
    let secrets = "--chap-secret-file own.secret --mutual-secret-file target.secret";
    good(there, &format!("host add front --initiator {name} --chap-user web {secrets}"));
    good(there, "volume create tank/a 128MiB");
    good(there, "present tank/a front --lun 3");
    let address = format!("iscsi://web@{one},{other}/{}/3", cell(there, "target", 1));
    let without = ask_line(dir, &format!("disk add --name r0 iscsi://{one}/{}/3", cell(there, "target", 1)));
    assert!(without.stderr.contains("BY-1314"), "{}", without.stderr);
    good(dir, &format!("disk add --name r0 --digests --mutual-user one {secrets} {address}"));
    let shown = good(dir, "disk show r0");
    assert!(shown.contains("CHAP web, mutual one, digests required"), "{shown}");
    good(dir, "pool create tank --level raid0 r0");
    wait_for_disk(dir, "r0", "both paths up", |disk| paths_up(disk) == 2);
    for line in ["disk list -o json", "disk show r0 -o json", "config export", "event list"] {
        let said = ask_line(dir, line).stdout;
        assert!(!said.contains("a secret of the host") && !said.contains("another secret"), "{line}: {said}");
    }
    // The credentials are available again after a restart.
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut daemon = start_with(dir, "front", &["--no-web"]);
    wait_until_served(dir);
    wait_for_disk(dir, "r0", "both paths up", |disk| paths_up(disk) == 2);
    assert!(end(&mut daemon, Signal::TERM).success());
}
