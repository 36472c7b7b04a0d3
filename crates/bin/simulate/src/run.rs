//! One run: a world from a seed, a scenario in it, and the verdict.

use crate::judge::Judge;
use crate::profile::Profile;
use crate::stage::Stage;
use futures_util::future::{Either, select};
use sim::Sim;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

/// A run that is not over after so much of its time never will be.
const TIME_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What is broken on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    Nothing,
    /// Disks acknowledge flushes that they do not do.
    LostFlushes,
    /// Disks acknowledge some writes that they do not do.
    LostWrites,
    /// Some writes land elsewhere on their disk.
    MisdirectedWrites,
    /// Some bits of what is read have flipped.
    BitRot,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Equal for equal runs.
    pub digest: u64,
    /// Commands that were answered with GOOD.
    pub commands: u64,
    /// What was wrong, if anything was.
    pub wrong: Option<String>,
}

/// Plays the run of `profile` and `seed`, in which `sabotage` is broken.
#[must_use]
pub fn run(profile: Profile, seed: u64, sabotage: Sabotage) -> Outcome {
    let played = catch_unwind(AssertUnwindSafe(|| play(profile, seed, sabotage)));
    played.unwrap_or_else(|panic| Outcome { digest: 0, commands: 0, wrong: Some(words_of(&*panic)) })
}

fn play(profile: Profile, seed: u64, sabotage: Sabotage) -> Outcome {
    Sim::new(seed).run(async move |sim| {
        sim.set_time_limit(TIME_LIMIT);
        let judge = Judge::default();
        let stage = Stage::new(&sim, &judge);
        let verdict = {
            let scenario = pin!(profile.play(&stage, sabotage));
            let failure = pin!(judge.failed());
            match select(failure, scenario).await {
                Either::Left((why, _)) => Some(why),
                Either::Right((played, _)) => played.err(),
            }
        };
        Outcome { digest: sim.digest(), commands: stage.done(), wrong: verdict }
    })
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", words.unwrap_or("without words"))
}
