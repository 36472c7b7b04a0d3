//! Run that is stopped before it is complete.

use lab::run::Run;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SCENARIO: &str = "
name = \"endless\"
title = \"More rounds than anybody waits for\"
[base]
peer = \"bare\"
span = \"20ms\"
warm_up = \"1ms\"
[[axis]]
name = \"depth\"
values = [1, 2]
";

/// Returns true if process `pid` has started another one: the target of the first point.
fn has_child(pid: u32) -> bool {
    let children = Path::new("/proc").join(format!("{pid}/task/{pid}/children"));
    fs::read_to_string(children).is_ok_and(|children| !children.trim().is_empty())
}

#[test]
fn run_that_is_told_to_end_keeps_what_it_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let (scenario, out) = (folder.path().join("endless.toml"), folder.path().join("run.json"));
    fs::write(&scenario, SCENARIO).expect("it is writable");
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.args(["lab", "run", "--rounds", "100000", "--out"]).arg(&out).arg(&scenario);
        let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
        let begun = Instant::now();
        while !has_child(running.id()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is measured");
            sleep(Duration::from_millis(5));
        }
        let pid = Pid::from_raw(running.id() as i32).expect("it is not the idle task");
        kill_process(pid, signal).expect("it runs");
        let ended = running.wait_with_output().expect("it ends");
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{signal:?}: {words}");
        assert!(words.contains("the results so far are kept"), "{signal:?}: {words}");
        let run: Run = serde_json::from_str(&fs::read_to_string(&out).expect("it is kept")).expect("it is a run");
        assert!(!run.complete && run.points.len() == 2, "{signal:?}");
        fs::remove_file(&out).expect("it is there");
    }
}
