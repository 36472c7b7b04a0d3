//! The command line against a remote array: over HTTPS, with a token.

use crate::lab::{Outcome, run_in};
use crate::serve::{ask, end, start_with, wait_until_served};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn good(dir: &Path, arguments: &[&str]) -> String {
    let outcome = ask(dir, arguments);
    assert_eq!(outcome.code, 0, "{arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

#[test]
fn command_line_asks_an_array_elsewhere_that_it_believes_with_a_token_that_is_good() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start_with(dir, "test", &["--web", "127.0.0.1:0"]);
    wait_until_served(dir);
    let web =
        || serde_json::from_str::<Value>(&good(dir, &["web", "show", "-o", "json"])).expect("JSON")["web"].clone();
    let begun = std::time::Instant::now();
    while web()["url"].is_null() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "it does not listen");
    }
    let url = web()["url"].as_str().expect("a URL").to_owned();
    let pin = web()["certificate"]["pin"].as_str().expect("a pin").to_owned();
    fs::write(dir.join("token"), good(dir, &["token", "create", "mine", "--role", "operator"])).expect("writes");
    let elsewhere = |arguments: &[&str], trust: &[&str]| -> Outcome {
        let way = ["--url", url.as_str(), "--token-file", "token"];
        run_in(dir.to_path_buf(), &[&way, trust, arguments].concat(), &[])
    };
    let pinned = ["--pin", pin.as_str()];
    let outcome = elsewhere(&["volume", "create", "scratch", "8MiB", "--ram"], &pinned);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(good(dir, &["volume", "list", "--no-headers"]).starts_with("scratch\t"));
    assert!(elsewhere(&["status", "-q"], &pinned).stdout.contains("All good"));
    let refused = elsewhere(&["volume", "delete", "scratch", "--yes"], &pinned);
    assert!(refused.code == 5 && refused.stderr.contains("--scope destroy"), "{}", refused.stderr);
    let refused = elsewhere(&["user", "list"], &pinned);
    assert!(refused.code == 5 && refused.stderr.contains("role admin"), "{}", refused.stderr);
    let certificate = dir.join("state/web/certificate.pem").to_string_lossy().into_owned();
    let outcome = elsewhere(&["volume", "list"], &["--ca-file", &certificate]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let other = format!("sha256:{}", "0".repeat(64));
    let stranger = elsewhere(&["volume", "list"], &["--pin", &other]);
    assert!(stranger.code == 6 && stranger.stderr.contains("not the pinned one"), "{}", stranger.stderr);
    fs::write(dir.join("token"), "blockyard_wrong\n").expect("writes");
    let refused = elsewhere(&["volume", "list"], &pinned);
    assert!(refused.code == 5 && refused.stderr.contains("BY-1841"), "{}", refused.stderr);
    let plain = ["--url", "http://127.0.0.1:1", "--token-file", "token", "status"];
    assert_eq!(run_in(dir.to_path_buf(), &plain, &[]).code, 2, "nothing goes in the clear");
    let records = good(dir, &["audit", "list", "--no-headers", "--search", "token mine"]);
    assert_eq!(records.lines().count(), 2, "what it has changed, and what it might not: {records}");
    assert!(good(dir, &["audit", "verify"]).contains(" verified; "), "the chain is whole");
    good(dir, &["audit", "export", "--to", "audit.jsonl"]);
    let exported = fs::read_to_string(dir.join("audit.jsonl")).expect("reads");
    assert_eq!(exported.lines().count(), 7, "and the token itself, intents, and this reading: {exported}");
    end(&mut daemon, Signal::TERM);
}
