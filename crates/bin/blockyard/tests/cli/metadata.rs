//! Metadata that is damaged on one disk: it is rewritten, and an event names it.

use crate::serve::{Daemon, end, good, start_with, wait_until_served};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const SLOTS: [u64; 2] = [2 << 20, 6 << 20];

/// Damages a copy of the catalog on disk `d0`.
fn damage(dir: &Path, slot: usize) {
    let disk = File::options().write(true).open(dir.join("d0.img")).expect("it is there");
    disk.write_all_at(&[0xa5; 64], SLOTS[slot] + 8).expect("it is written");
}

fn started(dir: &Path) -> Daemon {
    let daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    daemon
}

/// Starts like [`started`], with the pool `tank`, a mirror of disks `d0` and `d1`.
fn mirrored(dir: &Path) -> Daemon {
    let daemon = started(dir);
    for disk in ["d0", "d1"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    daemon
}

/// Returns the number of reported repairs of a catalog on disk `d0`, once it reaches `count`: one event per hour counts
/// the further ones. Events are written some time after the work that they report.
fn told(dir: &Path, count: usize) -> usize {
    let times = |line: &str| {
        let more = line.split_once(" more since ").and_then(|(before, _)| before.rsplit_once('('));
        1 + more.map_or(0, |(_, more)| more.replace(',', "").parse::<usize>().expect("a count"))
    };
    let told = || {
        let events = good(dir, "event list");
        let of_catalog = |line: &&str| line.contains("BY-E233") && line.contains("disk d0 of pool tank: the catalog");
        events.lines().filter(of_catalog).map(times).sum()
    };
    let waits = std::iter::repeat_with(|| std::thread::sleep(Duration::from_millis(100)));
    waits.take(50).map(|()| told()).find(|told| *told >= count).unwrap_or_else(told)
}

#[test]
fn one_damaged_copy_of_the_catalog_is_written_again_with_an_event() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = mirrored(dir);
    for slot in [0, 1] {
        // While the pool is not open: found when it is opened.
        assert!(end(&mut daemon, Signal::TERM).success());
        damage(dir, slot);
        daemon = started(dir);
        assert_eq!(told(dir, 2 * slot + 1), 2 * slot + 1, "{}", good(dir, "event list"));
        // While it is open: found by a scrub.
        damage(dir, slot);
        good(dir, "pool scrub start tank --wait");
        assert_eq!(told(dir, 2 * slot + 2), 2 * slot + 2, "{}", good(dir, "event list"));
    }
    assert!(end(&mut daemon, Signal::TERM).success());
    daemon = started(dir);
    assert_eq!(told(dir, 4), 4, "it is whole");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn damaged_mark_of_the_owner_is_written_again_with_an_event() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = mirrored(dir);
    // All four places of one disk, until the owner has written to it and checked again: two beats of two seconds.
    let disk = File::options().write(true).open(dir.join("d0.img")).expect("it is there");
    let sentence = "disk d0 of pool tank: its owner's mark was damaged and was repaired.";
    let told = (0..40).any(|_| {
        disk.write_all_at(&[0xa5; 4 * 4096], 1 << 20).expect("it is written");
        std::thread::sleep(Duration::from_millis(500));
        good(dir, "event list").contains(sentence)
    });
    assert!(told, "{}", good(dir, "event list"));
    assert!(good(dir, "pool show tank").contains("healthy"), "{}", good(dir, "pool show tank"));
    assert!(end(&mut daemon, Signal::TERM).success());
}
