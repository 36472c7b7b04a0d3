//! Planted bugs: each safety mechanism is disabled on purpose, and the tests must detect it.

use crate::bench::Plan;
use crate::crash::{Effort, Judge, plans};
use crate::script::{Becomes, Failures, Kinds};
use crate::{acknowledged_from_log, faults, grow, joining, refusals, returns};
use raid::Level;
use raid::bug_injection::{InjectedBug, inject};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Depth of the search: a few states of many cuts, because many scripts find bugs sooner than all states of one.
const BROAD: Effort = Effort { combinations: 4, random: 3, again: 12, cuts: 4 };

/// Runs a check with the bug planted; returns what it found.
fn with(bug: InjectedBug, check: impl FnOnce() -> Result<(), String>) -> Option<String> {
    inject(Some(bug));
    let found = catch_unwind(AssertUnwindSafe(check));
    inject(None);
    match found {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(_) => Some("an assertion failed".to_owned()),
    }
}

/// Searches this many seeds of the crash states; returns the seed and the failure.
fn by_crash(bug: InjectedBug, plans: &[Plan], seeds: u64) -> Option<String> {
    for seed in 0..seeds {
        for (number, &plan) in plans.iter().enumerate() {
            // Some bugs show only in a cut during a recovery, or where a lane refuses a batch.
            let effort = if bug == InjectedBug::NoRelog { Effort { again: 1, cuts: 12, ..BROAD } } else { BROAD };
            let mut judge = Judge::new(plan, effort, seed);
            let failures = match seed % 2 {
                _ if bug == InjectedBug::LaneErrorIgnored => Failures::Log,
                1 => Failures::Any,
                _ => Failures::Never,
            };
            let kinds = Kinds { failures, rounds: 8, becomes: Becomes::AsItWas };
            if let Some(error) = with(bug, || judge.script(kinds, 1000 + seed)) {
                return Some(format!("seed {seed}, plan {number}, state {}: {error}", judge.states));
            }
        }
    }
    None
}

fn by_faults(bug: InjectedBug) -> Option<String> {
    let levels = [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)];
    let data =
        || levels.iter().find_map(|&(level, members)| with(bug, || faults::judge_all(level, members, true).map(drop)));
    let pages = || levels.iter().find_map(|&(level, members)| with(bug, || faults::judge_pages(level, members)));
    let opening =
        || levels.iter().find_map(|&(level, members)| with(bug, || faults::judge_rotten_opening(level, members)));
    pages().or_else(data).or_else(opening)
}

fn by_returns(bug: InjectedBug) -> Option<String> {
    let (level, members) = (Level::Raid5, 4);
    with(bug, || returns::stale_member(level, members))
        .or_else(|| with(bug, returns::stale_neighbours))
        .or_else(|| with(bug, returns::decided))
        .or_else(|| with(bug, || returns::away_over_a_restart(level, members)))
        .or_else(|| with(bug, || returns::away_and_back(level, members).map(drop)))
}

/// Searches seeds in which the array grows or is reshaped.
fn by_change(bug: InjectedBug, plans: &[Plan], kinds: Kinds, seeds: u64) -> Option<String> {
    for seed in 0..seeds {
        for (number, &plan) in plans.iter().enumerate() {
            let cuts = if kinds.rounds < 8 { 3 } else { 16 };
            let mut judge = Judge::new(plan, Effort { cuts, ..BROAD }, seed);
            let kinds = Kinds { failures: if seed % 2 == 1 { Failures::Any } else { Failures::Never }, ..kinds };
            if let Some(error) = with(bug, || judge.script(kinds, 2000 + seed)) {
                return Some(format!("seed {seed}, plan {number}, state {}: {error}", judge.states));
            }
        }
    }
    None
}

fn found(bug: InjectedBug, seeds: u64) -> Option<String> {
    let all = plans();
    let parity: Vec<Plan> =
        all.iter().copied().filter(|plan| matches!(plan.level, Level::Raid5 | Level::Raid6)).collect();
    let sums: Vec<Plan> = all
        .iter()
        .copied()
        .filter(|plan| {
            !plan.volatile && !plan.behind && plan.atomic && matches!(plan.level, Level::Raid1 | Level::Raid10)
        })
        .collect();
    let volatile: Vec<Plan> = all.iter().copied().filter(|plan| plan.volatile && plan.level != Level::Raid0).collect();
    match bug {
        InjectedBug::NoCompare
        | InjectedBug::HealUnverified
        | InjectedBug::AnyPage
        | InjectedBug::OlderPageCopy
        | InjectedBug::ReplayUnseen => by_faults(bug),
        InjectedBug::NothingMissed | InjectedBug::StaleMember | InjectedBug::BehindBelieved | InjectedBug::AnyEpoch => {
            by_returns(bug)
        }
        InjectedBug::EpochKept => with(bug, returns::batch_that_was_not_found),
        InjectedBug::MirrorsAtOnce | InjectedBug::NoJudge => by_crash(bug, &sums, seeds),
        InjectedBug::NoParityImage | InjectedBug::WrongParity => by_crash(bug, &parity, seeds),
        InjectedBug::GrowthWithoutPages => with(bug, grow::large_growth),
        InjectedBug::TicketHeldWhileLogging => with(bug, refusals::refused_for_good),
        InjectedBug::AnsweredUnseen | InjectedBug::AnsweredUnlocked => {
            with(bug, acknowledged_from_log::answered_and_not_in_place)
        }
        InjectedBug::JoiningWithoutLog => with(bug, || joining::written_as_it_comes(Level::Raid10, 4)),
        InjectedBug::JoinsAmidCheckpoint => with(bug, joining::filled_amid_a_checkpoint),
        InjectedBug::LatecomersForgotten => with(bug, || joining::left_out(Level::Raid6, 5)),
        InjectedBug::CountedBeforePages => with(bug, joining::cut_while_pages_come),
        InjectedBug::WindowBeforeBatch => with(bug, joining::written_when_the_log_is_full),
        InjectedBug::NotDrained => with(bug, grow::slow_read),
        InjectedBug::NoMovingLock => with(bug, grow::slow_read_of_a_block_that_moves),
        InjectedBug::GrowthNotInAnchor => by_change(bug, &grow::grown_plans(), grow::LARGER, seeds),
        // Blocks are moved over ones not moved yet only at the start of a reshape.
        InjectedBug::MovedWithoutImages | InjectedBug::BegunStripeLeft => {
            let plans: Vec<Plan> = grow::reshaped_plans().into_iter().filter(|plan| plan.chunk_blocks > 1).collect();
            let plans: Vec<Plan> = plans.into_iter().map(|plan| Plan { stripes: 3, ..plan }).collect();
            by_change(bug, &plans, Kinds { rounds: 4, ..grow::WIDER }, seeds)
        }
        bug if bug > InjectedBug::LaneErrorIgnored => by_change(bug, &grow::reshaped_plans(), grow::WIDER, seeds),
        _ => by_crash(bug, &volatile, seeds),
    }
}

#[test]
fn every_planted_bug_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let asked = std::env::var("RAID_BUG").ok();
    for bug in
        InjectedBug::ALL.into_iter().filter(|bug| asked.as_ref().is_none_or(|asked| format!("{bug:?}").contains(asked)))
    {
        let found = found(bug, 30);
        println!("{bug:?}: {}", found.as_deref().unwrap_or("NOT FOUND"));
        if found.is_none() {
            missed.push(bug);
        }
    }
    std::panic::set_hook(hook);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
