//! How fast a group is repaired: between two steps, how long to leave the disks to the hosts.
//!
//! Pure: it is told what the last step took and what hosts met meanwhile, and says how long to wait.

use crate::unit::HostLoad;
use model::{RepairMode, RepairPolicy};
use shard::Time;
use std::time::Duration;

/// Hosts are at work for so long after their last command.
const BUSY: Duration = Duration::from_secs(1);
/// While hosts are at work, `balanced` waits so many times as long as a step took.
const YIELD: u32 = 2;
/// What `idle` does all the same, in bytes per second.
const TRICKLE: f64 = (1 << 20) as f64;
/// How often the rate is judged by what hosts met.
const JUDGED_EVERY: Duration = Duration::from_millis(100);
/// What is left of the rate when hosts have waited too long, and what is added when they have not.
const BACK_OFF: f64 = 0.5;
const ADVANCE: f64 = 1.1;
/// Above this, in bytes per second, no bound is needed any more.
const UNBOUNDED: f64 = 1e11;
/// A little more than what a promise needs, so that it is not kept by a hair.
const MARGIN: f64 = 1.05;
/// For how long a promise must look lost before that is said.
const DOUBT: Duration = Duration::from_secs(10);

/// One step of a repair that has just ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// When it ended.
    pub now: Time,
    /// How long it took.
    pub took: Duration,
    /// How much it did.
    pub bytes: u64,
    /// How much is left after it.
    pub left_bytes: u64,
    /// What hosts have met until now.
    pub host: HostLoad,
}

/// The pace of one repair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    began: Time,
    /// When hosts were last seen at work.
    busy: Option<Time>,
    /// What was seen when the rate was judged last, and how much was done since.
    judged: (Time, HostLoad),
    done_since: u64,
    seen: HostLoad,
    /// What a bound of latency allows for, in bytes per second.
    allowed: f64,
    /// Since when the promise of an end looks lost.
    doubtful: Option<Time>,
    late_told: bool,
}

impl Pacer {
    /// A repair begins at `now`.
    pub(super) fn new(now: Time, host: HostLoad) -> Self {
        Self {
            began: now,
            busy: None,
            judged: (now, host),
            done_since: 0,
            seen: host,
            allowed: UNBOUNDED,
            doubtful: None,
            late_told: false,
        }
    }

    /// How long to wait before the next step.
    pub(super) fn wait(&mut self, policy: &RepairPolicy, step: Step) -> Duration {
        let host = step.host;
        assert!(host.ended <= host.begun, "a command that has ended had begun");
        if host != self.seen || host.begun > host.ended {
            self.busy = Some(step.now);
        }
        self.seen = host;
        self.done_since += step.bytes;
        let busy = self.busy.is_some_and(|busy| step.now.since(busy) < BUSY);
        self.judge(policy, step, busy);
        let yielding = match policy.mode {
            _ if policy.latency.is_some() => at_rate(self.allowed, step),
            RepairMode::Fast => Duration::ZERO,
            RepairMode::Balanced if busy => step.took * YIELD,
            RepairMode::Idle if busy => at_rate(TRICKLE, step),
            RepairMode::Balanced | RepairMode::Idle => Duration::ZERO,
        };
        let needed = policy.done_by.map(|span| self.needed(span.duration(), step));
        self.doubt(needed, step);
        let least = needed.into_iter().chain(policy.min.map(|min| min.bytes() as f64)).fold(0.0, f64::max);
        let most = policy.max.map_or(Duration::ZERO, |max| at_rate(max.bytes() as f64, step));
        yielding.min(at_rate(least, step)).max(most)
    }

    /// True once, when a promised end cannot be kept however fast we go.
    pub(super) fn is_late(&mut self, now: Time) -> bool {
        let lost = self.doubtful.is_some_and(|since| now.since(since) >= DOUBT);
        lost && !std::mem::replace(&mut self.late_told, true)
    }

    /// Goes by what hosts have met, where a bound of their latency was set.
    fn judge(&mut self, policy: &RepairPolicy, step: Step, busy: bool) {
        let (at, before) = self.judged;
        let since = step.now.since(at);
        let Some(bound) = policy.latency.filter(|_| busy) else {
            self.allowed = UNBOUNDED;
            self.judged = (step.now, step.host);
            self.done_since = 0;
            return;
        };
        if since < JUDGED_EVERY {
            return;
        }
        let ended = u32::try_from(step.host.ended - before.ended).unwrap_or(u32::MAX);
        let rate = self.done_since as f64 / since.as_secs_f64();
        // Commands of which none has ended in all this time have waited too long as well.
        let met = if ended > 0 { (step.host.took - before.took) / ended } else { since };
        self.allowed = if met > bound.duration() {
            (self.allowed.min(rate) * BACK_OFF).max(TRICKLE)
        } else {
            (self.allowed * ADVANCE).min(UNBOUNDED)
        };
        assert!((TRICKLE..=UNBOUNDED).contains(&self.allowed), "a repair goes on, whatever hosts meet");
        self.judged = (step.now, step.host);
        self.done_since = 0;
    }

    /// Bytes per second that end the repair so long after it began.
    fn needed(&self, span: Duration, step: Step) -> f64 {
        let left = span.saturating_sub(step.now.since(self.began)).as_secs_f64();
        if left > 0.0 { step.left_bytes as f64 / left * MARGIN } else { UNBOUNDED }
    }

    /// Remembers since when steps, without any waiting, were slower than what is needed.
    fn doubt(&mut self, needed: Option<f64>, step: Step) {
        let at_best = step.bytes as f64 / step.took.as_secs_f64().max(1e-9);
        let lost = step.left_bytes > 0 && needed.is_some_and(|needed| at_best < needed);
        self.doubtful = if lost { self.doubtful.or(Some(step.now)) } else { None };
    }
}

/// How long to wait after the step so that, with it, `rate` bytes per second are done; forever is an hour.
fn at_rate(rate: f64, step: Step) -> Duration {
    let whole = if rate > 0.0 { (step.bytes as f64 / rate).min(3600.0) } else { 3600.0 };
    assert!((0.0..=3600.0).contains(&whole), "a pause ends within an hour");
    Duration::from_secs_f64(whole).saturating_sub(step.took)
}

#[cfg(test)]
mod tests;
