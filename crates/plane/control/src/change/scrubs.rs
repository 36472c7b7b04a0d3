//! Scrubs: started by operators or by the schedule, paused outside of their window, and recorded.

use crate::change::pools::Pools;
use crate::core::{ChangeGuard, Core};
use crate::request::StartScrub;
use crate::state::PoolRecord;
use model::{
    Name, Order, PoolReport, PoolState, Refusal, ScrubEvery, ScrubPolicy, ScrubReport, ScrubState, Subject, Timestamp,
    event,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Scrub reports kept per pool.
const SCRUBS_KEPT: usize = 12;

/// Tolerance in seconds by which a scheduled scrub may start early, so that its time of day does not drift.
const EARLY: u64 = 3600;

/// A day in seconds.
const DAY: u64 = 86_400;

/// Scrubs of pools, started by operators or by the schedule.
pub struct Scrubs {
    pub(crate) core: Arc<Core>,
    pub(crate) pools: Arc<Pools>,
}

impl Scrubs {
    /// Starts a scrub, which reads and verifies everything in the pool.
    ///
    /// *Errors*: there is no such pool, it is not open or has failed, or a scrub runs already.
    pub async fn start(&self, name: &Name, request: StartScrub) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.pools.admit_open(name).await?;
        self.begin(&turn, name, request.repairs, false).await?;
        drop(turn);
        self.pools.report(name).await
    }

    /// Stops the scrub of the pool.
    ///
    /// *Errors*: there is no such pool, or no scrub of it runs.
    pub async fn stop(&self, name: &Name) -> Result<(), Refusal> {
        let _turn = self.core.lock_changes().await;
        self.pools.admit_open(name).await?;
        self.core.engine.pool(Order::StopScrub { pool: name.clone() }).await.map(|_| ())
    }

    /// Lists the recorded scrubs of the pool and the running one, oldest first.
    ///
    /// *Errors*: there is no such pool.
    pub async fn list(&self, name: &Name) -> Result<Vec<ScrubReport>, Refusal> {
        let latest = self.pools.report(name).await?.scrub;
        let state = self.core.state();
        let mut scrubs = state.pools.get(name).map(|record| record.scrubs.clone()).unwrap_or_default();
        if let Some(latest) = latest {
            // The latest report may be recorded already; the one from the pool has the current progress.
            scrubs.retain(|scrub| scrub.started != latest.started);
            scrubs.push(latest);
        }
        Ok(scrubs)
    }

    async fn begin(&self, turn: &ChangeGuard<'_>, name: &Name, repairs: bool, by_clock: bool) -> Result<(), Refusal> {
        // Started before it is recorded, because the record needs the start that the pool reports.
        let pool = self.core.engine.pool(Order::StartScrub { pool: name.clone(), repairs }).await?;
        self.core.commit(turn, |state| {
            if let Some(record) = state.pools.get_mut(name) {
                // Only a scheduled scrub is recorded here, so that the window applies to it alone.
                record.clocked = pool.scrub.filter(|_| by_clock).map(|scrub| scrub.started);
            }
        })
    }

    /// Records finished scrubs, and starts, pauses or resumes those that are due.
    ///
    /// A pool without a complete scrub for twice its interval raises an event once; `overdue` holds the pools
    /// with that event.
    pub(crate) async fn run_due(&self, now: Timestamp, overdue: &mut BTreeSet<Name>) -> Result<(), Refusal> {
        self.note_overdue(now, overdue);
        // The common case ends here, without the change lock.
        if self.core.state().pools.values().all(PoolRecord::needs_no_scrub) && !self.any().await? {
            return Ok(());
        }
        let turn = self.core.lock_changes().await;
        for pool in self.core.engine.pools(Order::Pools).await? {
            // Read again for each pool, because the commits below replace the state.
            let state = self.core.state();
            let Some(record) = state.pools.get(&pool.name) else { continue };
            // Finished since the last round, and not recorded yet.
            if let Some(ended) = pool.scrub.as_ref().filter(|scrub| !scrub.state.runs() && !record.remembers(scrub)) {
                self.core.commit(&turn, |state| state.remember(&pool.name, ended))?;
            }
            let open = record.policy.scrub.window.is_none_or(|window| window.holds(now.second_of_day()));
            match pool.scrub.as_ref().map(|scrub| (scrub.state, record.clocked == Some(scrub.started))) {
                // Only a scheduled scrub is paused by the window; an operator's scrub runs at any time.
                Some((ScrubState::Running, true)) if !open => self.hold(&pool.name, true).await?,
                Some((ScrubState::Waiting, _)) if open => self.hold(&pool.name, false).await?,
                // Running, or paused with the window closed: nothing to do.
                Some((state, _)) if state.runs() => {}
                _ => {
                    // `clocked` names a scrub that the pool has no report of: the daemon ended right after
                    // starting it.
                    let latest = pool.scrub.as_ref().map(|scrub| scrub.started);
                    let cut_short = record.clocked.is_some() && record.clocked != latest;
                    if pool.state == PoolState::Healthy && open && (cut_short || record.is_due(now)) {
                        // A pause left over from the last scrub would hold the new one from its start.
                        self.hold(&pool.name, false).await?;
                        self.begin(&turn, &pool.name, false, true).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn note_overdue(&self, now: Timestamp, overdue: &mut BTreeSet<Name>) {
        let state = self.core.state();
        let late: BTreeMap<&Name, Timestamp> =
            state.pools.iter().filter_map(|(name, record)| Some((name, record.overdue_since(now)?))).collect();
        for (name, since) in late.iter().filter(|(name, _)| !overdue.contains(**name)) {
            self.core.raise(event::SCRUB_OVERDUE, Subject::pool(name), overdue_sentence(name, *since));
        }
        // Pools that were scrubbed since leave the set, so the next delay is a new event.
        *overdue = late.into_keys().cloned().collect();
    }

    async fn hold(&self, name: &Name, held: bool) -> Result<(), Refusal> {
        self.core.engine.pool(Order::HoldScrub { pool: name.clone(), held }).await.map(|_| ())
    }

    async fn any(&self) -> Result<bool, Refusal> {
        Ok(self.core.engine.pools(Order::Pools).await?.iter().any(|pool| pool.scrub.is_some()))
    }
}

impl PoolRecord {
    fn needs_no_scrub(&self) -> bool {
        self.policy.scrub.every.seconds().is_none() && self.clocked.is_none()
    }

    fn remembers(&self, scrub: &ScrubReport) -> bool {
        self.scrubs.iter().any(|known| known.started == scrub.started)
    }

    /// Returns the start of the last complete scrub, or the time at which scrubs were configured, if later;
    /// only times for which `counts` holds.
    fn last_scrub(&self, counts: impl Fn(Timestamp) -> bool) -> Option<Timestamp> {
        // Scrubs that were stopped or failed do not count, because they have not read everything.
        let whole = self.scrubs.iter().rfind(|scrub| scrub.state == ScrubState::Done && counts(scrub.started));
        whole.map(|scrub| scrub.started).max(self.scrub_since.filter(|since| counts(*since)))
    }

    /// Returns the earliest time of an automatic start: a day after a scrub that was stopped or failed.
    fn not_before(&self) -> Option<Timestamp> {
        let last = self.scrubs.last().filter(|scrub| scrub.state != ScrubState::Done)?;
        Some(last.ended.unwrap_or(last.started).plus(DAY))
    }

    fn is_due(&self, now: Timestamp) -> bool {
        // A start in the future was recorded while the clock was wrong, and does not count.
        let last = self.last_scrub(|time| time <= now.plus(EARLY)).unwrap_or_default();
        // The same for a stopped scrub: one in the future must not block the schedule for years.
        let rests = self.not_before().filter(|time| time.since(now) <= DAY + EARLY).is_some_and(|time| now < time);
        !rests && self.policy.scrub.every.seconds().is_some_and(|every| now.since(last) + EARLY >= every)
    }

    /// Returns the time of the next scheduled scrub.
    pub(crate) fn next_scrub(&self) -> Option<Timestamp> {
        next(&self.policy.scrub, self.last_scrub(|_| true)?)
            .max(self.not_before().filter(|_| self.policy.scrub.every != ScrubEvery::Off))
    }

    /// Returns the end of the last complete scrub, if that is at least twice the interval ago.
    pub(crate) fn overdue_since(&self, now: Timestamp) -> Option<Timestamp> {
        let every = self.policy.scrub.every.seconds()?;
        let whole = self.scrubs.iter().rfind(|scrub| scrub.state == ScrubState::Done).and_then(|scrub| scrub.ended);
        let since = whole.max(self.scrub_since)?;
        (now.since(since) >= 2 * every).then_some(since)
    }
}

impl crate::State {
    fn remember(&mut self, pool: &Name, scrub: &ScrubReport) {
        let Some(record) = self.pools.get_mut(pool) else { return };
        if record.clocked == Some(scrub.started) {
            record.clocked = None;
        }
        record.scrubs.push(ScrubReport { progress: None, ..scrub.clone() });
        let surplus = record.scrubs.len().saturating_sub(SCRUBS_KEPT);
        record.scrubs.drain(..surplus);
    }
}

/// Describes an overdue scrub.
pub(crate) fn overdue_sentence(pool: &Name, since: Timestamp) -> String {
    format!(
        "no scrub of pool {pool} has finished since {since}, at least twice its interval. Widen the window with \
         blockyard pool set {pool} scrub.window, or start a scrub with blockyard pool scrub start {pool}."
    )
}

/// Returns the time of the scheduled scrub after the one at `last`: the first due minute inside the window.
fn next(policy: &ScrubPolicy, last: Timestamp) -> Option<Timestamp> {
    let due = last.plus(policy.every.seconds()?.saturating_sub(EARLY));
    let Some(window) = policy.window else { return Some(due) };
    (0..DAY).step_by(60).map(|seconds| due.plus(seconds)).find(|time| window.holds(time.second_of_day()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn scrub(state: ScrubState, started: &str, ended: Option<&str>) -> ScrubReport {
        ScrubReport {
            state,
            started: at(started),
            ended: ended.map(at),
            repairs: false,
            progress: None,
            checked: model::Size::ZERO,
            mismatches: 0,
            unreadable: 0,
            repaired: 0,
        }
    }

    #[test]
    fn schedule_counts_from_the_last_scrub_that_has_read_everything() {
        let mut record = PoolRecord::new(model::PoolId::from_bytes([1; 16]));
        record.policy.scrub.every = ScrubEvery::Weekly;
        record.scrub_since = Some(at("2026-11-01T00:00:00Z"));
        record.scrubs.push(scrub(ScrubState::Done, "2026-11-08T02:00:00Z", Some("2026-11-08T20:00:00Z")));
        assert!(!record.is_due(at("2026-11-15T00:00:00Z")) && record.is_due(at("2026-11-15T02:00:00Z")));
        // Stopped by an operator: not started again for a day, but then.
        record.scrubs.push(scrub(ScrubState::Stopped, "2026-11-15T02:00:00Z", Some("2026-11-15T03:00:00Z")));
        assert!(!record.is_due(at("2026-11-15T04:00:00Z")) && record.is_due(at("2026-11-16T03:00:00Z")));
        assert_eq!(record.next_scrub(), Some(at("2026-11-16T03:00:00Z")));
        assert_eq!(record.overdue_since(at("2026-11-22T19:59:59Z")), None);
        assert_eq!(record.overdue_since(at("2026-11-22T20:00:00Z")), Some(at("2026-11-08T20:00:00Z")));
        record.policy.scrub.every = ScrubEvery::Off;
        assert_eq!((record.next_scrub(), record.overdue_since(at("2027-11-22T20:00:00Z"))), (None, None));
        assert!(!record.is_due(at("2027-11-22T20:00:00Z")));
    }

    #[test]
    fn scrub_by_the_clock_begins_in_the_first_of_its_hours() {
        let policy = |every, window: Option<&str>| ScrubPolicy {
            every,
            window: window.map(|window| window.parse().expect("hours")),
        };
        let last = at("2026-11-21T10:00:00Z");
        assert_eq!(next(&policy(ScrubEvery::Off, None), last), None);
        assert_eq!(next(&policy(ScrubEvery::Weekly, None), last), Some(at("2026-11-28T09:00:00Z")));
        assert_eq!(next(&policy(ScrubEvery::Weekly, Some("22:00-04:00")), last), Some(at("2026-11-28T22:00:00Z")));
        assert_eq!(next(&policy(ScrubEvery::Monthly, Some("08:00-12:00")), last), Some(at("2026-12-21T09:00:00Z")));
        // The time of day does not drift, though each scrub starts a little late.
        let late = at("2026-11-28T22:00:30Z");
        assert_eq!(next(&policy(ScrubEvery::Weekly, Some("22:00-04:00")), late), Some(at("2026-12-05T22:00:30Z")));
    }
}
