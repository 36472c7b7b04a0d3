//! The real daemon with few descriptors: hosts and browsers that open as many connections as they can leave enough for
//! the administrator and the state.

use crate::serve::{Daemon, SERVE, ask, cell, end, good, wait_for, wait_until_served};
use rustix::process::Signal;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const ALLOWED: &str = "96";

fn start_with_few(dir: &Path) -> Daemon {
    let script = format!("ulimit -n {ALLOWED} && exec \"$0\" \"$@\"");
    let daemon = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_blockyard")])
        .args(SERVE)
        .args(["--node", "test", "--log", "off", "--web", "127.0.0.1:0"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .spawn();
    Daemon(daemon.expect("a shell"))
}

fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(10))).expect("a socket");
    !matches!(stream.read(&mut [0]), Ok(0)) && stream.peer_addr().is_ok()
}

#[test]
fn connections_that_take_all_descriptors_leave_the_administrator_enough() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start_with_few(dir);
    wait_until_served(dir);
    let web = wait_for(dir, "web show", |said| said.contains("https://127.0.0.1:"));
    let web = web.split("https://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
    let portal = cell(dir, "portal", 0);
    let mut all = Vec::new();
    for at in [&portal, &web] {
        all.extend((0..80).map(|_| TcpStream::connect(at).expect("somebody listens")));
    }
    std::thread::sleep(Duration::from_secs(1));
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.process())).expect("it runs").count();
    assert!((60..84).contains(&open), "{open} descriptors are in use, where connections leave 24 of 96");
    // Commands that open files themselves: disks, the state, the audit log.
    for disk in ["d0", "d1", "d2", "d3"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid5 d0 d1 d2");
    good(dir, "volume create tank/v 8MiB");
    let status = wait_for(dir, "status", |said| said.contains("open-file limit is nearly reached"));
    assert!(status.contains("nearly all of the 96 allowed open files"), "{status}");
    assert_eq!(ask(dir, &["status", "--check", "--quiet"]).code, 7);
    assert!(wait_for(dir, "alert active --no-headers", |said| said.contains("BY-E915")).contains("critical"));
    drop(all);
    wait_for(dir, "status", |said| said.starts_with("All good"));
    assert!(good(dir, "event list").contains("BY-E916"));
    assert!(TcpStream::connect(&portal).is_ok_and(|stream| is_open(&stream)));
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut folders = vec![dir.join("state")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let meta = entry.metadata().expect("it is there");
            assert_eq!(meta.mode() & 0o077, 0, "{} is for its owner alone", entry.path().display());
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
}
