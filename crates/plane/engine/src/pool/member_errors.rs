//! Error counts of the disk in one slot, and its fitness by the error policy of the pool.
//!
//! Fed by [`super::watchdog`] every 5 s; the control plane acts on the fitness.

use model::{ErrorPolicy, MemberFitness};
use shard::Time;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

/// Errors are counted by hour; [`HOURS`] of them make a day.
const HOUR: Duration = Duration::from_secs(3600);
const HOURS: usize = 24;
/// Reads and errors are counted by check; this many checks make a minute.
const LOOKS: usize = 12;
/// Errors in a minute below which the error rate says nothing.
const ERRORS_MIN: u64 = 20;

/// Counters of a disk since its pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorCounters {
    /// Reads started.
    pub reads: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Blocks with a wrong checksum, or that could not be read.
    pub wrong: u64,
}

/// Error counts of the disk in one slot.
#[derive(Default)]
pub(super) struct MemberErrors {
    /// Counters at the last check.
    seen: Cell<Option<ErrorCounters>>,
    /// Errors by hour, the latest last.
    hours: RefCell<VecDeque<(u64, u64)>>,
    /// Reads and errors between two checks, the latest last.
    looks: RefCell<VecDeque<(u64, u64)>>,
    slow_since: Cell<Option<Time>>,
    told: Cell<MemberFitness>,
}

impl MemberErrors {
    /// Updates the counts from the counters of the disk.
    pub(super) fn learn(&self, now: Time, done: ErrorCounters, is_slow: bool) {
        // The time of the first slow check counts, until a check is not slow.
        let since = self.slow_since.get().filter(|_| is_slow);
        self.slow_since.set(since.or(is_slow.then_some(now)));
        // The first check only sets the baseline: earlier errors belong to another opening.
        let Some(before) = self.seen.replace(Some(done)) else { return };
        let reads = done.reads.saturating_sub(before.reads);
        // One bad block may cause several errors, and one error may cover several bad blocks; the larger count is used.
        let errors = done.errors.saturating_sub(before.errors).max(done.wrong.saturating_sub(before.wrong));
        let mut looks = self.looks.borrow_mut();
        looks.push_back((reads, errors));
        // Checks come at fixed intervals, so their number is a span of time.
        if looks.len() > LOOKS {
            looks.pop_front();
        }
        let hour = now.since(Time::default()).as_secs() / HOUR.as_secs();
        let mut hours = self.hours.borrow_mut();
        match hours.back_mut() {
            Some((last, count)) if *last == hour => *count += errors,
            _ if errors > 0 => hours.push_back((hour, errors)),
            _ => {}
        }
        // Hours without errors have no entry, so entries are dropped by age and not by number.
        while hours.front().is_some_and(|(first, _)| first + HOURS as u64 <= hour) {
            hours.pop_front();
        }
        assert!(hours.len() <= HOURS, "a day has so many hours");
    }

    /// Errors within the last 24 hours.
    pub(super) fn of_day(&self) -> u64 {
        self.hours.borrow().iter().map(|(_, count)| count).sum()
    }

    /// Percentage of the reads of the last minute that failed.
    pub(super) fn percent(&self) -> u64 {
        let looks = self.looks.borrow();
        let (reads, errors) = looks.iter().fold((0, 0), |(reads, errors), look| (reads + look.0, errors + look.1));
        assert!(looks.len() <= LOOKS, "a minute has so many looks");
        // Errors of writes count as well, so there may be more errors than reads.
        if errors < ERRORS_MIN { 0 } else { (errors * 100).checked_div(reads.max(errors)).unwrap_or(0) }
    }

    /// Fitness of the disk by `policy`.
    pub(super) fn judge(&self, now: Time, policy: &ErrorPolicy) -> MemberFitness {
        let slow = policy.slow.zip(self.slow_since.get());
        // The most severe verdict comes first.
        if policy.rate.is_some_and(|rate| self.percent() >= u64::from(rate)) {
            MemberFitness::Critical
        } else if policy.count.is_some_and(|count| self.of_day() >= u64::from(count)) {
            MemberFitness::Failing
        } else if slow.is_some_and(|(span, since)| now.since(since) >= span.duration()) {
            MemberFitness::Slow
        } else {
            MemberFitness::Good
        }
    }

    /// True if the disk exceeds its policy now and did not at the last check.
    pub(super) fn is_news(&self, fitness: MemberFitness) -> bool {
        let errs = |fitness| matches!(fitness, MemberFitness::Failing | MemberFitness::Critical);
        errs(fitness) && !errs(self.told.replace(fitness))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Span;

    fn at(seconds: u64) -> Time {
        Time::default() + Duration::from_secs(seconds)
    }

    /// Runs a check every five seconds, for a disk with this many reads and errors per second.
    fn run(
        erring: &MemberErrors,
        seconds: std::ops::Range<u64>,
        done: &mut ErrorCounters,
        (reads, errors): (u64, u64),
    ) {
        for second in seconds.step_by(5) {
            done.reads += 5 * reads;
            done.errors += 5 * errors;
            erring.learn(at(second), *done, false);
        }
    }

    #[test]
    fn disk_fails_by_its_count_of_a_day_and_is_fit_again_after_that() {
        let (erring, mut done) = (MemberErrors::default(), ErrorCounters { errors: 5000, ..ErrorCounters::default() });
        let policy = ErrorPolicy { rate: None, ..ErrorPolicy::default() };
        run(&erring, 0..60, &mut done, (1000, 0));
        assert_eq!(
            (erring.of_day(), erring.judge(at(60), &policy)),
            (0, MemberFitness::Good),
            "what was before is not its own"
        );
        for hour in 0..10 {
            done.errors += 9;
            erring.learn(at(hour * 3600 + 100), done, false);
        }
        assert_eq!((erring.of_day(), erring.judge(at(36_000), &policy)), (90, MemberFitness::Good));
        done.wrong += 10;
        erring.learn(at(36_100), done, false);
        assert_eq!(erring.judge(at(36_100), &policy), MemberFitness::Failing);
        assert!(erring.is_news(MemberFitness::Failing) && !erring.is_news(MemberFitness::Critical), "told once");
        let off = ErrorPolicy { count: None, ..policy };
        assert_eq!(erring.judge(at(36_100), &off), MemberFitness::Good);
        erring.learn(at(24 * 3600 + 200), done, false);
        assert_eq!(erring.judge(at(24 * 3600 + 200), &policy), MemberFitness::Good);
    }

    #[test]
    fn disk_is_useless_by_the_part_of_its_reads_of_a_minute() {
        let (erring, mut done, policy) =
            (MemberErrors::default(), ErrorCounters::default(), ErrorPolicy { count: None, ..ErrorPolicy::default() });
        run(&erring, 0..120, &mut done, (100, 29));
        assert_eq!((erring.percent(), erring.judge(at(120), &policy)), (29, MemberFitness::Good));
        run(&erring, 120..240, &mut done, (100, 60));
        assert_eq!((erring.percent(), erring.judge(at(240), &policy)), (60, MemberFitness::Critical));
        run(&erring, 240..360, &mut done, (1, 0));
        assert_eq!(erring.judge(at(360), &policy), MemberFitness::Good);
        done.errors += ERRORS_MIN - 1;
        erring.learn(at(365), done, false);
        assert_eq!(erring.percent(), 0, "a few errors of few reads are no rate");
    }

    #[test]
    fn disk_is_slow_for_the_policy_only_after_its_span_without_a_break() {
        let (erring, policy) =
            (MemberErrors::default(), ErrorPolicy { slow: Some(Span::from_millis(60_000)), ..ErrorPolicy::default() });
        erring.learn(at(0), ErrorCounters::default(), true);
        erring.learn(at(59), ErrorCounters::default(), true);
        assert_eq!(erring.judge(at(59), &policy), MemberFitness::Good);
        assert_eq!(erring.judge(at(60), &policy), MemberFitness::Slow);
        erring.learn(at(61), ErrorCounters::default(), false);
        erring.learn(at(62), ErrorCounters::default(), true);
        assert_eq!(erring.judge(at(100), &policy), MemberFitness::Good);
    }
}
