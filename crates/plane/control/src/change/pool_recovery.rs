//! Automatic opening of pools whose disks return. In each round of the reconcile loop the disks of closed pools
//! are searched, and a pool is opened when enough of them are there. Members that were absent when their pool
//! was opened are returned to it.
//!
//! The sense data of LUNs meanwhile is defined in `docs/adr/0025-luns-without-a-device.md`. Nothing here takes
//! a pool from another node, accepts a loss of data, or opens a pool that an operator has exported.

mod disk_search;
mod wait;

use crate::access::Access;
use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::state::PoolRecord;
use disk_search::DiskSearch;
use model::{
    Backend, Code, DiskId, DiskName, MemberState, Name, Order, PoolReport, PoolState, PoolWaiting, Refusal, Subject,
    code, event, first_few,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::{Attempt, Failures, Wait};

/// Default time that a pool waits for absent disks before it opens degraded.
const DEFAULT_DISK_WAIT: Duration = Duration::from_millis(model::DISK_WAIT.millis());
/// Interval between attempts to return a member.
const RETURN_INTERVAL: Duration = Duration::from_secs(15);

/// Monitor that opens pools whose disks return, and closes failed ones.
pub(crate) struct PoolRecovery {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) volumes: Arc<Volumes>,
}

/// Results of earlier rounds.
pub(crate) struct RecoveryState {
    began: Instant,
    pools: BTreeMap<Name, Wait>,
    failures: BTreeMap<Name, Failures>,
    finding: DiskSearch,
    /// Members with an attempt to return them, and its time since the start.
    returned: BTreeMap<DiskId, Duration>,
}

impl Default for RecoveryState {
    fn default() -> Self {
        let (pools, failures, finding, returned) = Default::default();
        Self { began: Instant::now(), pools, failures, finding, returned }
    }
}

impl PoolRecovery {
    /// Returns true while a pool is not open.
    pub(crate) fn is_waiting(&self) -> bool {
        self.access.closed_pools.is_waiting()
    }

    /// Runs one round.
    ///
    /// *Errors*: the data plane is gone, or the state cannot be written.
    pub(crate) async fn run_round(&self, waits: &mut RecoveryState) -> Result<(), Refusal> {
        let reports = self.core.engine.pools(Order::Pools).await?;
        let mut open: BTreeSet<Name> = reports.iter().map(|pool| pool.name.clone()).collect();
        // Closing a failed pool comes first, so that this round can already try to open it again.
        for pool in reports.iter().filter(|pool| has_failed(pool)) {
            if self.close_failed(waits, pool).await? {
                open.remove(&pool.name);
            }
        }
        let state = self.core.state();
        waits.pools.retain(|name, _| state.pools.contains_key(name) && !open.contains(name));
        self.access.closed_pools.retain(|name| state.pools.contains_key(name) && !open.contains(name));
        for (name, record) in state.pools.iter().filter(|(name, _)| !open.contains(*name)) {
            self.try_open(waits, name, record).await?;
        }
        // Pools that were opened in this round follow in the next one, because `reports` does not have them.
        for pool in &reports {
            self.put_members_back(waits, pool).await?;
        }
        // Volumes in files have no pool: their files may return as well.
        self.open_files().await?;
        self.volumes.note_shapes().await
    }

    /// Closes a pool that has failed, so that it can be opened again; its presentations stay. Returns false
    /// where it cannot be closed.
    async fn close_failed(&self, waits: &mut RecoveryState, pool: &PoolReport) -> Result<bool, Refusal> {
        // The write lock keeps imports out while disks are inspected: an inspected disk cannot be opened.
        let _alone = self.pools.opening.write().await;
        // A change in progress is not waited for; the next round tries again.
        let Some(turn) = self.core.try_lock_changes() else { return Ok(false) };
        let name = &pool.name;
        if let Err(refusal) = self.core.engine.done(Order::ClosePool { pool: name.clone() }).await {
            tracing::warn!(pool = %name, %refusal, "a pool that has failed cannot be closed");
            return Ok(false);
        }
        drop(turn);
        tracing::warn!(pool = %name, "a pool that has failed is closed, and opened again when its disks are there");
        // Back-off against flapping: each further failure within an hour delays the next attempt.
        let now = waits.began.elapsed();
        let not_before = waits.failures.entry(name.clone()).or_default().note(now);
        waits.pools.insert(name.clone(), Wait::since(now, not_before));
        let why = "more disks are lost than its redundancy covers; it waits for them".to_owned();
        self.note(
            name,
            PoolWaiting { reason: why, needs_operator: false, hint: None, disks: Vec::new(), degraded_in_s: None },
        )
        .await?;
        Ok(true)
    }

    /// Opens the pool if an attempt is due.
    async fn try_open(&self, waits: &mut RecoveryState, name: &Name, record: &PoolRecord) -> Result<(), Refusal> {
        let _alone = self.pools.opening.write().await;
        let present = self.find(&mut waits.finding, record).await?;
        let state = self.core.state();
        let (now, patience) = (waits.began.elapsed(), disk_wait(record));
        // First seen closed in this round: the waiting time starts now.
        let wait = waits.pools.entry(name.clone()).or_insert_with(|| Wait::since(now, now));
        let attempt = wait.judge(now, &present, patience);
        let ids: BTreeSet<DiskId> = present.iter().filter_map(|disk| state.disks.get(disk)?.id).collect();
        let members = state.disks.iter().filter(|(_, disk)| disk.id.is_some_and(|id| record.members.contains(&id)));
        let absent: Vec<DiskName> =
            members.filter(|(disk, _)| !present.contains(*disk)).map(|(disk, _)| disk.clone()).collect();
        // Compared by identity, because a member without a known disk has no name here.
        let all_there = ids.len() >= record.members.len();
        let degraded_in_s = wait.degraded_in(now, patience).map(|left| left.as_secs());
        let refusal = match attempt {
            Some(attempt) => {
                let order = record.order(attempt == Attempt::Whole);
                match self.core.engine.pool(order).await {
                    Ok(pool) => {
                        // No disk is inspected any more, so imports need not wait for the rest.
                        drop(_alone);
                        waits.pools.remove(name);
                        return self.settle(&pool).await;
                    }
                    Err(refusal) => Some(refusal),
                }
            }
            None => None,
        };
        let before = self.access.closed_pools.of(name);
        let (why, needs_operator, hint) = match (refusal, before) {
            (Some(refusal), _) if needs_operator(refusal.code, all_there) => {
                (refusal.message.clone(), true, advice(&refusal, name))
            }
            // A degraded attempt was refused: its reason says more than the names of absent disks.
            (Some(refusal), _) if attempt == Some(Attempt::Degraded) => (refusal.message, false, None),
            // Same disks as in the last round: the reason of the last attempt still holds.
            (None, Some(before)) if before.disks == absent => (before.reason, before.needs_operator, before.hint),
            _ => (waits_for(&absent), false, None),
        };
        self.note(name, PoolWaiting { reason: why, needs_operator, hint, disks: absent, degraded_in_s }).await
    }

    /// Applies the settings of a pool that is open again, and of its volumes, and admits its hosts.
    async fn settle(&self, pool: &PoolReport) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        // Before `apply`, which marks the LUNs of closed pools.
        self.access.closed_pools.forget(&pool.name);
        tracing::info!(pool = %pool.name, state = ?pool.state, "a pool is open again");
        self.pools.settle(&turn, pool).await?;
        // Volumes may have been deleted while another node had the pool.
        self.access.drop_dangling(&turn).await?;
        self.volumes.learn_shapes(&turn).await?;
        // Last, because it publishes the presentations and shapes that were settled above.
        self.access.apply().await
    }

    async fn note(&self, pool: &Name, waiting: PoolWaiting) -> Result<(), Refusal> {
        if self.access.closed_pools.note(pool, waiting) {
            return self.access.apply().await;
        }
        Ok(())
    }

    /// Returns members that were absent when their pool was opened; they are resynchronized by the data plane.
    async fn put_members_back(&self, waits: &mut RecoveryState, pool: &PoolReport) -> Result<(), Refusal> {
        let state = self.core.state();
        let Some(record) = state.pools.get(&pool.name).filter(|_| may_get_members(pool)) else { return Ok(()) };
        let missing = pool.members().filter(|member| member.state == MemberState::Missing);
        let missing: BTreeSet<DiskId> = missing.map(|member| member.id).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let _alone = self.pools.opening.write().await;
        // A copy of the record limits the search to the missing members.
        let of_missing = PoolRecord { members: missing, ..record.clone() };
        for disk in self.find(&mut waits.finding, &of_missing).await? {
            let Some(id) = state.disks.get(&disk).and_then(|disk| disk.id) else { continue };
            let now = waits.began.elapsed();
            // A member that was refused is retried at this interval, not in each round.
            if waits.returned.get(&id).is_some_and(|last| now - *last < RETURN_INTERVAL) {
                continue;
            }
            // Noted before the attempt, so that the interval holds after a refusal as well.
            waits.returned.insert(id, now);
            match self.core.engine.pool(Order::ReturnDisk { disk: disk.clone(), member: id }).await {
                Ok(_) => tracing::info!(%disk, "an absent member rejoined its slot"),
                Err(refusal) => tracing::info!(%disk, %refusal, "a member that is there again is not taken back"),
            }
        }
        Ok(())
    }

    /// Opens volumes whose file or device could not be opened before.
    async fn open_files(&self) -> Result<(), Refusal> {
        let state = self.core.state();
        if !state.volumes.values().any(|record| matches!(record.backend, Backend::File { .. })) {
            return Ok(());
        }
        // Sorted by the data plane, as the binary search needs it.
        let open = self.core.engine.volume_names(Order::VolumeNames).await?;
        let lost = state.volumes.iter().filter(|(name, record)| {
            matches!(record.backend, Backend::File { .. }) && open.binary_search(name).is_err()
        });
        for (name, record) in lost {
            let Some(_turn) = self.core.try_lock_changes() else { return Ok(()) };
            // The volume may have been deleted since the list was read.
            if !self.core.state().volumes.contains_key(name) {
                continue;
            }
            match self.core.engine.volume(Order::CreateVolume(record.spec(name))).await {
                Ok(_) => tracing::info!(volume = %name, "the file of a volume is there again"),
                Err(refusal) => tracing::debug!(volume = %name, %refusal, "not there yet"),
            }
        }
        Ok(())
    }
}

impl Pools {
    /// Opens the pool at start as recorded. A pool with absent disks stays closed and waits for them.
    pub(crate) async fn open_at_start(&self, name: &Name, record: &PoolRecord) -> Option<PoolReport> {
        let mut opened = self.core.engine.pool(record.order(true)).await;
        // With a waiting time of zero the policy says to open degraded immediately.
        if opened.as_ref().is_err_and(|refusal| refusal.code == code::POOL_WAITING) && disk_wait(record).is_zero() {
            opened = self.core.engine.pool(record.order(false)).await;
        }
        let refusal = match opened {
            Ok(pool) => return Some(pool),
            Err(refusal) => refusal,
        };
        // No report has been read yet, so a pool with too few disks counts as one with absent disks.
        let needs_operator = needs_operator(refusal.code, false);
        let sentence = match needs_operator {
            true => format!("pool {name} could not be opened: {refusal}"),
            false => {
                format!("pool {name} is not open; it opens by itself when its disks are available: {}", refusal.message)
            }
        };
        tracing::error!(pool = %name, "{sentence}");
        // An event at start only; later attempts are not reported one by one.
        self.core.raise(event::POOL_UNOPENED, Subject::pool(name), sentence);
        let hint = advice(&refusal, name).filter(|_| needs_operator);
        let (why, disks) = (refusal.message, Vec::new());
        self.access
            .closed_pools
            .note(name, PoolWaiting { reason: why, needs_operator, hint, disks, degraded_in_s: None });
        None
    }
}

fn disk_wait(record: &PoolRecord) -> Duration {
    record.policy.wait.map_or(DEFAULT_DISK_WAIT, |span| Duration::from_millis(span.millis()))
}

/// Returns true for a pool that lost more members than it tolerates, unless it is fenced or read-only.
fn has_failed(pool: &PoolReport) -> bool {
    // A fenced pool has another owner by now, so it is not opened again.
    pool.state == PoolState::Failed && pool.fenced.is_none() && pool.read_only.is_none()
}

fn may_get_members(pool: &PoolReport) -> bool {
    // A reshape has to finish before members can return.
    pool.state != PoolState::Failed
        && pool.read_only.is_none()
        && pool.groups.iter().all(|group| group.reshape.is_none())
}

/// Returns true where a pool refused with `code` cannot open by itself, whatever disks return. If all members
/// are there and still too few are usable, no further disk helps.
fn needs_operator(code: Code, all_there: bool) -> bool {
    match code {
        // These pass when disks return, or when another operation on the pool ends.
        code::POOL_WAITING | code::POOL_OUTDATED | code::POOL_BUSY | code::DISK_UNREADABLE | code::POOL_FAILED => false,
        code::POOL_INCOMPLETE => all_there,
        _ => true,
    }
}

/// Returns the advice for a pool that another node owns, or that is split; for other reasons the import gives
/// it.
fn advice(refusal: &Refusal, pool: &Name) -> Option<String> {
    match refusal.code {
        code::POOL_OWNED | code::POOL_NOT_RELEASED => Some(format!(
            "to use it here, export it on that node or shut that node down, then run blockyard pool import {pool}"
        )),
        code::POOL_SPLIT => Some(refusal.hint.clone()),
        _ => None,
    }
}

fn waits_for(absent: &[DiskName]) -> String {
    match absent {
        [] => "it waits for its disks".to_owned(),
        [disk] => format!("it waits for disk {disk}"),
        disks => format!("it waits for disks {}", first_few(disks.iter(), 5)),
    }
}
