//! Block devices of this machine, as the real daemon sees them.

use crate::serve::{ask, end, start, wait_until_served};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Loop device over a file, detached at the end.
struct Loop(String);

impl Loop {
    /// Creates the device; none without the permission to do so, which only root has.
    fn over(file: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let path = String::from_utf8(made.stdout).expect("text").trim().to_owned();
        made.status.success().then_some(Self(path))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn state(dir: &Path, device: &str) -> (String, String) {
    let listed = ask(dir, &["disk", "find", "-o", "json"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let answer: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let devices = answer["block_devices"].as_array().expect("a list");
    let found = devices.iter().find(|found| found["device"] == device);
    let found = found.unwrap_or_else(|| panic!("{device} is not in {answer}"));
    (found["state"].as_str().unwrap_or("").to_owned(), found["reason"].as_str().unwrap_or("").to_owned())
}

#[test]
fn loop_device_is_found_free_then_held_then_with_something_on_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("image");
    let file = File::create(&image).expect("makes");
    file.set_len(128 << 20).expect("grows");
    let Some(device) = Loop::over(&image) else {
        eprintln!("not shown: this machine gives us no loop device");
        return;
    };
    let mut daemon = start(dir.path());
    wait_until_served(dir.path());
    assert_eq!(state(dir.path(), &device.0), ("free".to_owned(), String::new()));
    // Without `O_CREAT`, `O_EXCL` on a block device means exclusive use.
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL;
    let held = rustix::fs::open(device.0.as_str(), flags, rustix::fs::Mode::empty()).expect("opens");
    assert_eq!(state(dir.path(), &device.0).0, "in_use");
    drop(held);
    File::options().write(true).open(&device.0).expect("opens").write_all_at(b"XFSB", 0).expect("writes");
    // Another daemon of these tests that looks at all devices holds each for a moment.
    let found = (0..50).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Some(state(dir.path(), &device.0)).filter(|(state, _)| state != "in_use")
    });
    assert_eq!(found, Some(("has_data".to_owned(), "it holds an XFS file system".to_owned())));
    end(&mut daemon, Signal::TERM);
}

#[test]
fn device_that_this_machine_runs_from_is_not_free() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut daemon = start(dir.path());
    wait_until_served(dir.path());
    let listed = ask(dir.path(), &["disk", "find", "-o", "json"]);
    let answer: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("reads");
    for device in answer["block_devices"].as_array().expect("a list") {
        let path = device["device"].as_str().expect("a path");
        if mounts.contains(&format!(" {path} ")) {
            assert_eq!(device["state"], "in_use", "{device}");
        }
    }
    end(&mut daemon, Signal::TERM);
}
