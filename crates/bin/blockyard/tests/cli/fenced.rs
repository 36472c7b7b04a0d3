//! A pool whose disks another node takes over: this node stops, and reports it once.

use crate::initiator::present;
use crate::serve::{end, good, start_with, wait_for, wait_until_served};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Starts a node with the pool `tank` of two disks, and overwrites the first disk's labels with those of another pool.
fn overwritten(is_read_only: bool) {
    let (ours, theirs) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (dir, theirs) = (ours.path(), theirs.path());
    let mut other = made(theirs, "beta");
    assert!(end(&mut other, Signal::TERM).success());
    let mut daemon = made(dir, "alpha");
    good(dir, "volume create tank/v 8MiB --thin");
    present(dir);
    if is_read_only {
        good(dir, "pool export tank --force");
        good(dir, "pool import tank --read-only");
    }
    let head = fs::read(theirs.join("d0.img")).expect("it is there")[..2 << 20].to_vec();
    let disk = File::options().write(true).open(dir.join("d0.img")).expect("it is there");
    disk.write_all_at(&head, 0).expect("it is written");

    let events = wait_for(dir, "event list", |said| said.contains("BY-E332"));
    let alerts = wait_for(dir, "alert active", |said| said.contains("BY-E332"));
    wait_for(dir, "status", |said| said.contains("used by another owner"));
    // Long enough for all other observers of pools.
    std::thread::sleep(std::time::Duration::from_secs(6));
    let (events, alerts) = (good(dir, "event list") + &events, good(dir, "alert active") + &alerts);
    let bad = |line: &&str| line.contains("critical");
    assert!(events.lines().filter(bad).all(|line| line.contains("BY-E332")), "{events}");
    let told = good(dir, "alert active").lines().filter(bad).count();
    assert!(told == 1 && alerts.lines().filter(bad).all(|line| line.contains("BY-E332")), "{alerts}");
    end(&mut daemon, Signal::TERM);
}

fn made(dir: &Path, node: &str) -> crate::serve::Daemon {
    let daemon = start_with(dir, node, &["--no-web"]);
    wait_until_served(dir);
    for disk in ["d0", "d1"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    // Both disks together exceed this.
    good(dir, "pool set tank space.soft=off space.hard=off");
    daemon
}

#[test]
fn pool_that_another_owner_has_is_one_event_and_one_alert() {
    overwritten(false);
}

#[test]
fn read_only_pool_that_another_owner_has_is_one_event_and_one_alert() {
    overwritten(true);
}
