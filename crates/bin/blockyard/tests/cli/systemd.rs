//! The daemon under systemd, whose notification socket is held by the test.

use crate::serve::{Daemon, PATIENCE, ask, end};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Period of the watchdog in this test.
const PERIOD: Duration = Duration::from_millis(1500);

fn start(dir: &Path, watchdog_pid: Option<&str>) -> Daemon {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command
        .args(["serve", "--shards", "2", "--state-dir", "state", "--socket", "socket", "--portal", "127.0.0.1:0"])
        .args(["--node", "test", "--log", "warn"])
        .env("NOTIFY_SOCKET", dir.join("notify"))
        .env("WATCHDOG_USEC", PERIOD.as_micros().to_string())
        .current_dir(dir)
        .stdin(Stdio::null());
    if let Some(pid) = watchdog_pid {
        command.env("WATCHDOG_PID", pid);
    }
    Daemon(command.spawn().expect("it runs"))
}

/// Receives the next notification within `patience`.
fn heard(socket: &UnixDatagram, patience: Duration) -> Option<String> {
    socket.set_read_timeout(Some(patience)).expect("a time");
    let mut bytes = [0; 4096];
    let len = socket.recv(&mut bytes).ok()?;
    Some(String::from_utf8(bytes[..len].to_vec()).expect("text"))
}

/// Waits for a notification with this prefix, ignoring others.
#[track_caller]
fn await_word(socket: &UnixDatagram, word: &str) -> String {
    let begun = Instant::now();
    while let Some(text) = heard(socket, PATIENCE.saturating_sub(begun.elapsed()).max(Duration::from_millis(1))) {
        if text.lines().any(|line| line.starts_with(word)) {
            return text;
        }
    }
    panic!("{word} was not heard");
}

#[test]
fn systemd_hears_that_the_daemon_serves_lives_and_stops() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let socket = UnixDatagram::bind(dir.join("notify")).expect("a socket");
    let mut daemon = start(dir, None);
    await_word(&socket, "STATUS=opening");
    await_word(&socket, "READY=1");
    assert_eq!(ask(dir, &["status"]).code, 0, "whoever waits for READY finds it serving");
    for _ in 0..3 {
        let begun = Instant::now();
        await_word(&socket, "WATCHDOG=1");
        assert!(begun.elapsed() < PERIOD, "the watchdog would have bitten");
    }
    assert!(end(&mut daemon, Signal::TERM).success());
    await_word(&socket, "STOPPING=1");
}

#[test]
fn watchdog_of_another_process_is_not_fed() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let socket = UnixDatagram::bind(dir.join("notify")).expect("a socket");
    let mut daemon = start(dir, Some("1"));
    await_word(&socket, "READY=1");
    assert_eq!(heard(&socket, PERIOD), None);
    assert!(end(&mut daemon, Signal::TERM).success());
}

/// Returns the output of `systemd-analyze` for the unit, if it is installed.
fn analysed(arguments: &[&str], unit: &Path) -> Option<std::process::Output> {
    match Command::new("systemd-analyze").args(arguments).arg(unit).stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("systemd-analyze is not installed ({error}): the unit is not judged");
            None
        }
    }
}

#[test]
fn unit_is_one_that_systemd_takes_and_is_locked_up_well() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/systemd/blockyard.service");
    let text = std::fs::read_to_string(shipped).expect("the unit");
    let dir = tempfile::tempdir().expect("a folder");
    let unit = dir.path().join("blockyard.service");
    // The program is not installed at its usual path here.
    std::fs::write(&unit, text.replace("/usr/bin/blockyard", env!("CARGO_BIN_EXE_blockyard"))).expect("writes");
    let judge = ["verify", "--man=no"];
    let Some(verified) = analysed(&judge, &unit) else { return };
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", String::from_utf8_lossy(&verified.stderr));
    // Exposure from 0 to 10, in tenths.
    let lock = ["security", "--offline=true", "--no-pager", "--threshold=20"];
    let locked = analysed(&lock, &unit).expect("it is installed");
    assert!(locked.status.success(), "{}", String::from_utf8_lossy(&locked.stdout));

    let open = text.replace("NoNewPrivileges=yes", "NoNewPrivilegs=yes").replace("User=blockyard", "User=root");
    std::fs::write(&unit, open).expect("writes");
    assert!(!analysed(&judge, &unit).expect("it is installed").stderr.is_empty(), "a key that is not known is said");
    assert!(!analysed(&lock, &unit).expect("it is installed").status.success(), "an open unit is found");
}
