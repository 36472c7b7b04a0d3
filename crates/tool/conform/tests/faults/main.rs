//! Tests of the `conform` checks on Blockyard's own target behind a proxy that injects faults: each fault is detected
//! by the intended check, and without a fault nothing is reported.
//!
//! Each check has a unit and an initiator of its own, so that many run at once: most of their time is listening to
//! silence.

// The futures of a command are nested as deeply as its layers.
#![recursion_limit = "256"]

mod fault;
mod limits;
mod parts;
mod pdu;
mod proxy;
mod ready;
mod table;
mod target;

use conform::{CHECKS, Check, TestTarget, Verdict};
use fault::Fault;
use iscsi::IscsiName;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use table::{ALLOWED, UNASKED, faults};

/// Checks that run at once.
const WORKERS: usize = 12;
/// Number of units. A fault may leave its unit in a wrong state, so each has its own; checks without a fault share the
/// rest.
const LUNS: u16 = 255;
const LUNS_OF_FAULTS: u16 = 200;
const LUNS_OF_READY: u16 = 230;
const LUNS_OF_UNASKED: u16 = 242;
const LUNS_OF_HEXADECIMAL: u16 = 248;
const LUNS_OF_LIMITS: u16 = 250;
const LUNS_OF_UNTRIED: u16 = 253;
/// Response timeout for answers that do not come.
const SHORT: Duration = Duration::from_secs(3);

/// Listening time for unsolicited PDUs.
const LISTEN: Duration = Duration::from_secs(2);

/// Checks of messages that our target does not send by itself; the proxy sends them, with and without a fault.
const UNPROVOKED: [&str; 4] = ["login.redirect", "messages.ping", "messages.logout-asked", "messages.logout-overdue"];

fn portal() -> std::net::SocketAddr {
    static PORTAL: OnceLock<std::net::SocketAddr> = OnceLock::new();
    *PORTAL.get_or_init(|| target::start(LUNS))
}

/// Runs each check against a target with its fault, on a unit each, and returns the verdicts.
fn verdicts(tries: &[(&Fault, &Check)], patience: Duration, luns: Range<u16>) -> Vec<Verdict> {
    let free: Mutex<VecDeque<u16>> = Mutex::new(luns.clone().collect());
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let portal = portal();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let Some((fault, check)) = tries.get(turn) else { break };
                    let lun = free.lock().expect("nobody panics").pop_front().expect("there are enough");
                    let url = format!("iscsi://{}/{}/{lun}", proxy::start(portal, **fault), target::IQN);
                    let mut aim: TestTarget = url.parse().expect("a URL");
                    aim.initiator = IscsiName::parse(&format!("iqn.2026-11.io.blockyard:from{}.{turn}", luns.start))
                        .expect("a name");
                    aim.patience = patience;
                    aim.listen = if fault.says_unasked() { LISTEN } else { Duration::ZERO };
                    let verdict = check.run(&aim);
                    free.lock().expect("nobody panics").push_back(lun);
                    let key = (fault.name, check.name);
                    found.lock().expect("nobody panics").insert(key, verdict);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("nobody panics");
    tries.iter().map(|(fault, check)| found.remove(&(fault.name, check.name)).expect("it was tried")).collect()
}

fn check_named(name: &str) -> &'static Check {
    CHECKS.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("there is no check {name}"))
}

#[test]
fn every_planted_fault_is_found_by_its_check() {
    let tries: Vec<_> = faults().map(|fault| (fault, check_named(fault.found_by))).collect();
    let missed: Vec<String> = tries
        .iter()
        .zip(verdicts(&tries, SHORT, 0..LUNS_OF_FAULTS))
        .filter(|((fault, _), verdict)| !matches!(verdict, Verdict::Failed(how) if how.contains(fault.says_that)))
        .map(|((fault, check), verdict)| format!("{}: {} says {verdict:?}", fault.name, check.name))
        .collect();
    assert!(missed.is_empty(), "{} of {} faults:\n{}", missed.len(), tries.len(), missed.join("\n"));
    println!("{} faults planted, all found", tries.len());
}

#[test]
fn nothing_is_reported_of_a_target_without_fault() {
    let tries: Vec<_> = ALLOWED.iter().flat_map(|kind| CHECKS.iter().map(move |check| (kind, check))).collect();
    let reported: Vec<String> = tries
        .iter()
        .zip(verdicts(&tries, Duration::from_secs(20), LUNS_OF_FAULTS..LUNS_OF_READY))
        .filter(|((_, check), verdict)| match verdict {
            Verdict::Passed => false,
            Verdict::Failed(_) => true,
            Verdict::Skipped(_) => !UNPROVOKED.contains(&check.name),
        })
        .map(|((kind, check), verdict)| format!("{}: {} says {verdict:?}", kind.name, check.name))
        .collect();
    assert!(reported.is_empty(), "{} of {} tries:\n{}", reported.len(), tries.len(), reported.join("\n"));
}

#[test]
fn nothing_is_reported_of_what_a_target_says_unasked_as_it_must() {
    let tries: Vec<_> = UNASKED.iter().map(|kind| (kind, check_named(kind.found_by))).collect();
    let reported: Vec<String> = tries
        .iter()
        .zip(verdicts(&tries, Duration::from_secs(20), LUNS_OF_UNASKED..LUNS_OF_HEXADECIMAL))
        .filter(|(_, verdict)| !matches!(verdict, Verdict::Passed))
        .map(|((kind, check), verdict)| format!("{}: {} says {verdict:?}", kind.name, check.name))
        .collect();
    assert!(reported.is_empty(), "{}", reported.join("\n"));
    assert_eq!(tries.iter().map(|(_, check)| check.name).collect::<BTreeSet<_>>(), BTreeSet::from(UNPROVOKED));
}

#[test]
fn every_check_has_a_fault_that_it_finds() {
    let names: BTreeSet<&str> = faults().map(|fault| fault.name).collect();
    assert_eq!(names.len(), faults().count(), "each fault has a name of its own");
    assert!((40..=usize::from(LUNS_OF_FAULTS)).contains(&names.len()));
    let planted: BTreeSet<&str> = faults().map(|fault| fault.found_by).collect();
    let without: Vec<&str> = CHECKS.iter().map(|check| check.name).filter(|name| !planted.contains(name)).collect();
    assert!(without.is_empty(), "no fault is planted for {without:?}");
}
