//! Scrubs: begun by operators and by the clock, held outside of their hours, and remembered.

use crate::change::pools::Pools;
use crate::core::{Core, Turn};
use crate::request::StartScrub;
use crate::state::PoolRecord;
use model::{Name, Order, PoolReport, PoolState, Refusal, ScrubPolicy, ScrubReport, ScrubState, Timestamp};
use std::sync::Arc;

/// How many scrubs of a pool are remembered.
const SCRUBS_KEPT: usize = 12;

/// A scrub may begin so many seconds before its time: the hour of the day must not wander.
const EARLY: u64 = 3600;

/// A day.
const DAY: u64 = 86_400;

/// Scrubs of pools, begun by operators or by the clock.
pub struct Scrubs {
    pub(crate) core: Arc<Core>,
    pub(crate) pools: Arc<Pools>,
}

impl Scrubs {
    /// Everything that the pool's volumes hold is being read and compared.
    ///
    /// *Errors*: there is no such pool, it is not open or does not serve, or a scrub runs already.
    pub async fn start(&self, name: &Name, request: StartScrub) -> Result<PoolReport, Refusal> {
        let turn = self.core.turn().await;
        self.pools.admit_open(name).await?;
        self.begin(&turn, name, request.repairs, false).await?;
        drop(turn);
        self.pools.report(name).await
    }

    /// The scrub of the pool ends.
    ///
    /// *Errors*: there is no such pool, or no scrub of it runs.
    pub async fn stop(&self, name: &Name) -> Result<(), Refusal> {
        let _turn = self.core.turn().await;
        self.pools.admit_open(name).await?;
        self.core.engine.pool(Order::StopScrub { pool: name.clone() }).await.map(|_| ())
    }

    /// The scrubs of the pool that are remembered, and the one that runs, oldest first.
    ///
    /// *Errors*: there is no such pool.
    pub async fn list(&self, name: &Name) -> Result<Vec<ScrubReport>, Refusal> {
        let latest = self.pools.report(name).await?.scrub;
        let state = self.core.state();
        let mut scrubs = state.pools.get(name).map(|record| record.scrubs.clone()).unwrap_or_default();
        if let Some(latest) = latest {
            scrubs.retain(|scrub| scrub.started != latest.started);
            scrubs.push(latest);
        }
        Ok(scrubs)
    }

    async fn begin(&self, turn: &Turn<'_>, name: &Name, repairs: bool, by_clock: bool) -> Result<(), Refusal> {
        let pool = self.core.engine.pool(Order::StartScrub { pool: name.clone(), repairs }).await?;
        self.core.commit(turn, |state| {
            if let Some(record) = state.pools.get_mut(name) {
                record.clocked = pool.scrub.filter(|_| by_clock).map(|scrub| scrub.started);
            }
        })
    }

    /// What scrubs have found is remembered, and those whose time has come are begun, held or let go on.
    pub(crate) async fn run_due(&self, now: Timestamp) -> Result<(), Refusal> {
        if self.core.state().pools.values().all(PoolRecord::needs_no_scrub) && !self.any().await? {
            return Ok(());
        }
        let turn = self.core.turn().await;
        for pool in self.core.engine.pools(Order::Pools).await? {
            let state = self.core.state();
            let Some(record) = state.pools.get(&pool.name) else { continue };
            if let Some(ended) = pool.scrub.as_ref().filter(|scrub| !scrub.state.runs() && !record.remembers(scrub)) {
                self.core.commit(&turn, |state| state.remember(&pool.name, ended))?;
            }
            let open = record.policy.scrub.window.is_none_or(|window| window.holds(now.second_of_day()));
            match pool.scrub.as_ref().map(|scrub| (scrub.state, record.clocked == Some(scrub.started))) {
                Some((ScrubState::Running, true)) if !open => self.hold(&pool.name, true).await?,
                Some((ScrubState::Waiting, _)) if open => self.hold(&pool.name, false).await?,
                Some((state, _)) if state.runs() => {}
                latest => {
                    // One that the daemon's end cut short is begun anew.
                    let cut_short = latest.is_none() && record.clocked.is_some();
                    if pool.state == PoolState::Healthy && open && (cut_short || record.is_due(now)) {
                        self.hold(&pool.name, false).await?;
                        self.begin(&turn, &pool.name, false, true).await?;
                    }
                }
            }
        }
        Ok(())
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

    /// When the last scrub began, or they were asked for.
    fn last_scrub(&self) -> Option<Timestamp> {
        self.scrubs.last().map(|scrub| scrub.started).max(self.scrub_since)
    }

    fn is_due(&self, now: Timestamp) -> bool {
        // One of the future began while the clock was wrong, and says nothing.
        let last = self.last_scrub().filter(|last| *last <= now.plus(EARLY)).unwrap_or_default();
        self.policy.scrub.every.seconds().is_some_and(|every| now.since(last) + EARLY >= every)
    }

    /// When the next scrub begins by itself.
    pub(crate) fn next_scrub(&self) -> Option<Timestamp> {
        next(&self.policy.scrub, self.last_scrub()?)
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

/// When a scrub begins by itself after the one at `last`: in the first of its hours then.
fn next(policy: &ScrubPolicy, last: Timestamp) -> Option<Timestamp> {
    let due = last.plus(policy.every.seconds()?.saturating_sub(EARLY));
    let Some(window) = policy.window else { return Some(due) };
    (0..DAY).step_by(60).map(|seconds| due.plus(seconds)).find(|time| window.holds(time.second_of_day()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ScrubEvery;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
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
        // The hour of the day does not wander, though each one begins a little late.
        let late = at("2026-11-28T22:00:30Z");
        assert_eq!(next(&policy(ScrubEvery::Weekly, Some("22:00-04:00")), late), Some(at("2026-12-05T22:00:30Z")));
    }
}
