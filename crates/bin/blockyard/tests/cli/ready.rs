//! `blockyard ready` with targets that announce commands that they refuse.

use crate::lab::run_in;
use ::lab::target::{Backing, Kind, Setup, start};

/// tgt reports COMPARE AND WRITE and PREEMPT AND ABORT as supported, and refuses both.
#[test]
fn target_that_lists_what_it_refuses_is_not_ready() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: tgtd needs root");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(dir.path().to_owned(), 1, &Backing::Thin).expect("a free port");
    let tgt = start(Kind::Tgt, &setup).expect("tgtd runs");
    let url = tgt.units()[0].to_string();
    let row = |purpose: &str, need: &str, more: &[&str]| {
        let arguments = [&["ready", "--for", purpose, &url, "--no-headers"][..], more].concat();
        let told = run_in(dir.path().to_owned(), &arguments, &[]);
        assert_eq!(told.code, 1, "{}{}", told.stdout, told.stderr);
        let row = told.stdout.lines().find(|line| line.split('\t').nth(1) == Some(need)).map(str::to_owned);
        row.unwrap_or_else(|| panic!("no {need} in {}", told.stdout))
    };
    for more in [&[][..], &["--scratch", "3"]] {
        let ats = row("vmware", "vmfs.ats", more);
        assert!(
            ats.starts_with("MISSING") && ats.contains("lists COMPARE AND WRITE and refuses it: sense 5/20/00"),
            "{ats}"
        );
    }
    for purpose in ["windows-cluster", "linux-ha"] {
        let actions = row(purpose, "reservations.actions", &[]);
        assert!(
            actions.starts_with("MISSING") && actions.contains("lists PREEMPT AND ABORT and refuses it"),
            "{actions}"
        );
    }
    let untried = row("vmware", "vmfs.write-same", &[]);
    assert!(untried.starts_with("unknown") && untried.contains("it was not tried"), "{untried}");
    let tried = row("vmware", "vmfs.write-same", &["--scratch", "3"]);
    assert!(tried.starts_with("ready"), "{tried}");
}
