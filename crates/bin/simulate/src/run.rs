//! Run: a world from a seed, a scenario in it, and the verdict.

use crate::planted::{BugState, InjectedBug};
use crate::profile::Profile;
use crate::stage::{CheckResult, Stage};
use crate::violation_log::ViolationLog;
use futures_util::future::{Either, select};
use sim::Sim;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

/// Simulated time after which a run counts as hung.
const TIME_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Digest of the run; equal for equal runs.
    pub digest: u64,
    /// Number of commands that ended GOOD.
    pub commands: u64,
    /// Number of times that a planted bug took effect.
    pub struck: u64,
    /// First violation, if any.
    pub wrong: Option<String>,
}

/// Runs `profile` with `seed`, and with `bug` planted into the data plane.
#[must_use]
pub fn run(profile: Profile, seed: u64, bug: Option<InjectedBug>) -> Outcome {
    caught(seed, bug, async move |stage| profile.play(stage).await)
}

/// Runs `scenario` in the world of `seed`; a panic counts as a violation.
pub(crate) fn caught(
    seed: u64,
    bug: Option<InjectedBug>,
    scenario: impl AsyncFnOnce(&Stage) -> CheckResult<()> + 'static,
) -> Outcome {
    // Nothing of the world survives the panic, so no broken invariant can be seen.
    let played = catch_unwind(AssertUnwindSafe(|| play(seed, bug, scenario)));
    // Without a digest: the run did not come to its end.
    played.unwrap_or_else(|panic| Outcome { digest: 0, commands: 0, struck: 0, wrong: Some(words_of(&*panic)) })
}

/// Runs `scenario` in the world of `seed`.
pub(crate) fn play(
    seed: u64,
    bug: Option<InjectedBug>,
    scenario: impl AsyncFnOnce(&Stage) -> CheckResult<()> + 'static,
) -> Outcome {
    Sim::new(seed).run(async move |sim| {
        sim.set_time_limit(TIME_LIMIT);
        let judge = ViolationLog::default();
        let plant = BugState::new(bug, &sim);
        let stage = Stage::new(&sim, &judge, &plant);
        let verdict = {
            let scenario = pin!(scenario(&stage));
            let failure = pin!(judge.failed());
            // A violation ends the run even while the scenario waits.
            match select(failure, scenario).await {
                Either::Left((why, _)) => Some(why),
                Either::Right((played, _)) => played.err(),
            }
        };
        Outcome { digest: sim.digest(), commands: stage.done(), struck: plant.hit_count(), wrong: verdict }
    })
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", words.unwrap_or("without words"))
}

#[cfg(test)]
mod tests;
