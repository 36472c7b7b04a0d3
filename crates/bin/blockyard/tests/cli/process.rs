//! The daemon and its helper: end of both, limits of a compromised daemon, and the report about the confinement.

use crate::serve::{Daemon, PATIENCE, SERVE, ask, end, good, runs, start, start_with, wait_for_end, wait_until_served};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Attempts of the probe that need the helper.
const THROUGH: [&str; 8] = [
    "helper key",
    "helper passwd",
    "helper memory",
    "helper kernel memory",
    "helper create",
    "helper remove",
    "helper port",
    "helper health",
];

/// Attempts of the probe by itself, all of which root without a sandbox can do.
const ALONE: [&str; 11] = [
    "shadow",
    "thread shadow",
    "cron",
    "packet socket",
    "raw socket",
    "execve",
    "mount",
    "ring",
    "helper descriptor",
    "helper ptrace",
    "helper signal",
];

/// Runs the probe in place of the daemon; none if this build has none.
fn probe(dir: &Path, more: &[&str]) -> Option<String> {
    if !cfg!(debug_assertions) {
        println!("a release build has no probe: not tried");
        return None;
    }
    let probe = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(SERVE)
        .args(["--node", "test", "--log", "off", "--no-web", "--probe"])
        .args(more)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(probe.status.success(), "{}", String::from_utf8_lossy(&probe.stderr));
    Some(String::from_utf8(probe.stdout).expect("text"))
}

fn signal(process: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process).expect("a process id")).expect("not zero");
    kill_process(pid, signal).expect("it runs");
}

#[test]
fn daemon_that_was_taken_over_reaches_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(said) = probe(dir.path(), &[]) else { return };
    let lines: Vec<&str> = said.lines().collect();
    for attempt in ALONE.iter().chain(&THROUGH) {
        assert!(lines.contains(&format!("{attempt} denied").as_str()), "{attempt}: {said}");
    }
    assert!(lines.contains(&"own state SUCCEEDED"), "{said}");
}

#[test]
fn attempts_of_the_probe_succeed_where_there_is_no_sandbox() {
    if !rustix::process::geteuid().is_root() {
        println!("only root can do what the probe tries: not tried");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let Some(said) = probe(dir.path(), &["--no-sandbox"]) else { return };
    // A container may take away the other permissions.
    for attempt in ["shadow", "thread shadow", "execve", "helper signal", "own state"] {
        assert!(said.lines().any(|line| line == format!("{attempt} SUCCEEDED")), "{attempt}: {said}");
    }
}

#[test]
fn helper_ends_as_its_daemon_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    signal(daemon.process(), Signal::KILL);
    let status = wait_for_end(&mut daemon);
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    let mut daemon = start(dir);
    wait_until_served(dir);
    assert_eq!(end(&mut daemon, Signal::INT).code(), Some(0), "signals are handed on");
}

#[test]
fn daemon_ends_with_its_helper_and_the_next_one_takes_its_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    let process = daemon.process();
    signal(daemon.0.id(), Signal::KILL);
    assert_eq!(wait_for_end(&mut daemon).signal(), Some(Signal::KILL.as_raw()));
    let mut next = start(dir);
    let begun = Instant::now();
    while runs(process) {
        assert!(begun.elapsed() < PATIENCE, "the daemon runs without its helper");
        std::thread::sleep(Duration::from_millis(10));
    }
    wait_until_served(dir);
    assert!(end(&mut next, Signal::TERM).success());
}

fn states(dir: &Path) -> Vec<String> {
    let status: Value = serde_json::from_str(&good(dir, "status -o json")).expect("JSON");
    let measures = status["status"]["confinement"].as_array().expect("a list");
    measures.iter().map(|measure| format!("{} {}", measure["measure"], measure["state"]).replace('"', "")).collect()
}

#[test]
fn what_is_in_force_stands_in_the_status_and_is_told_by_doctor() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon: Daemon = start(dir);
    wait_until_served(dir);
    let helper = std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).expect("it runs");
    assert!(helper.contains("\nThreads:\t1\n"), "{helper}");
    let confined = std::fs::read_to_string(format!("/proc/{}/status", daemon.process())).expect("it runs");
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(confined.contains(line), "{confined}");
    }
    assert_eq!(states(dir).len(), 5);
    for measure in ["memory", "privileges", "seccomp", "rings"] {
        assert!(states(dir).contains(&format!("{measure} in_force")), "{:?}", states(dir));
    }
    assert!(ask(dir, &["doctor"]).stdout.contains("sandbox: seccomp\tis in force"));
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut open = start_with(dir, "test", &["--no-web", "--no-sandbox"]);
    wait_until_served(dir);
    assert!(states(dir).contains(&"seccomp switched_off".to_owned()), "{:?}", states(dir));
    assert!(ask(dir, &["doctor"]).stdout.contains("sandbox: landlock\tis switched off\tstart without --no-sandbox"));
    assert!(end(&mut open, Signal::TERM).success());
}
