//! The real daemon: it starts, is alone, ends well, and comes back after a kill.

use crate::lab::run_in;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long the daemon may take to start or to end; two cores are shared with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon that ends with its test, also when that fails.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already, and a test that panics has said what matters.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path) -> Daemon {
    let daemon = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(["serve", "--shards", "1", "--state-dir", "state", "--socket", "socket", "--portal", "127.0.0.1:0"])
        .args(["--node", "test", "--log", "warn"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .spawn();
    Daemon(daemon.expect("it runs"))
}

fn ask(dir: &Path, arguments: &[&str]) -> crate::lab::Outcome {
    run_in(dir.to_path_buf(), arguments, &[("BLOCKYARD_SOCKET", "socket")])
}

fn wait_until_served(dir: &Path) {
    let begun = Instant::now();
    while ask(dir, &["status"]).code == 3 {
        assert!(begun.elapsed() < PATIENCE, "the daemon did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(daemon: &mut Daemon, signal: Signal) -> ExitStatus {
    let id = Pid::from_raw(i32::try_from(daemon.0.id()).expect("a process id")).expect("not zero");
    kill_process(id, signal).expect("it runs");
    let begun = Instant::now();
    loop {
        if let Some(status) = daemon.0.try_wait().expect("it is ours") {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "the daemon did not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn disk_that_failed_by_accident_is_its_own_replacement() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    let good = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let outcome = ask(dir, &words);
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
        outcome.stdout
    };
    for disk in ["d0", "d1", "d2"] {
        good(&format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good("pool create tank --level raid1 d0 d1");
    good("volume create tank/v 8MiB");
    good("disk fail d1");
    good("disk replace d1 d1 --wait");
    assert!(good("pool show tank").starts_with("pool tank: healthy\n"));
    good("disk replace d1 d2 --force --yes --wait");
    let disks = good("disk list --no-headers");
    assert!(disks.contains("d1\tfree\t(tank)") && disks.contains("d2\tin use\ttank"), "{disks}");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn daemon_is_alone_ends_well_and_comes_back_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    assert_eq!(ask(dir, &["host", "add", "web", "--initiator", "iqn.2001-04.com.example:web"]).code, 0);

    let second = ask(dir, &["serve", "--state-dir", "state", "--socket", "other", "--portal", "127.0.0.1:0"]);
    assert_eq!(second.code, 1, "{}", second.stderr);
    assert!(second.stderr.ends_with("(BY-1802)\n"), "{}", second.stderr);
    let third = ask(dir, &["serve", "--state-dir", "other", "--socket", "socket", "--portal", "127.0.0.1:0"]);
    assert_eq!(third.code, 1, "{}", third.stderr);

    assert!(!end(&mut daemon, Signal::KILL).success());
    assert!(dir.join("socket").exists(), "a killed daemon leaves its socket");
    let mut daemon = start(dir);
    wait_until_served(dir);
    let hosts = ask(dir, &["host", "list", "--no-headers"]);
    assert!(hosts.stdout.starts_with("web\t"), "what was answered survives: {}", hosts.stdout);

    assert!(end(&mut daemon, Signal::TERM).success(), "told to stop, it ends well");
    assert!(!dir.join("socket").exists());
    assert_eq!(ask(dir, &["status"]).code, 3);
}
