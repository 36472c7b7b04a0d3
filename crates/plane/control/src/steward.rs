//! What is done without being asked: events are written down, and lost members are seen to.

use crate::Wanted;
use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::change::remote::RemoteDisks;
use crate::change::returns::{Returns, Waits};
use crate::change::scrubs::Scrubs;
use crate::change::spares::{Spares, Vigil};
use crate::core::Core;
use crate::refused::RefusedLogins;
use crate::system::now;
use crate::verdict::of_stalled;
use model::{
    DiskName, DiskState, Event, Name, Order, PoolReport, PoolState, Problem, Raised, Refusal, Report, Subject,
    SubjectKind, Timestamp, code, event,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How often everything is looked at when nothing happens.
const ROUND: Duration = Duration::from_secs(5);
/// The same while a pool waits for its disks.
const WAITING_ROUND: Duration = Duration::from_secs(2);

/// Of events without end so many are written down one by one; the next ones then wait, to be one commit.
const BURST: u32 = 16;
const BURST_PAUSE: Duration = Duration::from_millis(100);

/// What the system's clock may be off from one that nobody sets, between two looks, before it counts as set.
const STEP_SECONDS: u64 = 30;

/// What the steward has seen in its last round.
#[derive(Default)]
pub(crate) struct Seen {
    pools: BTreeMap<Name, PoolState>,
    vigil: Vigil,
    /// The version of the state that the disks of pools have a copy of.
    copied: u64,
    /// True where the state folder was not the one that was opened.
    replaced: bool,
    /// Disks that did not answer.
    stalled: BTreeSet<DiskName>,
    /// When all of the array was looked at last.
    pub(crate) looked: Option<Instant>,
    /// Remote disks that were lost, and when it was tried last to bring them back.
    returning: BTreeMap<DiskName, Instant>,
    /// Pools that no scrub has read whole for too long.
    overdue: BTreeSet<Name>,
    /// Pools that are not open.
    waits: Waits,
}

/// Work that is done without an order, in rounds.
pub struct Steward {
    pub(crate) core: Arc<Core>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) spares: Arc<Spares>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) remote_disks: Arc<RemoteDisks>,
    pub(crate) returns: Arc<Returns>,
    pub(crate) refused_logins: Arc<RefusedLogins>,
    pub(crate) seen: tokio::sync::Mutex<Seen>,
}

impl Steward {
    /// Sees to the array until the data plane is gone.
    pub async fn tend(self: Arc<Self>) {
        let mut heard: Result<_, Refusal> = Ok(Vec::new());
        let mut without_pause = 0;
        // It is kept from round to round: an answer is given once, and nobody would hear it who has stopped asking.
        let mut hearing = Box::pin(self.hear());
        let mut clock = Clock { wall: now(), steady: Instant::now() };
        loop {
            match heard {
                Ok(raised) => {
                    if let Err(refusal) = self.look_after(raised).await {
                        tracing::warn!(%refusal, "the array could not be seen to");
                    }
                }
                Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                Err(refusal) => {
                    tracing::error!(%refusal, "the data plane does not tell what happens");
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
            let round = if self.returns.is_waiting() { WAITING_ROUND } else { ROUND };
            heard = match timeout(round, &mut hearing).await {
                Ok(heard) => {
                    hearing = Box::pin(self.hear());
                    heard
                }
                Err(_) => Ok(Vec::new()),
            };
            without_pause = if quiet_since.elapsed() > BURST_PAUSE { 0 } else { without_pause + 1 };
            if without_pause > BURST {
                sleep(BURST_PAUSE).await;
            }
        }
    }

    /// What has happened since this was asked last, as soon as something has.
    pub async fn hear(&self) -> Result<Vec<Raised>, Refusal> {
        match self.core.engine.ask(Order::NextEvents).await? {
            Report::Events(raised) => Ok(raised),
            other => Err(crate::engine::unexpected(&other)),
        }
    }

    /// What was raised is written down, and everything that may need something is looked at once: not for each event of hosts and
    /// portals, of which strangers make as many as they like, but then once in a round.
    pub async fn look_after(&self, raised: Vec<Raised>) -> Result<(), Refusal> {
        let mut seen = self.seen.lock().await;
        let is_news = raised.is_empty() || raised.iter().any(|raised| concerns_disks(raised.subject.kind));
        if let Err(refusal) = self.core.events.add(&self.core.store, raised) {
            // A disk that dies meanwhile has its spare all the same.
            tracing::error!(%refusal, "what happened could not be written down");
        }
        if !is_news && seen.looked.is_some_and(|looked| looked.elapsed() < ROUND) {
            return Ok(());
        }
        seen.looked = Some(Instant::now());
        self.note_replaced(&mut seen.replaced);
        let pools = self.pools.list().await?;
        self.note_pool_states(&pools, &mut seen.pools);
        self.note_stalled(&pools, &mut seen.stalled).await?;
        if self.core.store.serves_older() {
            // An older version may call a disk a spare that holds data since.
            return self.refused_logins.note().await;
        }
        self.keep_copies(&mut seen.copied).await;
        self.returns.look(&mut seen.waits).await?;
        self.remote_disks.return_lost(&mut seen.returning).await?;
        self.spares.place(&mut seen.vigil).await?;
        self.note_pool_states(&self.pools.list().await?, &mut seen.pools);
        let scrubs = self.scrubs.run_due(now(), &mut seen.overdue).await;
        scrubs.and(self.refused_logins.note().await)
    }

    /// What has happened, oldest first, and what was made of it.
    pub async fn events(&self, wanted: Wanted) -> Vec<Event> {
        let _seen = self.seen.lock().await;
        self.core.events.list(wanted)
    }

    /// A state folder that was deleted, moved or replaced since the last look is an event.
    fn note_replaced(&self, was_replaced: &mut bool) {
        let replaced = self.core.hold().filter(|refusal| refusal.code == code::STATE_REPLACED);
        if let Some(refusal) = replaced.as_ref().filter(|_| !*was_replaced) {
            let node = Subject::new(SubjectKind::Node, &self.core.settings.node);
            self.core.raise(event::STATE_REPLACED, node, refusal.message.clone());
        }
        *was_replaced = replaced.is_some();
    }

    /// The disks of all pools have a copy of the state as it is: for who loses its folder, and never read by the daemon.
    async fn keep_copies(&self, copied: &mut u64) {
        if *copied == self.core.store.version() || self.core.state().pools.is_empty() {
            return;
        }
        let Some((version, bytes)) = self.core.store.file_of_present() else { return };
        if let Err(refusal) = self.core.engine.done(Order::KeepState { version, bytes: bytes.into() }).await {
            tracing::warn!(%refusal, "the disks of pools have no copy of the latest state");
        }
        *copied = version;
    }

    /// A disk that does not answer, and one that does so again, is an event.
    async fn note_stalled(&self, pools: &[PoolReport], seen: &mut BTreeSet<DiskName>) -> Result<(), Refusal> {
        let disks = self.disks.list().await?;
        let stalled = disks.iter().filter_map(|disk| Some((disk.name.clone()?, of_stalled(disk, pools)?)));
        let stalled: BTreeMap<DiskName, Problem> = stalled.collect();
        for (name, problem) in stalled.iter().filter(|(name, _)| !seen.contains(*name)) {
            let sentence = format!("disk {name} does not answer: {}", problem.meaning);
            self.core.raise(event::DISK_STALLED, Subject::disk(name), sentence);
        }
        // One that its pool has given up no longer waits, and has not answered.
        let serves = |name: &&DiskName| {
            let disk = disks.iter().find(|disk| disk.name.as_ref() == Some(*name));
            disk.is_some_and(|disk| !matches!(disk.state, DiskState::Failed | DiskState::Missing))
        };
        for name in seen.iter().filter(|name| !stalled.contains_key(*name)).filter(serves) {
            self.core.raise(event::DISK_ANSWERS, Subject::disk(name), format!("disk {name} answers again"));
        }
        *seen = stalled.into_keys().collect();
        Ok(())
    }

    /// A pool that is better or worse than at the last look is an event.
    fn note_pool_states(&self, pools: &[PoolReport], seen: &mut BTreeMap<Name, PoolState>) {
        for pool in pools {
            let before = seen.insert(pool.name.clone(), pool.state);
            if before == Some(pool.state) {
                continue;
            }
            let name = &pool.name;
            let (code, sentence) = match (before, pool.state) {
                // Filling has its own events, and so has a pool that another owner has, or that could not be opened at the start.
                (None, PoolState::Healthy | PoolState::Missing) | (_, PoolState::Rebuilding) => continue,
                (_, PoolState::Failed) if pool.fenced.is_some() => continue,
                // It was closed so that it can be opened again.
                (Some(PoolState::Failed), PoolState::Missing) => continue,
                (_, PoolState::Healthy) if !pool.lost.is_empty() => {
                    let sentence = format!(
                        "all members of pool {name} are in sync again, and {} are lost; blockyard pool show {name} lists them",
                        pool.lost.amount()
                    );
                    (event::POOL_WHOLE, sentence)
                }
                (_, PoolState::Healthy) => (event::POOL_WHOLE, format!("pool {name} is whole again")),
                (_, PoolState::Degraded) => {
                    let meaning = crate::verdict::spare_failures(pool);
                    (event::POOL_DEGRADED, format!("pool {name} is degraded: {meaning}"))
                }
                (_, PoolState::Failed) => {
                    let sentence = format!("pool {name} has failed: more disks are lost than it bears");
                    (event::POOL_FAILED, sentence)
                }
                (_, PoolState::Missing) => {
                    let sentence = format!("pool {name} is not open; {} says why", pool.import_command());
                    (event::POOL_UNOPENED, sentence)
                }
            };
            self.core.raise(code, Subject::pool(name), sentence);
        }
        seen.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
    }
}

/// True where what happened may have changed what disks and pools need.
fn concerns_disks(kind: SubjectKind) -> bool {
    match kind {
        SubjectKind::Disk | SubjectKind::Pool | SubjectKind::Volume | SubjectKind::Node => true,
        SubjectKind::Host | SubjectKind::Portal | SubjectKind::Receiver => false,
    }
}

/// One instant by the system's clock, and by one that nobody sets.
struct Clock {
    wall: Timestamp,
    steady: Instant,
}

impl Clock {
    /// How the system's clock was set between the two instants, as a sentence; nothing when it was not.
    fn step_to(&self, later: &Self) -> Option<String> {
        let expected = self.wall.plus(later.steady.duration_since(self.steady).as_secs());
        let seconds = expected.apart(later.wall);
        let (way, consequence) = match later.wall > expected {
            true => ("on", "locks of snapshots end by it"),
            false => ("back", "locks of snapshots last longer by it"),
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
