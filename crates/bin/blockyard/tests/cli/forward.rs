//! Audit log forwarded over TLS to a syslog server that is unavailable for some time.

use crate::alerts::servers::{proof, secured};
use crate::serve::{PATIENCE, ask, end, start, wait_until_served};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Reads frames of one connection until it ends, or `most` have arrived.
fn frames(stream: impl Read, most: usize, heard: &Mutex<Vec<String>>) {
    let mut stream = BufReader::new(stream);
    for _ in 0..most {
        let mut length = Vec::new();
        if !matches!(stream.read_until(b' ', &mut length), Ok(1..)) {
            return;
        }
        let length = String::from_utf8(length).expect("text").trim().parse::<usize>().expect("a length");
        let mut message = vec![0; length];
        if stream.read_exact(&mut message).is_err() {
            return;
        }
        heard.lock().expect("a lock").push(String::from_utf8(message).expect("text"));
    }
}

#[test]
fn audit_is_forwarded_whole_and_in_order_though_the_server_goes_away_and_the_daemon_starts_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, (config, pin)) = (listener.local_addr().expect("an address"), proof());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let messages = heard.clone();
    std::thread::spawn(move || {
        // The first connection breaks off in between.
        for (stream, most) in listener.incoming().zip([2].into_iter().chain(std::iter::repeat(usize::MAX))) {
            frames(secured(stream.expect("a connection"), &config), most, &messages);
        }
    });
    let good = |line: &str| {
        let outcome = ask(dir, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
        outcome.stdout
    };
    let numbers = || -> Vec<u64> {
        let heard = heard.lock().expect("a lock");
        let number = |message: &String| {
            let rest = message.strip_prefix("<109>1 20").expect("facility 13, severity 5, version 1");
            let (head, record) = rest.split_once(" - audit - ").expect("an application and no structured data");
            assert!(head.ends_with("Z test blockyard"), "{head}");
            serde_json::from_str::<Value>(record).expect("the record")["number"].as_u64().expect("a number")
        };
        heard.iter().map(number).collect()
    };
    let all_of = |last: u64| (1..=last).all(|number| numbers().contains(&number));
    let await_all = |last: u64| {
        let begun = Instant::now();
        while !all_of(last) {
            assert!(begun.elapsed() < PATIENCE, "1 to {last} were to come: {:?}", numbers());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let mut daemon = start(dir);
    wait_until_served(dir);
    for volume in ["a", "b", "c", "d"] {
        good(&format!("volume create {volume} 8MiB --ram"));
    }
    good(&format!("audit forward syslog+tls://{address} --server-pin {pin}"));
    await_all(10);
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut daemon = start(dir);
    wait_until_served(dir);
    good("volume create e 8MiB --ram");
    await_all(12);
    let numbers = numbers();
    let mut firsts = Vec::new();
    numbers.iter().for_each(|number| {
        if !firsts.contains(number) {
            firsts.push(*number)
        }
    });
    assert_eq!(firsts, (1..=12).collect::<Vec<u64>>(), "each comes first in its turn: {numbers:?}");
    let begun = Instant::now();
    while !good("audit forward show").contains("sent up to record\t12") {
        assert!(begun.elapsed() < PATIENCE, "it counts as said: {}", good("audit forward show"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let refused = ask(dir, &["audit", "forward", "syslog+tcp://10.0.0.1"]);
    assert!(refused.code != 0 && refused.stderr.contains("unencrypted syslog"), "{}", refused.stderr);
    good("audit forward off");
    assert!(end(&mut daemon, Signal::TERM).success());
}
