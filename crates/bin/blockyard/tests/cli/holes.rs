//! Hole in the redo log of one of two groups: the refusal and the event name the affected volumes.

use crate::initiator::{Initiator, present};
use crate::serve::{ask, end, good, start_with, wait_until_served};
use crate::verdict::all_tell;
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Start of the redo log on a member, and its length on a member of 128 MiB.
const LOG: u64 = (16 << 20) + 8 * 4096;
const LOG_BYTES: usize = 2 << 20;

/// Destroys a batch before the last ones on both disks.
fn damage_log(dir: &Path, disks: [&str; 2]) {
    let path = |disk: &str| dir.join(format!("{disk}.img"));
    let log = &fs::read(path(disks[0])).expect("it is there")[LOG as usize..][..LOG_BYTES];
    let used: Vec<usize> =
        (0..LOG_BYTES / 4096).filter(|block| log[block * 4096..][..4096].iter().any(|&byte| byte != 0)).collect();
    let lost = used[used.len() - 4];
    for disk in disks {
        let file = File::options().write(true).open(path(disk)).expect("it is there");
        file.write_all_at(&[0xa5; 4096], LOG + lost as u64 * 4096).expect("it is written");
    }
}

#[test]
fn hole_in_the_redo_log_of_a_group_names_the_volumes_that_lie_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    for disk in ["d0", "d1", "d2", "d3"] {
        good(dir, &format!("disk add --name {disk} --create 128MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    good(dir, "volume create tank/v 8MiB");
    good(dir, "pool add-group tank --level raid1 d2 d3");
    good(dir, "volume create tank/w 8MiB");
    present(dir);
    let mut session = Initiator::login(dir);
    for block in 0..64 {
        session.write(block * 128, 8, 7).expect("it is written");
    }
    end(&mut daemon, Signal::KILL);
    damage_log(dir, ["d0", "d1"]);

    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    let refused = ask(dir, &["pool", "import", "tank"]);
    assert!(refused.code == 4 && refused.stderr.contains("(BY-1427)"), "{}", refused.stderr);
    assert!(refused.stderr.contains("Volumes on group 0: tank/v (BY-1427)"), "{}", refused.stderr);
    good(dir, "pool import tank --accept-log-loss");
    let events = good(dir, "event list");
    let told = events.lines().find(|line| line.contains("BY-E234")).unwrap_or_default();
    assert!(told.contains("of group 0 of pool tank") && told.ends_with("from a backup: tank/v."), "{events}");
    all_tell(dir, "BY-E234", "open without part of its redo log");
    assert!(end(&mut daemon, Signal::TERM).success());
    // A restart does not change that; an administrator who has checked the volumes ends it.
    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    all_tell(dir, "BY-E234", "open without part of its redo log");
    let alerts = good(dir, "alert active");
    let alert = alerts.lines().find(|line| line.contains("BY-E234")).expect("it is told");
    good(dir, &format!("alert acknowledge {}", alert.split_whitespace().next().expect("a number")));
    assert!(good(dir, "status").starts_with("All good"), "{}", good(dir, "status"));
    assert!(!good(dir, "alert active").contains("BY-E234"));
    assert!(end(&mut daemon, Signal::TERM).success());
}
