//! Planted bugs: each must be detected, because a checker that misses one proves nothing.

use super::randomized::{Plan, Repeated};
use super::run_seed;
use crate::bug_injection::{InjectedBug, inject};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds tried for each plan.
const SEEDS: u64 = 400;

/// Plan that shows the bug soonest: some need no power cut, which makes a run a hundred times shorter.
fn plan_for(bug: InjectedBug) -> Plan {
    use InjectedBug::{
        DirtyEvicted, DiscardKeepsCache, DiscardOvertaken, FetchRacesWrite, FlushForgetsOverwritten, GuardNotCompared,
        JoinSpoiledFetch, LogFailureNotRecorded, MergeLosesPiece, SwitchKeepsRecords,
    };
    let plan = Plan { cuts: 4, ..Plan::default() };
    match bug {
        FetchRacesWrite | JoinSpoiledFetch | GuardNotCompared | DiscardKeepsCache | MergeLosesPiece | DirtyEvicted => {
            Plan { cuts: 0, ..plan }
        }
        DiscardOvertaken => Plan { repeated: Some(Repeated::Discard), cuts: 24, ..plan },
        FlushForgetsOverwritten => Plan { repeated: Some(Repeated::Flush), ..plan },
        SwitchKeepsRecords => Plan { repeated: Some(Repeated::ChangePolicy), ..plan },
        LogFailureNotRecorded => Plan { log_fails: true, ..plan },
        _ => plan,
    }
}

/// First seed that fails, with its message.
fn first_caught(plan: &Plan) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| run_seed(seed, plan))) {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some((seed, what)),
        Err(_) => Some((seed, "an assertion of the code itself".to_owned())),
    })
}

#[test]
fn planted_bugs_are_all_caught_and_their_seeds_pass_without_them() {
    for bug in InjectedBug::ALL {
        let plan = plan_for(bug);
        inject(Some(bug));
        let caught = first_caught(&plan);
        inject(None);
        let (seed, what) = caught.unwrap_or_else(|| panic!("{bug:?} is not caught"));
        println!("{bug:?}: seed {seed}: {}", what.chars().take(120).collect::<String>());
        assert_eq!(run_seed(seed, &plan), Ok(()), "{bug:?}: {what}");
    }
}
