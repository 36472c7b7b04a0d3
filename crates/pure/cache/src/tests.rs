//! Randomized runs of volumes with all layers: commands, changes of policy, errors and dropped futures, checked
//! during the run and after simulated power cuts.

mod bug_injection;
mod crash;
pub(crate) mod randomized;

use crash::judge_cuts;
use randomized::{Plan, RandomizedRun};

/// Runs `plan` with `seed` and checks it.
pub(crate) fn run_seed(seed: u64, plan: &Plan) -> Result<(), String> {
    let run = RandomizedRun::run(seed, plan).map_err(|what| format!("seed {seed}: {what}"))?;
    if plan.cuts > 0 {
        judge_cuts(&run, seed, plan).map_err(|what| format!("seed {seed}: {what}"))?;
    }
    Ok(())
}

/// Number in an environment variable: `LIVES=1000` tries that many seeds, `SEED=7` only that one.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run_seeds(plan: &Plan, usual: u64) {
    let lives = number("LIVES").unwrap_or(usual);
    let seeds = number("SEED").map_or(0..lives, |seed| seed..seed + 1);
    let wrong: Vec<String> = seeds.filter_map(|seed| run_seed(seed, plan).err()).collect();
    assert!(wrong.is_empty(), "{} seeds: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
}

#[test]
fn volume_returns_written_data_during_all_other_commands() {
    run_seeds(&Plan { cuts: 0, ..Plan::default() }, 24);
}

#[test]
fn volume_returns_written_data_on_disks_with_errors() {
    run_seeds(&Plan { cuts: 0, errors: true, ..Plan::default() }, 24);
}

#[test]
fn volume_survives_power_cuts_at_any_instant() {
    run_seeds(&Plan { cuts: 8, ..Plan::default() }, 4);
}

#[test]
fn volume_survives_power_cuts_also_when_its_log_fails() {
    run_seeds(&Plan { cuts: 8, log_fails: true, ..Plan::default() }, 4);
}

#[test]
fn volume_that_is_written_through_survives_power_cuts() {
    run_seeds(&Plan { cuts: 8, log: false, ..Plan::default() }, 4);
}
