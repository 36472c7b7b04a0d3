//! Alert delivery after the loss of a disk: a real daemon, and receivers that are real servers.

pub(crate) mod servers;

use crate::serve::{PATIENCE, ask, ask_line, end, good, start, wait_until_served};
use rustix::process::Signal;
use serde_json::Value;
use servers::{Mailbox, Webhook};
use std::fs;
use std::time::{Duration, Instant};

const SECRET: &str = "sixteen bytes of";

#[track_caller]
fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits long enough for a second message to arrive, if there were one.
fn wait_for_more() {
    std::thread::sleep(Duration::from_secs(5));
}

fn states(message: &Value) -> Vec<(&str, &str)> {
    let alerts = message["alerts"].as_array().expect("a list");
    alerts
        .iter()
        .map(|alert| (alert["state"].as_str().expect("a state"), alert["code"].as_str().expect("a code")))
        .collect()
}

#[test]
fn lost_disk_is_told_once_and_its_replacement_once_though_a_receiver_is_away_and_the_daemon_starts_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (webhook, mail) = (Webhook::start(2), Mailbox::start(Some(("array1", "pass word"))));
    let mut daemon = start(dir);
    wait_until_served(dir);
    for disk in ["d0", "d1", "d2"] {
        good(dir, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    fs::write(dir.join("secret"), SECRET).expect("writes");
    fs::write(dir.join("password"), "pass word\n").expect("writes");
    let (url, pin) = (&webhook.url, &webhook.pin);
    good(dir, &format!("alert add desk --webhook {url} --server-pin {pin} --secret-file secret --gather 1s"));
    let (smtp, pin) = (&mail.address, &mail.pin);
    let login = "--user array1 --password-file password";
    // The usual gathering time, so that the webhook works again before its failure is reported.
    good(dir, &format!("alert add ops --mail a@example.com --smtp {smtp} --server-pin {pin} {login} --gather 10s"));

    good(dir, "disk fail d1");
    await_that("the webhook is tried until it answers", || webhook.taken().len() == 1);
    await_that("a mail comes", || mail.taken().len() == 1);
    wait_for_more();
    let (asked, taken) = (webhook.asked(), webhook.taken());
    assert_eq!((asked, taken.len(), mail.taken().len()), (3, 1, 1), "{taken:?}");
    assert_eq!(states(&taken[0]), [("raised", "BY-E302")]);
    let alert = &taken[0]["alerts"][0];
    assert_eq!((&alert["subject"]["name"], &alert["severity"]), (&"tank".into(), &"warning".into()));
    assert!(alert["details"][0].as_str().expect("text").contains("disk d1 ("), "{alert}");
    assert_eq!(alert["action"], "replace the lost disk with blockyard disk replace d1 NEW");
    let (text, path) = (mail.taken()[0].clone(), dir.join("d1.img"));
    let path = path.to_str().expect("text");
    for wanted in ["Subject: [test] warning: pool tank is degraded", "blockyard disk replace d1 NEW", "disk d1 ("] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(text.replace("=\r\n", "").contains(path), "{path}: {text}");
    assert!(good(dir, "alert active --no-headers").contains("pool tank\tdesk,ops\tpool tank is degraded"));
    let listed = good(dir, "alert list -o json");
    assert!(!listed.contains("pass word") && !listed.contains(SECRET) && listed.contains("\"has_secret\": true"));
    let files = fs::read_dir(dir.join("state/state")).expect("a folder");
    let state: Vec<u8> = files.flat_map(|file| fs::read(file.expect("an entry").path()).expect("reads")).collect();
    for secret in [SECRET.to_owned(), "pass word".to_owned(), control::to_hex(SECRET.as_bytes())] {
        assert!(!state.windows(secret.len()).any(|at| at == secret.as_bytes()), "{secret} lies in the state");
    }

    assert!(end(&mut daemon, Signal::TERM).success());
    let mut daemon = start(dir);
    wait_until_served(dir);
    wait_for_more();
    assert_eq!((webhook.taken().len(), mail.taken().len()), (1, 1), "a restart tells nothing twice");

    good(dir, "disk replace d1 d2 --wait");
    await_that("both hear that it is over", || webhook.taken().len() == 2 && mail.taken().len() == 2);
    wait_for_more();
    assert_eq!((webhook.taken().len(), mail.taken().len()), (2, 2), "{:?}", webhook.taken());
    assert_eq!(states(&webhook.taken()[1]), [("resolved", "BY-E302")]);
    assert_eq!(webhook.taken()[1]["alerts"][0]["number"], alert["number"]);
    assert!(mail.taken()[1].contains("Subject: [test] resolved: pool tank"), "{}", mail.taken()[1]);
    assert_eq!(good(dir, "alert active"), "no active alerts\n");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn receiver_that_cannot_be_told_is_said_why_and_is_an_event_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mail = Mailbox::start(None);
    let mut daemon = start(dir);
    wait_until_served(dir);
    let plain = format!("alert add plain --mail a@example.com --smtp {} --tls none", mail.address);
    good(dir, &plain);
    let said = good(dir, "alert test plain");
    assert!(said.contains("accepted the test message: 250 2.0.0 taken"), "{said}");
    assert!(mail.taken()[0].contains("no action needed"), "{:?}", mail.taken());
    let wrong = format!("sha256:{}", "0".repeat(64));
    good(dir, &format!("alert add other --mail a@example.com --smtp {} --server-pin {wrong}", mail.address));
    for _ in 0..2 {
        let refused = ask(dir, &["alert", "test", "other"]);
        assert!(refused.code == 1 && refused.stderr.contains("not the pinned one"), "{}", refused.stderr);
    }
    good(dir, "alert add nobody --webhook http://127.0.0.1:9/");
    assert!(ask(dir, &["alert", "test", "nobody"]).stderr.contains("cannot be reached"));
    let events = good(dir, "event list --no-headers");
    assert_eq!(events.matches("receiver other is not receiving alerts").count(), 1, "{events}");
    let refused = |line: &str, wanted: &str| {
        let outcome = ask_line(dir, line);
        assert!(outcome.code != 0 && outcome.stderr.contains(wanted), "{line}: {}", outcome.stderr);
    };
    refused("alert add far --webhook http://10.0.0.1/", "unencrypted webhooks are allowed only to this machine");
    refused("alert add far --mail x --smtp mail", "\"x\" is not a mail address");
    refused("alert add far --mail x@y --smtp mail --user me", "user and password must be given together");
    refused("alert add plain --webhook https://h/", "receiver plain already exists");
    refused("alert set plain --webhook https://h/", "a mail receiver has no URL, format or secret");
    refused("alert test far", "receiver far does not exist");
    let told = good(dir, "alert list --no-headers");
    assert!(told.contains("plain\tmail to a@example.com"), "{told}");
    assert!(end(&mut daemon, Signal::TERM).success());
}
