//! The daemon against a real iSNS server, open-isns: registrations and their removal.

use crate::serve::{Daemon, PATIENCE, ask, cell, end, good, start, wait_until_served};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Server open-isns, stopped when dropped.
struct Server {
    _daemon: Daemon,
    address: String,
}

impl Server {
    /// Starts a server in `dir`, if it is installed.
    fn start(dir: &Path) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let (address, place) = (format!("127.0.0.1:{port}"), dir.display());
        let both = format!(
            "Database = {place}/isns\nPIDFile = {place}/isns.pid\nControlSocket = {place}/isns.ctl\n\
             SourceName = iqn.2026-11.io.blockyard:admin\nSecurity = 0\nSLPRegister = 0\nDefaultDiscoveryDomain = 1\n"
        );
        fs::write(dir.join("isnsd.conf"), format!("{both}BindAddress = {address}\n")).expect("a file");
        let admin = format!("{both}ServerAddress = {address}\n");
        fs::write(dir.join("isnsadm.conf"), admin).expect("a file");
        let daemon =
            Command::new("isnsd").args(["-f", "-c", "isnsd.conf"]).current_dir(dir).stdin(Stdio::null()).spawn();
        match daemon {
            Ok(daemon) => Some(Self { _daemon: Daemon(daemon), address }),
            Err(error) => {
                eprintln!("isnsd is not installed ({error}): nothing is registered with anybody");
                None
            }
        }
    }
}

/// Lists the objects of a kind on the server.
fn listed(dir: &Path, what: &str) -> String {
    let listed =
        Command::new("isnsadm").args(["-c", "isnsadm.conf", "--local", "--list", what]).current_dir(dir).output();
    String::from_utf8(listed.expect("it is installed beside the server").stdout).expect("text")
}

#[track_caller]
fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn targets_are_registered_as_long_as_they_show_something_and_the_daemon_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let Some(server) = Server::start(dir) else { return };
    let mut daemon = start(dir);
    wait_until_served(dir);
    let good = |line: &str| {
        let outcome = ask(dir, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
        outcome.stdout
    };
    good("volume create v 8MiB --ram");
    good("host add web --any");
    good("portal add 127.0.0.2:0 group=7");
    good(&format!("isns set {}", server.address));
    await_that("there is nothing to register", || good("isns show").contains("no target has mapped volumes"));
    assert_eq!(listed(dir, "nodes"), "");

    good("present v web --group 7");
    let (target, other) = ("iqn.2026-11.io.blockyard:test.", "tag = 7");
    await_that("the target is registered", || listed(dir, "nodes").contains(target));
    let groups = listed(dir, "portal-groups");
    assert!(groups.contains("127.0.0.2") && groups.contains(other), "{groups}");
    let portals = listed(dir, "portals");
    assert!(portals.contains("127.0.0.2") && !portals.contains("127.0.0.1"), "nothing is shown there: {portals}");
    assert!(listed(dir, "entities").contains("\"test."), "{}", listed(dir, "entities"));
    assert!(good("isns show").contains("registered"));
    assert!(good("event list").contains("BY-E407"));

    good("unpresent v web");
    await_that("a target that shows nothing is not registered", || listed(dir, "nodes").is_empty());
    good("present v web");
    await_that("it is again", || listed(dir, "nodes").contains(target));
    good("isns off");
    await_that("nothing is registered", || listed(dir, "entities").is_empty());
    good(&format!("isns set {}", server.address));
    await_that("it is once more", || listed(dir, "nodes").contains(target));
    assert!(end(&mut daemon, Signal::TERM).success());
    assert_eq!(listed(dir, "entities"), "", "the daemon takes leave");

    let mut daemon = start(dir);
    await_that("it comes back with the daemon", || listed(dir, "nodes").contains(target));
    good("isns set 127.0.0.1:9");
    await_that("nobody is there", || good("isns show").contains("cannot be reached"));
    assert!(good("event list").contains("BY-E408"));
    assert_eq!(listed(dir, "entities"), "", "the one before forgets us");
    assert!(end(&mut daemon, Signal::TERM).success());
}

/// Returns what `doctor` reports about target names, as grades and sentences.
fn names_found(dir: &Path) -> Vec<(String, String)> {
    let told = ask(dir, &["doctor", "-o", "json"]).stdout;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let findings = told["findings"].as_array().expect("findings").clone();
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let of_names = findings.iter().filter(|one| text(&one["message"]).contains("target name") || is_twin(one));
    return of_names.map(|one| (text(&one["grade"]), text(&one["message"]))).collect();
    fn is_twin(one: &serde_json::Value) -> bool {
        one["message"].as_str().is_some_and(|sentence| sentence.starts_with("registered by another array"))
    }
}

#[test]
fn target_name_that_another_array_has_registered_is_found() {
    let (first, second) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (first, second) = (first.path(), second.path());
    let Some(server) = Server::start(first) else { return };
    let (twin, alone) = ("iqn.2026-11.com.example:twin", "iqn.2026-11.com.example:alone");
    let show = |dir: &Path, target: &str, iqn: &str, volume: &str| {
        for line in [
            format!("volume create {volume} 8MiB --ram"),
            format!("target add {target} --iqn {iqn}"),
            format!("present {volume} web --target {target}"),
        ] {
            good(dir, &line);
        }
    };
    let mut daemons = [first, second].map(start);
    for dir in [first, second] {
        wait_until_served(dir);
        good(dir, "host add web --any");
        show(dir, "twin", twin, "v");
    }
    let portal = cell(first, "portal", 0);
    for dir in [first, second] {
        good(dir, &format!("isns set {}", server.address));
        await_that("the server is asked", || !names_found(dir).is_empty());
    }
    let grade = |grade: &str, dir: &Path| names_found(dir).iter().all(|(found, _)| found == grade);
    assert!(grade("good", first), "who registered first is alone there: {:?}", names_found(first));
    let found = names_found(second);
    let place = format!("has the same name at {portal} (entity \"test.");
    let bad = found.iter().find(|(grade, _)| grade == "bad").expect("a finding");
    assert!(bad.1.contains(&place) && bad.1.ends_with("hosts treat both as one target and corrupt data"), "{found:?}");
    let status = good(second, "status");
    assert!(status.contains("blockyard target add"), "what to do: {status}");
    assert!(good(second, "event list").contains("BY-E426"));

    // Under a unique name it is registered.
    show(second, "alone", alone, "w");
    good(second, "unpresent v web --target twin");
    await_that("nothing is wrong any more", || grade("good", second));
    assert!(good(second, "event list").contains("BY-E427"));
    await_that("it is registered", || listed(first, "nodes").contains(alone));
    assert!(listed(first, "nodes").contains(twin), "and the other one still");
    for daemon in &mut daemons {
        assert!(end(daemon, Signal::TERM).success());
    }
}
