//! Each planted bug is caught; a checker that misses one proves nothing.

use super::life::Plan;
use super::live;
use crate::sabotage::{Sabotage, plant};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The first seed of a few plans that shows that something is broken.
fn first_caught(seeds: u64) -> Option<(u64, String)> {
    let mut cases = (0..seeds).flat_map(|seed| [(seed, false), (seed, true)]);
    cases.find_map(|(seed, log_fails)| {
        let plan = Plan { log_fails, ..Plan::default() };
        match catch_unwind(AssertUnwindSafe(|| live(seed, &plan))) {
            Ok(Ok(())) => None,
            Ok(Err(what)) => Some((seed, what)),
            Err(_) => Some((seed, "an assertion of the code itself".to_owned())),
        }
    })
}

fn assert_caught(bugs: &[Sabotage]) {
    for &bug in bugs {
        plant(Some(bug));
        let caught = first_caught(400);
        plant(None);
        let (seed, what) = caught.unwrap_or_else(|| panic!("{bug:?} is not caught"));
        println!("{bug:?}: seed {seed}: {}", what.chars().take(120).collect::<String>());
    }
}

#[test]
fn planted_bugs_are_all_caught() {
    assert_caught(&Sabotage::ALL);
}
