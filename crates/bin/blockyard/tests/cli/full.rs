//! The real daemon on a full file system: what cannot be written is refused and leaves no trace, and free space ends
//! the condition.

use crate::lab::Outcome;
use crate::serve::{Daemon, ask, end, start, wait_until_served};
use rustix::process::Signal;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Starts a daemon whose state folder is a small file system in a private mount namespace.
fn start_in_little_room(dir: &Path) -> Daemon {
    fs::create_dir(dir.join("state")).expect("a folder");
    let script = "mount -t tmpfs -o size=2m tmpfs state && exec \"$0\" \"$@\"";
    let daemon = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script, env!("CARGO_BIN_EXE_blockyard")])
        .args(["serve", "--shards", "1", "--state-dir", "state", "--socket", "socket", "--portal", "127.0.0.1:0"])
        .args(["--node", "test", "--log", "off", "--no-web"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .spawn();
    Daemon(daemon.expect("there is unshare, of util-linux"))
}

/// Returns the state folder as the daemon sees it.
fn state_of(daemon: &Daemon, dir: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", daemon.0.id()));
    root.join(dir.strip_prefix("/").expect("absolute")).join("state")
}

/// Fills the file system by growing `file`.
fn fill(file: &Path) {
    let mut file = fs::File::create(file).expect("makes the file");
    let error = (0..1024).find_map(|_| file.write_all(&[1; 4096]).err()).expect("the file system is a small one");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}

fn add(dir: &Path, host: &str) -> Outcome {
    ask(dir, &["host", "add", host, "--initiator", &format!("iqn.2026-11.test:{host}")])
}

fn hosts(dir: &Path) -> Vec<String> {
    let listed = ask(dir, &["host", "list"]).stdout;
    listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn change_that_finds_no_room_for_the_state_is_refused_and_others_follow_once_there_is_some() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut daemon = start_in_little_room(dir.path());
    wait_until_served(dir.path());
    let state = state_of(&daemon, dir.path());
    fill(&state.join("filler"));
    // Writes into space that the file has already still succeed.
    let mut there = Vec::new();
    let refused = loop {
        let name = format!("h{:02}", there.len());
        let added = add(dir.path(), &name);
        if added.code != 0 {
            break added;
        }
        there.push(name);
        assert!(there.len() < 100, "the file grows with each version");
    };
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("No space left on device"), "{}", refused.stderr);
    assert!(refused.stderr.contains("free disk space"), "{}", refused.stderr);
    assert_eq!(hosts(dir.path()), there, "it serves on, with what there was");
    // The file is opened again, which may have shrunk it.
    for at in 0..20 {
        let name = format!("i{at:02}");
        if add(dir.path(), &name).code == 0 {
            there.push(name);
        }
        assert_eq!(hosts(dir.path()), there);
    }
    fs::remove_file(state.join("filler")).expect("goes away");
    assert_eq!(add(dir.path(), "later").code, 0);
    there.push("later".to_owned());
    // A copy between two commits is what a power loss leaves.
    fs::create_dir(dir.path().join("state/state")).expect("a folder");
    let versions = fs::read_dir(state.join("state")).expect("a folder").map(|file| file.expect("an entry").file_name());
    for file in versions.map(|file| Path::new("state").join(file)).chain([PathBuf::from("node.key")]) {
        fs::copy(state.join(&file), dir.path().join("state").join(&file)).expect("copies");
    }
    assert!(end(&mut daemon, Signal::TERM).success());
    let _daemon = start(dir.path());
    wait_until_served(dir.path());
    assert_eq!(hosts(dir.path()), there);
}
