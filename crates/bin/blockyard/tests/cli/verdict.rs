//! Failures are reported by every command that shows the condition of the array.

use crate::initiator::{Initiator, present};
use crate::serve::{ask, ask_line, end, good, start_with, wait_for, wait_until_served};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SPACE_ALLOCATION_FAILED: (u8, u8, u8) = (7, 0x27, 7);

/// Requires that `status` and its exit code, `pool show`, `doctor` and the alerts report `words` about `tank`, with
/// this code.
#[track_caller]
pub(crate) fn all_tell(dir: &Path, code: &str, words: &str) {
    wait_for(dir, "status", |said| said.contains(words));
    assert_eq!(ask(dir, &["status", "--check"]).code, 7);
    let state = words.trim_end_matches(": ");
    for (line, words) in [("pool show tank", words), ("doctor", words), ("pool list", state)] {
        let said = ask_line(dir, line).stdout;
        assert!(said.contains(words), "{line} does not say {words:?}: {said}");
        assert!(
            line == "doctor"
                || !said.lines().nth(usize::from(line == "pool list")).expect("a line").contains("healthy"),
            "{said}"
        );
    }
    let alerts = good(dir, "alert active");
    assert!(alerts.lines().any(|line| line.contains(code) && line.contains("critical")), "{code}: {alerts}");
}

#[test]
fn thin_pool_that_is_full_is_told_by_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    for disk in ["d0", "d1"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    good(dir, "volume create tank/v 1GiB --thin");
    present(dir);
    assert!(good(dir, "status").starts_with("All good"));
    let mut session = Initiator::login(dir);
    let refused = (0..2048).find_map(|at| session.write(at * 128, 128, 7).err().filter(|sense| sense.0 != 6));
    assert_eq!(refused, Some(SPACE_ALLOCATION_FAILED));
    all_tell(dir, "BY-E322", "full: ");
    assert!(good(dir, "pool show tank").starts_with("pool tank: full (critical)\n"));
    good(dir, "unpresent tank/v client --force");
    good(dir, "volume delete tank/v --yes");
    wait_for(dir, "status", |said| said.starts_with("All good"));
    assert_eq!(good(dir, "alert active").trim(), "no active alerts");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn volume_that_does_not_serve_in_a_healthy_pool_is_told_by_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    for disk in ["d0", "d1"] {
        good(dir, &format!("disk add --name {disk} --create 128MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 --no-integrity d0 d1");
    good(dir, "volume create tank/v 16MiB --thin");
    present(dir);
    Initiator::login(dir).write(0, 128, 7).expect("it is written");
    assert!(end(&mut daemon, Signal::TERM).success());
    for disk in ["d0", "d1"] {
        lose_map(&dir.join(format!("{disk}.img")));
    }
    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    all_tell(dir, "BY-E247", "offline");
    assert!(good(dir, "pool show tank").starts_with("pool tank: volume tank/v offline (critical)\n"));
    assert!(end(&mut daemon, Signal::TERM).success());
}

/// Damages every head of a map on the disk.
fn lose_map(disk: &Path) {
    let bytes = fs::read(disk).expect("it is there");
    let heads = (0..bytes.len() as u64).step_by(4096).filter(|&at| bytes[at as usize..].starts_with(b"BLKYDMAP"));
    let file = File::options().write(true).open(disk).expect("it is there");
    let lost = heads.map(|at| file.write_all_at(&[0xa5; 4096], at).expect("it is written")).count();
    assert!(lost > 0, "there is no map");
}
