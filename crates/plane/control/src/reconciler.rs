//! Reconcile loop: collects events from the data plane, watches pools and disks, and starts the work that they
//! need without a request.
//!
//! The daemon runs [`Reconciler::run`] as one task. It takes the change lock like any request, and must never
//! wait for an operator.

use crate::EventFilter;
use crate::change::disks::Disks;
use crate::change::pool_recovery::{PoolRecovery, RecoveryState};
use crate::change::pools::Pools;
use crate::change::remote::RemoteDisks;
use crate::change::scrubs::Scrubs;
use crate::change::spares::{SpareMonitor, Spares};
use crate::core::Core;
use crate::refused::RefusedLogins;
use crate::status::of_stalled;
use crate::system::now;
use model::{
    DiskName, DiskState, Event, Name, Order, PoolReport, PoolState, Problem, Raised, Refusal, Report, Subject,
    SubjectKind, Timestamp, code, event,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Interval between two rounds while nothing happens.
const ROUND: Duration = Duration::from_secs(5);
/// Interval while a pool waits for its disks.
const WAITING_ROUND: Duration = Duration::from_secs(2);

/// Events in a burst that are committed one by one, and the pause after which further ones are committed
/// together.
const BURST: u32 = 16;
const BURST_PAUSE: Duration = Duration::from_millis(100);

/// Difference in seconds between system clock and monotonic clock, from one round to the next, above which the
/// clock counts as set.
const STEP_SECONDS: u64 = 30;

/// Observations of the last round, compared with the next one.
#[derive(Default)]
pub(crate) struct LastRound {
    pools: BTreeMap<Name, PoolState>,
    spare_monitor: SpareMonitor,
    /// Version of the state that the pool disks have a copy of.
    copied: u64,
    /// True while the state folder is not the one that was opened.
    replaced: bool,
    /// Disks that did not answer.
    stalled: BTreeSet<DiskName>,
    /// Time of the last full round.
    pub(crate) looked: Option<Instant>,
    /// Lost remote disks, with the time of the last attempt to return each.
    returning: BTreeMap<DiskName, Instant>,
    /// Pools whose scrub is overdue.
    overdue: BTreeSet<Name>,
    /// Waiting times of pools that are not open.
    waits: RecoveryState,
}

/// Reconcile loop: periodic work that no request starts.
pub struct Reconciler {
    pub(crate) core: Arc<Core>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) spares: Arc<Spares>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) remote_disks: Arc<RemoteDisks>,
    pub(crate) pool_recovery: Arc<PoolRecovery>,
    pub(crate) refused_logins: Arc<RefusedLogins>,
    pub(crate) last_round: tokio::sync::Mutex<LastRound>,
}

impl Reconciler {
    /// Runs rounds until the data plane is gone.
    pub async fn run(self: Arc<Self>) {
        let mut heard: Result<_, Refusal> = Ok(Vec::new());
        let mut without_pause = 0;
        // The request stays open across rounds: its answer is delivered once, and dropping the future would
        // lose it.
        let mut hearing = Box::pin(self.next_events());
        let mut clock = Clock { wall: now(), steady: Instant::now() };
        loop {
            match heard {
                Ok(raised) => {
                    if let Err(refusal) = self.handle_events(raised).await {
                        tracing::warn!(%refusal, "the array could not be seen to");
                    }
                }
                Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                Err(refusal) => {
                    tracing::error!(%refusal, "the data plane delivers no events");
                    sleep(ROUND).await;
                }
            }
            let later = Clock { wall: now(), steady: Instant::now() };
            if let Some(sentence) = clock.step_to(&later) {
                self.core.raise(
                    event::CLOCK_STEPPED,
                    Subject::new(SubjectKind::Node, &self.core.settings.node),
                    sentence,
                );
            }
            clock = later;
            let quiet_since = Instant::now();
            // A pool that waits for disks is checked more often, because hosts see its LUNs as not ready.
            let round = if self.pool_recovery.is_waiting() { WAITING_ROUND } else { ROUND };
            heard = match timeout(round, &mut hearing).await {
                Ok(heard) => {
                    hearing = Box::pin(self.next_events());
                    heard
                }
                Err(_) => Ok(Vec::new()),
            };
            // Back-pressure on event storms: after a burst, one commit per pause instead of one per event.
            without_pause = if quiet_since.elapsed() > BURST_PAUSE { 0 } else { without_pause + 1 };
            if without_pause > BURST {
                sleep(BURST_PAUSE).await;
            }
        }
    }

    /// Waits for the next events of the data plane.
    pub async fn next_events(&self) -> Result<Vec<Raised>, Refusal> {
        match self.core.engine.ask(Order::NextEvents).await? {
            Report::Events(raised) => Ok(raised),
            other => Err(crate::engine::unexpected(&other)),
        }
    }

    /// Logs the events and runs a round. Events of disks and pools start one immediately; events of hosts and
    /// portals, which unknown initiators can cause at will, at most one per `ROUND`.
    pub async fn handle_events(&self, raised: Vec<Raised>) -> Result<(), Refusal> {
        let mut seen = self.last_round.lock().await;
        let is_news = raised.is_empty() || raised.iter().any(|raised| concerns_disks(raised.subject.kind));
        if let Err(refusal) = self.core.events.add(&self.core.store, raised) {
            // A full or failing state disk must not keep a failed member from getting its spare.
            tracing::error!(%refusal, "an event could not be recorded");
        }
        if !is_news && seen.looked.is_some_and(|looked| looked.elapsed() < ROUND) {
            return Ok(());
        }
        // Before the work, so that a round that fails is not repeated by each event of a host.
        seen.looked = Some(Instant::now());
        self.note_replaced(&mut seen.replaced);
        let pools = self.pools.list().await?;
        // States are compared before and after the work below, so that each transition is an event of its own.
        self.note_pool_states(&pools, &mut seen.pools);
        self.note_stalled(&pools, &mut seen.stalled).await?;
        if self.core.store.serves_older() {
            // An older version may list a disk as spare that holds data by now.
            return self.refused_logins.note().await;
        }
        self.keep_copies(&mut seen.copied).await;
        // Members that return come before spares: rebuilding is not needed where the disk is back.
        self.pool_recovery.run_round(&mut seen.waits).await?;
        self.remote_disks.return_lost(&mut seen.returning).await?;
        self.spares.place(&mut seen.spare_monitor).await?;
        // Listed again, because a spare may have changed the state of its pool.
        self.note_pool_states(&self.pools.list().await?, &mut seen.pools);
        let scrubs = self.scrubs.run_due(now(), &mut seen.overdue).await;
        // Denied logins are recorded even where the schedule of scrubs has failed.
        scrubs.and(self.refused_logins.note().await)
    }

    /// Returns the events, oldest first, after the round in progress.
    // Waits for a round in progress, so that a query after a failure sees what the round has logged.
    pub async fn events(&self, wanted: EventFilter) -> Vec<Event> {
        let _seen = self.last_round.lock().await;
        self.core.events.list(wanted)
    }

    /// Raises an event when the state folder was deleted, moved or replaced since the last round.
    fn note_replaced(&self, was_replaced: &mut bool) {
        let replaced = self.core.hold().filter(|refusal| refusal.code == code::STATE_REPLACED);
        if let Some(refusal) = replaced.as_ref().filter(|_| !*was_replaced) {
            let node = Subject::new(SubjectKind::Node, &self.core.settings.node);
            self.core.raise(event::STATE_REPLACED, node, refusal.message.clone());
        }
        *was_replaced = replaced.is_some();
    }

    /// Writes a copy of the latest state to the disks of all pools, for disaster recovery. The daemon never
    /// reads them.
    async fn keep_copies(&self, copied: &mut u64) {
        if *copied == self.core.store.version() || self.core.state().pools.is_empty() {
            return;
        }
        let Some((version, bytes)) = self.core.store.file_of_present() else { return };
        if let Err(refusal) = self.core.engine.done(Order::KeepState { version, bytes: bytes.into() }).await {
            tracing::warn!(%refusal, "the latest state could not be copied to the disks of pools");
        }
        // Set after a failure as well: the next version is tried, not the same one in each round.
        *copied = version;
    }

    /// Raises an event when a disk stops answering, and when it answers again.
    async fn note_stalled(&self, pools: &[PoolReport], seen: &mut BTreeSet<DiskName>) -> Result<(), Refusal> {
        let disks = self.disks.list().await?;
        let stalled = disks.iter().filter_map(|disk| Some((disk.name.clone()?, of_stalled(disk, pools)?)));
        let stalled: BTreeMap<DiskName, Problem> = stalled.collect();
        for (name, problem) in stalled.iter().filter(|(name, _)| !seen.contains(*name)) {
            let sentence = format!("disk {name} does not respond: {}", problem.meaning);
            self.core.raise(event::DISK_STALLED, Subject::disk(name), sentence);
        }
        // A disk that its pool has failed is no longer waited for, but has not answered either.
        let serves = |name: &&DiskName| {
            let disk = disks.iter().find(|disk| disk.name.as_ref() == Some(*name));
            disk.is_some_and(|disk| !matches!(disk.state, DiskState::Failed | DiskState::Missing))
        };
        for name in seen.iter().filter(|name| !stalled.contains_key(*name)).filter(serves) {
            self.core.raise(event::DISK_ANSWERS, Subject::disk(name), format!("disk {name} responds again"));
        }
        *seen = stalled.into_keys().collect();
        Ok(())
    }

    /// Raises an event when the state of a pool has changed since the last round.
    fn note_pool_states(&self, pools: &[PoolReport], seen: &mut BTreeMap<Name, PoolState>) {
        for pool in pools {
            let before = seen.insert(pool.name.clone(), pool.state);
            if before == Some(pool.state) {
                continue;
            }
            let name = &pool.name;
            let (code, sentence) = match (before, pool.state) {
                // Rebuilds have their own events, and so have fenced pools and pools that failed to open at
                // start.
                (None, PoolState::Healthy | PoolState::Missing) | (_, PoolState::Rebuilding) => continue,
                (_, PoolState::Failed) if pool.fenced.is_some() => continue,
                // Pool recovery closed the failed pool in order to open it again.
                (Some(PoolState::Failed), PoolState::Missing) => continue,
                (_, PoolState::Healthy) if !pool.lost.is_empty() => {
                    let sentence = format!(
                        "all members of pool {name} are in sync again, but {} are lost; blockyard pool show \
                         {name} lists them",
                        pool.lost.amount()
                    );
                    (event::POOL_WHOLE, sentence)
                }
                (_, PoolState::Healthy) => (event::POOL_WHOLE, format!("pool {name} is healthy")),
                (_, PoolState::Degraded) => {
                    let meaning = crate::status::spare_failures(pool);
                    (event::POOL_DEGRADED, format!("pool {name} is degraded: {meaning}"))
                }
                (_, PoolState::Failed) => {
                    let sentence = format!("pool {name} has failed: more disks are lost than its redundancy covers");
                    (event::POOL_FAILED, sentence)
                }
                (_, PoolState::Missing) => {
                    let sentence = format!("pool {name} is not open; {} shows the reason", pool.import_command());
                    (event::POOL_UNOPENED, sentence)
                }
            };
            self.core.raise(code, Subject::pool(name), sentence);
        }
        // A pool that is imported again starts without a state of before.
        seen.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
    }
}

/// Returns true where the event may have changed what disks and pools need.
fn concerns_disks(kind: SubjectKind) -> bool {
    match kind {
        SubjectKind::Disk | SubjectKind::Pool | SubjectKind::Volume | SubjectKind::Node => true,
        SubjectKind::Host | SubjectKind::Portal | SubjectKind::Receiver => false,
    }
}

/// One instant by the system clock and by the monotonic clock.
struct Clock {
    wall: Timestamp,
    steady: Instant,
}

impl Clock {
    /// Describes how the system clock was set between the two instants; `None` when it was not.
    fn step_to(&self, later: &Self) -> Option<String> {
        let expected = self.wall.plus(later.steady.duration_since(self.steady).as_secs());
        let seconds = expected.apart(later.wall);
        let (way, consequence) = match later.wall > expected {
            true => ("on", "snapshot locks may expire earlier"),
            false => ("back", "snapshot locks last longer"),
        };
        let sentence =
            || format!("the system's clock was set {way} by {seconds} seconds, to {}; {consequence}", later.wall);
        (seconds > STEP_SECONDS).then(sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_is_set_is_told_from_one_that_goes() {
        let before = Clock { wall: Timestamp::from_unix(1_000_000), steady: Instant::now() };
        let after = |wall: u64, steady: u64| {
            let steady = before.steady + Duration::from_secs(steady);
            before.step_to(&Clock { wall: Timestamp::from_unix(1_000_000).plus(wall), steady })
        };
        assert_eq!(after(5, 5), None);
        assert_eq!(after(3600, 3610), None, "it is drawn near");
        assert!(after(3605, 5).expect("set").contains("set on by 3600 seconds"));
        assert!(after(0, 3600).expect("set").contains("set back by 3600 seconds"));
    }
}
