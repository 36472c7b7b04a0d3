//! Secrets in the daemon's memory: each exists once, in locked pages, without leftover copies.

use crate::serve::{Daemon, PATIENCE, ask, cell, end, good, start, wait_until_served};
use rustix::process::Signal;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const SECRET: &str = "Vm7-not-in-any-dictionary";
const OURS: &str = "Kq3-neither-is-this-one-here";
const PASSWORD: &str = "a passphrase of Zulu-9 words";

/// Reads the writable memory of a process: flags and content of each mapping.
fn memory_of(daemon: &Daemon) -> Vec<(String, Vec<u8>)> {
    let folder = format!("/proc/{}", daemon.process());
    let maps = std::fs::read_to_string(format!("{folder}/smaps")).expect("it runs");
    let memory = std::fs::File::open(format!("{folder}/mem")).expect("root may read it");
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let bound = |text| u64::from_str_radix(text, 16).ok();
        if let Some((from, to)) = range.and_then(|(from, to)| bound(from).zip(bound(to))) {
            let rights = words.next().unwrap_or("");
            // Buffers and caches are not touched without volumes.
            let len = if rights.starts_with("rw") && to - from < 1 << 28 { to - from } else { 0 };
            let mut bytes = vec![0; usize::try_from(len).expect("it fits")];
            let _ = memory.read_at(&mut bytes, from);
            found.push((String::new(), bytes));
        } else if let (Some(flags), Some(last)) = (line.strip_prefix("VmFlags:"), found.last_mut()) {
            last.0 = format!("{flags} ");
        }
    }
    found
}

/// Returns the flags of the mappings that contain `text`, once per occurrence.
fn places(memory: &[(String, Vec<u8>)], text: &[u8]) -> Vec<String> {
    let count = |bytes: &[u8]| bytes.windows(text.len()).filter(|window| *window == text).count();
    memory.iter().flat_map(|(flags, bytes)| std::iter::repeat_n(flags.clone(), count(bytes))).collect()
}

/// Waits until `is_so` holds for the daemon's memory: a request stays in the buffer of its connection until that is
/// closed.
#[track_caller]
fn wait_for_memory(daemon: &Daemon, what: &str, is_so: impl Fn(&[(String, Vec<u8>)]) -> bool) {
    let begun = Instant::now();
    while !is_so(&memory_of(daemon)) {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn assert_once(daemon: &Daemon, secret: &str, when: &str) {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    wait_for_memory(daemon, &format!("{when}, {secret} is not there once, locked"), |memory| {
        let found = places(memory, secret.as_bytes());
        let locked = found.len() == 1 && found[0].contains(" lo ") && found[0].contains(" dd ");
        locked && places(memory, hex.as_bytes()).is_empty()
    });
}

#[track_caller]
fn assert_gone(daemon: &Daemon, secret: &str, when: &str) {
    wait_for_memory(daemon, &format!("{when}, {secret} is there still"), |memory| {
        places(memory, secret.as_bytes()).is_empty()
    });
}

fn log_in(dir: &Path) {
    let portal = cell(dir, "portal", 0);
    let url = format!("iscsi://web%{SECRET}@{portal}/{}/0", cell(dir, "target", 1));
    let out = std::process::Command::new("iscsi-inq")
        .args(["-i", "iqn.2001-04.com.example:web", &url])
        .output()
        .expect("libiscsi-bin");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn secrets_lie_once_in_locked_memory_and_nothing_leaves_copies() {
    if !rustix::process::geteuid().is_root() {
        println!("only root reads another process' memory: not tried");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    for (file, text) in [("secret", SECRET), ("ours", OURS), ("password", PASSWORD)] {
        std::fs::write(dir.join(file), text).expect("a file");
    }
    let mut daemon = start(dir);
    wait_until_served(dir);
    good(dir, "volume create v 16MiB --ram");
    good(
        dir,
        "host add web --initiator iqn.2001-04.com.example:web --chap-secret-file secret --mutual-secret-file ours",
    );
    good(dir, "present v web");
    assert_once(&daemon, SECRET, "after the host was added");
    assert_once(&daemon, OURS, "after the host was added");
    for _ in 0..3 {
        log_in(dir);
        good(dir, "export");
        good(dir, "host show web");
        good(dir, "host change web --address 127.0.0.0/8");
        good(dir, "host change web --address 0.0.0.0/0");
    }
    assert_once(&daemon, SECRET, "after logins and changes");
    good(dir, "user add alice --role admin --password-file password");
    assert_gone(&daemon, PASSWORD, "a password is kept as a hash alone");
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut daemon = start(dir);
    wait_until_served(dir);
    assert_once(&daemon, SECRET, "after a start");
    log_in(dir);
    assert_once(&daemon, SECRET, "after a start and a login");
    good(dir, "host remove web --force");
    assert_gone(&daemon, SECRET, "after its host was removed");
    assert!(ask(dir, &["doctor"]).stdout.contains("are in locked memory"));
    assert!(end(&mut daemon, Signal::TERM).success());
}
