//! The real daemon in a control group with little memory: it stays below the limit with its defaults, and with a
//! configured cache that does not fit.

use crate::initiator::{Initiator, present};
use crate::serve::{Daemon, SERVE, ask, end, good, wait_until_served};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LIMIT: u64 = 512 << 20;
/// Amount of data read, in MiB: three times the group's limit.
const VOLUME_MIB: u64 = 1536;
/// Size of one read: 64 KiB.
const READ_BLOCKS: u32 = 128;
const PLACES: u64 = VOLUME_MIB * 16;
/// Coprime to [`PLACES`], so that each location is visited once.
const STRIDE: u64 = 7919;

/// Control group with a memory limit, removed with its test.
struct Group(PathBuf);

impl Group {
    /// Creates a group; none if no memory hierarchy is writable, in cgroup v1 or v2.
    fn create(name: &str) -> Option<Self> {
        for hierarchy in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
            let group = Path::new(hierarchy).join(format!("blockyard-test-{name}-{}", std::process::id()));
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Self(group);
            // With cgroup v1, `/sys/fs/cgroup` is an ordinary folder above the hierarchies.
            let limits = ["memory.limit_in_bytes", "memory.max"];
            let set = limits.iter().map(|file| group.0.join(file)).filter(|file| file.exists());
            if set.map(|file| fs::write(file, LIMIT.to_string())).any(|written| written.is_ok()) {
                return Some(group);
            }
        }
        None
    }

    fn has(&self, daemon: &Daemon) -> bool {
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).expect("the group is there");
        processes.lines().any(|process| process == daemon.process().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel frees a group some time after its last process has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn start_in(group: &Group, dir: &Path, more: &[&str]) -> Daemon {
    let script = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
    let daemon = Command::new("sh")
        .args(["-c", script])
        .arg(&group.0)
        .arg(env!("CARGO_BIN_EXE_blockyard"))
        .args(SERVE)
        .args(["--node", "test", "--log", "off", "--no-web"])
        .args(more)
        .current_dir(dir)
        .stdin(Stdio::null())
        .spawn();
    Daemon(daemon.expect("a shell"))
}

/// Runs a daemon with these options that reads three times its memory in a small control group and must survive.
/// Returns the output of `doctor`; the daemon caches at most `cache` bytes.
fn read_much(name: &str, more: &[&str], cache: u64) -> Option<String> {
    let Some(group) = Group::create(name) else {
        println!("no control group with a memory limit can be created here: the daemon is not tried in one");
        return None;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start_in(&group, dir, more);
    wait_until_served(dir);
    assert!(group.has(&daemon));
    good(dir, "disk add --name d0 --create 4GiB d0.img");
    good(dir, "pool create tank --level raid0 d0");
    good(dir, &format!("volume create tank/v {VOLUME_MIB}MiB"));
    present(dir);
    let mut session = Initiator::login(dir);
    // Random order: a sequential stream bypasses the read cache.
    for place in 0..PLACES {
        session.read(place * STRIDE % PLACES * u64::from(READ_BLOCKS), READ_BLOCKS).expect("it is read");
    }
    let doctor = ask(dir, &["doctor"]).stdout;
    let shown: Value = serde_json::from_str(&good(dir, "volume show tank/v -o json")).expect("JSON");
    let cached = shown["volume"]["cache"]["used"].as_u64().expect("a number of bytes");
    assert!((cache / 2..=cache).contains(&cached), "{cached} bytes are cached");
    let found = format!("is limited to 512 MiB ({}/", group.0.display());
    assert!(doctor.contains(&found), "{doctor}");
    assert!(daemon.0.try_wait().expect("it is ours").is_none(), "the daemon was killed");
    assert!(end(&mut daemon, Signal::TERM).success());
    Some(doctor)
}

#[test]
fn daemon_in_a_small_control_group_serves_more_than_its_memory_and_is_not_killed() {
    // A quarter of the limit.
    let Some(doctor) = read_much("default", &[], LIMIT / 4) else { return };
    assert!(!doctor.contains("less than configured"), "{doctor}");
}

#[test]
fn cache_that_does_not_fit_into_the_control_group_is_made_smaller_and_told() {
    // Half of the limit: a quarter is for buffers, and a quarter for everything else.
    let Some(doctor) = read_much("large", &["--cache", "4GiB"], LIMIT / 2) else { return };
    let told = "less than configured: cache of 4 GiB does not fit into the limit of 512 MiB (/sys/fs/cgroup/";
    assert!(doctor.contains(told) && doctor.contains("set cache = \"256MiB\" or less"), "{doctor}");
}
