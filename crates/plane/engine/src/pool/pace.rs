//! Throttle of background work: the pause between two steps that leaves the disks to the hosts.
//!
//! Pure: its input is the duration of the last step and the load of hosts, its output the pause.

use crate::unit::HostLoad;
use model::{RepairMode, RepairPolicy};
use shard::Time;
use std::time::Duration;

/// Time after the last host command during which hosts count as active.
const BUSY: Duration = Duration::from_secs(1);
/// Length of the pause in mode `balanced` while hosts are active, as a multiple of the step.
const YIELD: u32 = 2;
/// Rate in mode `idle` while hosts are active, in bytes per second.
const TRICKLE: f64 = (1 << 20) as f64;
/// Interval at which the rate is adjusted to the latency of hosts.
const JUDGED_EVERY: Duration = Duration::from_millis(100);
/// Factor on the rate when the latency bound is exceeded (multiplicative decrease), and when it is met.
const BACK_OFF: f64 = 0.5;
const ADVANCE: f64 = 1.1;
/// Rate above which no limit is needed any more, in bytes per second.
const UNBOUNDED: f64 = 1e11;
/// Margin on the rate that a deadline needs, so that it is not met by a hair.
const MARGIN: f64 = 1.05;
/// Time for which a deadline must look lost before it is reported.
const DOUBT: Duration = Duration::from_secs(10);

/// A completed step of background work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Time of its end.
    pub now: Time,
    /// Duration.
    pub took: Duration,
    /// Bytes processed.
    pub bytes: u64,
    /// Bytes that remain.
    pub left_bytes: u64,
    /// Load of hosts up to now.
    pub host: HostLoad,
}

/// Throttle of one background operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    began: Time,
    /// Time at which hosts were last seen active.
    busy: Option<Time>,
    /// Time and host load of the last adjustment, and the bytes processed since.
    judged: (Time, HostLoad),
    done_since: u64,
    seen: HostLoad,
    /// Rate allowed by the latency bound, in bytes per second.
    allowed: f64,
    /// Time since which the deadline looks lost.
    doubtful: Option<Time>,
    late_told: bool,
}

impl Pacer {
    /// Creates the throttle of an operation that starts at `now`.
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

    /// Pause before the next step.
    pub(super) fn wait(&mut self, policy: &RepairPolicy, step: Step) -> Duration {
        let host = step.host;
        assert!(host.ended <= host.begun, "a command that has ended had begun");
        // A command in flight counts as activity even if none has completed.
        if host != self.seen || host.begun > host.ended {
            self.busy = Some(step.now);
        }
        self.seen = host;
        self.done_since += step.bytes;
        let busy = self.busy.is_some_and(|busy| step.now.since(busy) < BUSY);
        self.judge(policy, step, busy);
        // A latency bound takes precedence over the mode.
        let yielding = match policy.mode {
            _ if policy.latency.is_some() => at_rate(self.allowed, step),
            RepairMode::Fast => Duration::ZERO,
            RepairMode::Balanced if busy => step.took * YIELD,
            RepairMode::Idle if busy => at_rate(TRICKLE, step),
            RepairMode::Balanced | RepairMode::Idle => Duration::ZERO,
        };
        let needed = policy.done_by.map(|span| self.needed(span.duration(), step));
        self.doubt(needed, step);
        // Minimum rate and deadline win over yielding, the maximum rate wins over everything.
        let least = needed.into_iter().chain(policy.min.map(|min| min.bytes() as f64)).fold(0.0, f64::max);
        let most = policy.max.map_or(Duration::ZERO, |max| at_rate(max.bytes() as f64, step));
        yielding.min(at_rate(least, step)).max(most)
    }

    /// True once, when the deadline cannot be met at any rate.
    pub(super) fn is_late(&mut self, now: Time) -> bool {
        let lost = self.doubtful.is_some_and(|since| now.since(since) >= DOUBT);
        lost && !std::mem::replace(&mut self.late_told, true)
    }

    /// Adjusts the allowed rate to the latency of hosts, if a bound is set.
    fn judge(&mut self, policy: &RepairPolicy, step: Step, busy: bool) {
        let (at, before) = self.judged;
        let since = step.now.since(at);
        // Without active hosts nothing is measured, and the next load starts without a limit.
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
        // The back-off starts from the rate that was reached: an unreachable allowed rate would take long to come down.
        let rate = self.done_since as f64 / since.as_secs_f64();
        // If no command has completed in all this time, they have waited at least that long.
        let met = if ended > 0 { (step.host.took - before.took) / ended } else { since };
        self.allowed = if met > bound.duration() {
            // A floor, so that background work never stops altogether.
            (self.allowed.min(rate) * BACK_OFF).max(TRICKLE)
        } else {
            (self.allowed * ADVANCE).min(UNBOUNDED)
        };
        assert!((TRICKLE..=UNBOUNDED).contains(&self.allowed), "a repair goes on, whatever hosts meet");
        self.judged = (step.now, step.host);
        self.done_since = 0;
    }

    /// Rate that completes the operation within `span` of its start, in bytes per second.
    fn needed(&self, span: Duration, step: Step) -> f64 {
        let left = span.saturating_sub(step.now.since(self.began)).as_secs_f64();
        if left > 0.0 { step.left_bytes as f64 / left * MARGIN } else { UNBOUNDED }
    }

    /// Notes since when the steps themselves, without any pause, are too slow for the deadline.
    fn doubt(&mut self, needed: Option<f64>, step: Step) {
        // A step may take no measurable time, which must not divide by zero.
        let at_best = step.bytes as f64 / step.took.as_secs_f64().max(1e-9);
        let lost = step.left_bytes > 0 && needed.is_some_and(|needed| at_best < needed);
        self.doubtful = if lost { self.doubtful.or(Some(step.now)) } else { None };
    }
}

/// Pause after the step that limits the rate to `rate` bytes per second; at most an hour.
fn at_rate(rate: f64, step: Step) -> Duration {
    // An hour at most: a rate near zero must not stop the operation until a restart.
    let whole = if rate > 0.0 { (step.bytes as f64 / rate).min(3600.0) } else { 3600.0 };
    assert!((0.0..=3600.0).contains(&whole), "a pause ends within an hour");
    Duration::from_secs_f64(whole).saturating_sub(step.took)
}

#[cfg(test)]
mod tests;
