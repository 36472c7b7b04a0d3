//! Schedule of attempts to open a closed pool: a pure function of the present disks and the time.

use model::DiskName;
use std::collections::BTreeSet;
use std::time::Duration;

/// Retry interval of a pool that could not be opened though all of its disks are there.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum and maximum time that a pool stays closed after repeated failures; it doubles with each failure
/// within an hour.
const HOLD_OFF: Duration = Duration::from_secs(5);
const HOLD_OFF_MAX: Duration = Duration::from_secs(600);
/// Time after which a failure no longer counts.
const MEMORY: Duration = Duration::from_secs(3600);

/// Mode of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Opens only if no member is absent.
    Whole,
    /// Opens with the members that are there.
    Degraded,
}

/// Waiting state of one closed pool.
#[derive(Debug)]
pub(super) struct Wait {
    present: BTreeSet<DiskName>,
    /// Time at which the last disk appeared.
    changed: Duration,
    /// The last attempt with the present disks.
    tried: Option<(Attempt, Duration)>,
    not_before: Duration,
}

impl Wait {
    /// Starts waiting at `now` without any disk; no attempt is made before `not_before`.
    pub(super) fn since(now: Duration, not_before: Duration) -> Self {
        Self { present: BTreeSet::new(), changed: now, tried: None, not_before }
    }

    /// Decides on the attempt to make with the disks that are present. `patience` is the time to wait for the
    /// others.
    pub(super) fn judge(&mut self, now: Duration, present: &BTreeSet<DiskName>, patience: Duration) -> Option<Attempt> {
        assert!(now >= self.changed, "time goes on");
        // Only a new disk restarts the schedule; a disk that vanished does not improve the chances.
        if !present.is_subset(&self.present) {
            (self.changed, self.tried) = (now, None);
        }
        self.present.clone_from(present);
        if present.is_empty() || now < self.not_before {
            return None;
        }
        let attempt = match self.tried {
            // Whole first: opening degraded makes the absent members stale, and costs a resynchronization.
            None => Attempt::Whole,
            Some((Attempt::Whole, _)) if now - self.changed >= patience => Attempt::Degraded,
            // Whole after a refusal of either kind; a degraded attempt follows in the next round if its time has come.
            Some((_, when)) if now - when >= RETRY_INTERVAL => Attempt::Whole,
            Some(_) => return None,
        };
        self.tried = Some((attempt, now));
        Some(attempt)
    }

    /// Returns the time left until the degraded attempt; `None` after it, or while no disk is there.
    pub(super) fn degraded_in(&self, now: Duration, patience: Duration) -> Option<Duration> {
        let is_due = !self.present.is_empty() && !matches!(self.tried, Some((Attempt::Degraded, _)));
        is_due.then(|| (self.changed + patience).saturating_sub(now))
    }
}

/// Recent failures of a pool.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<Duration>);

impl Failures {
    /// Records a failure at `now`, and returns the earliest time of the next attempt.
    pub(super) fn note(&mut self, now: Duration) -> Duration {
        self.0.retain(|when| now.saturating_sub(*when) < MEMORY);
        // Bounded, so that the power below cannot overflow.
        let earlier = u32::try_from(self.0.len()).unwrap_or(u32::MAX).min(16);
        self.0.push(now);
        // The first failure causes no delay: the pool opens as soon as its disks are there.
        let hold_off = earlier.checked_sub(1).map_or(Duration::ZERO, |again| HOLD_OFF * 2_u32.pow(again));
        now + hold_off.min(HOLD_OFF_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(names: &[&str]) -> BTreeSet<DiskName> {
        names.iter().map(|name| name.parse().expect("a name")).collect()
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pool_is_tried_whole_with_each_disk_that_comes_and_degraded_after_the_last_one() {
        let mut wait = Wait::since(s(0), s(0));
        let patience = s(30);
        assert_eq!(wait.judge(s(1), &disks(&[]), patience), None, "nothing is there");
        assert_eq!(wait.judge(s(2), &disks(&["a"]), patience), Some(Attempt::Whole));
        assert_eq!(wait.judge(s(20), &disks(&["a"]), patience), None, "that was tried");
        assert_eq!(wait.degraded_in(s(20), patience), Some(s(12)));
        assert_eq!(wait.judge(s(25), &disks(&["a", "b"]), patience), Some(Attempt::Whole));
        assert_eq!(wait.judge(s(54), &disks(&["a", "b"]), patience), None, "30 s from the last one");
        assert_eq!(wait.judge(s(55), &disks(&["a", "b"]), patience), Some(Attempt::Degraded));
        assert_eq!(wait.degraded_in(s(56), patience), None);
        assert_eq!(wait.judge(s(56), &disks(&["a", "b", "c"]), patience), Some(Attempt::Whole));
    }

    #[test]
    fn pool_whose_disks_come_and_go_is_not_tried_for_fewer_of_them() {
        let mut wait = Wait::since(s(0), s(0));
        assert_eq!(wait.judge(s(1), &disks(&["a", "b"]), s(30)), Some(Attempt::Whole));
        assert_eq!(wait.judge(s(10), &disks(&["a"]), s(30)), None);
        assert_eq!(wait.judge(s(20), &disks(&["a", "b"]), s(30)), Some(Attempt::Whole), "b came again");
        assert_eq!(wait.judge(s(49), &disks(&["a", "b"]), s(30)), None);
        assert_eq!(wait.judge(s(50), &disks(&["a", "b"]), s(30)), Some(Attempt::Degraded));
        assert_eq!(wait.judge(s(80), &disks(&["a", "b"]), s(30)), None);
        assert_eq!(wait.judge(s(110), &disks(&["a", "b"]), s(30)), Some(Attempt::Whole), "once in a minute");
    }

    #[test]
    fn pool_that_fails_again_and_again_stays_closed_longer_each_time() {
        let mut failures = Failures::default();
        let waits: Vec<u64> = (0..10).map(|_| failures.note(s(100)).as_secs() - 100).collect();
        assert_eq!(waits, [0, 5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(failures.note(s(3700)), s(3700), "an hour later all is forgotten");
        let mut wait = Wait::since(s(100), s(105));
        assert_eq!(wait.judge(s(104), &disks(&["a"]), s(0)), None);
        assert_eq!(wait.judge(s(105), &disks(&["a"]), s(0)), Some(Attempt::Whole));
        assert_eq!(wait.judge(s(105), &disks(&["a"]), s(0)), Some(Attempt::Degraded), "nothing is waited for");
    }
}
