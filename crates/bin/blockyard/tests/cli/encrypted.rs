//! Export and import of the key of a pool with encrypted volumes.

use crate::serve::{Daemon, ask_line, end, good, start, start_with, wait_until_served};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn refused(dir: &Path, line: &str) -> String {
    let outcome = ask_line(dir, line);
    assert!([1, 2, 3, 4].contains(&outcome.code), "{line}: {}", outcome.stdout);
    outcome.stderr
}

/// Starts a daemon with the pool `tank` of two disks and with the encrypted volume `tank/hr`.
fn furnished(dir: &Path) -> Daemon {
    let daemon = start(dir);
    wait_until_served(dir);
    for disk in ["d0", "d1"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    good(dir, "volume create tank/hr 8MiB --thin --encrypted");
    daemon
}

#[test]
fn pool_key_is_written_once_and_for_its_owner_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = furnished(dir);
    assert!(good(dir, "volume show tank/hr").contains("encrypted (AES-256-XTS)"));
    let said = good(dir, "pool key tank --file tank.key");
    let mode = fs::metadata(dir.join("tank.key")).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let line = fs::read_to_string(dir.join("tank.key")).expect("it was written");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(said.contains(words[1]) && !said.contains(words[2]), "{said}");
    assert!(refused(dir, "pool key tank --file tank.key").contains("give the path of a new file (BY-1814)"));
    assert_eq!(fs::read_to_string(dir.join("tank.key")).expect("it is still there"), line);
    assert!(refused(dir, "pool key other --file other.key").contains("pool other does not exist"));
    assert!(!dir.join("other.key").exists());
    let refusal = refused(dir, "volume create scratch 1MiB --ram --encrypted");
    assert!(refusal.contains("has no pool"), "{refusal}");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn encrypted_volume_outlives_the_key_of_its_node_when_the_pools_was_written_down() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = furnished(dir);
    good(dir, "pool key tank --file tank.key");
    assert!(end(&mut daemon, Signal::TERM).success());
    fs::remove_file(dir.join("state/node.key")).expect("it was made at the first start");

    let mut daemon = start_with(dir, "test", &["--no-web", "--forget-secrets"]);
    wait_until_served(dir);
    let second = refused(dir, "volume create tank/more 8MiB --thin --encrypted");
    assert!(second.contains("encrypted volumes of the pool need pool key"), "{second}");
    assert!(good(dir, "volume show tank/hr").starts_with("volume tank/hr: failed"));
    let found = refused_with_stdout(dir, "pool check tank");
    let line = fs::read_to_string(dir.join("tank.key")).expect("it was written");
    let id = line.split_whitespace().nth(1).expect("what the key is called");
    assert!(found.contains(&format!("its key is wrapped with pool key {id}")), "{found}");
    good(dir, "pool export tank");
    fs::write(dir.join("torn.key"), &line[..40]).expect("it is written");
    assert!(refused(dir, "pool import tank --key-file torn.key").contains("(BY-1814)"));
    fs::write(dir.join("other.key"), format!("blockyard-pool-key-1 0102030405060708 {}\n", "07".repeat(32)))
        .expect("written");
    let refusal = refused(dir, "pool import tank --key-file other.key");
    assert!(refusal.contains(&format!("but the pool needs {id}")), "{refusal}");
    // Read-only, the key stays in the state: nothing of the pool can be wrapped with the node's own key.
    good(dir, "pool import tank --read-only --key-file tank.key");
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut daemon = start(dir);
    wait_until_served(dir);
    assert!(good(dir, "volume show tank/hr").starts_with("volume tank/hr: online"), "the key is known after a restart");
    good(dir, "pool export tank");
    good(dir, "pool import tank --key-file tank.key");
    assert!(good(dir, "volume show tank/hr").starts_with("volume tank/hr: online"));
    assert!(end(&mut daemon, Signal::TERM).success());

    let mut daemon = start(dir);
    wait_until_served(dir);
    assert!(good(dir, "volume show tank/hr").starts_with("volume tank/hr: online"), "it is this node's now");
    assert!(end(&mut daemon, Signal::TERM).success());
}

fn refused_with_stdout(dir: &Path, line: &str) -> String {
    let outcome = ask_line(dir, line);
    assert_eq!(outcome.code, 1, "{line}");
    outcome.stdout + &outcome.stderr
}
