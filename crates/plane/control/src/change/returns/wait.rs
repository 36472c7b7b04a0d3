//! When a pool that is not open is tried: a table over the disks that are there and the time, which nothing else decides.

use model::DiskName;
use std::collections::BTreeSet;
use std::time::Duration;

/// A pool whose disks are all there and which could not be opened all the same is tried again after this.
const AGAIN: Duration = Duration::from_secs(60);
/// How long a pool that has failed again stays closed, at least and at most; twice as long each time within an hour.
const HOLD_OFF: Duration = Duration::from_secs(5);
const HOLD_OFF_MAX: Duration = Duration::from_secs(600);
/// A failure is forgotten after this.
const MEMORY: Duration = Duration::from_secs(3600);

/// How a pool is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Only if no member is absent.
    Whole,
    /// With the members that are there.
    Degraded,
}

/// One pool that is not open.
#[derive(Debug)]
pub(super) struct Wait {
    present: BTreeSet<DiskName>,
    /// When the last disk came.
    changed: Duration,
    /// What was tried with these disks, and when.
    tried: Option<(Attempt, Duration)>,
    not_before: Duration,
}

impl Wait {
    /// Nothing of the pool was found by `now`; it is not tried before `not_before`.
    pub(super) fn since(now: Duration, not_before: Duration) -> Self {
        Self { present: BTreeSet::new(), changed: now, tried: None, not_before }
    }

    /// What is to be tried now that these disks are there, if anything. `patience` is how long others are waited for.
    pub(super) fn judge(&mut self, now: Duration, present: &BTreeSet<DiskName>, patience: Duration) -> Option<Attempt> {
        assert!(now >= self.changed, "time goes on");
        if !present.is_subset(&self.present) {
            (self.changed, self.tried) = (now, None);
        }
        self.present.clone_from(present);
        if present.is_empty() || now < self.not_before {
            return None;
        }
        let attempt = match self.tried {
            None => Attempt::Whole,
            Some((Attempt::Whole, _)) if now - self.changed >= patience => Attempt::Degraded,
            Some((_, when)) if now - when >= AGAIN => Attempt::Whole,
            Some(_) => return None,
        };
        self.tried = Some((attempt, now));
        Some(attempt)
    }

    /// How long it is until it is opened degraded; nothing when that was tried, or no disk is there.
    pub(super) fn degraded_in(&self, now: Duration, patience: Duration) -> Option<Duration> {
        let is_due = !self.present.is_empty() && !matches!(self.tried, Some((Attempt::Degraded, _)));
        is_due.then(|| (self.changed + patience).saturating_sub(now))
    }
}

/// When a pool has failed lately.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<Duration>);

impl Failures {
    /// It has failed now; when it may be opened again.
    pub(super) fn note(&mut self, now: Duration) -> Duration {
        self.0.retain(|when| now.saturating_sub(*when) < MEMORY);
        let earlier = u32::try_from(self.0.len()).unwrap_or(u32::MAX).min(16);
        self.0.push(now);
        // The first time a pool is opened as soon as its disks are there.
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
