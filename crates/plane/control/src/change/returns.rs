//! Pools that are not open: their disks are looked for in each round of the steward, and each pool is opened when enough of them are
//! there. Members that were absent when their pool was opened are put back.
//!
//! What hosts are told meanwhile is in `docs/adr/0025-luns-without-a-device.md`. Nothing here takes a pool from another node,
//! accepts a loss, or opens a pool that an operator has exported.

mod finding;
mod wait;

use crate::access::Access;
use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::state::PoolRecord;
use finding::Finding;
use model::{
    Backend, Code, DiskId, DiskName, MemberState, Name, Order, PoolReport, PoolState, PoolWaiting, Refusal, Subject,
    code, event, first_few,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::{Attempt, Failures, Wait};

/// How long disks that are absent are waited for before a pool opens without them, unless something else is set.
const PATIENCE: Duration = Duration::from_millis(model::DISK_WAIT.millis());
/// How often it is tried to put a member back.
const RETURN_INTERVAL: Duration = Duration::from_secs(15);

/// Opens pools whose disks come, and closes those that have failed.
pub(crate) struct Returns {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) volumes: Arc<Volumes>,
}

/// What was found in earlier rounds.
pub(crate) struct Waits {
    began: Instant,
    pools: BTreeMap<Name, Wait>,
    failures: BTreeMap<Name, Failures>,
    finding: Finding,
    /// Members that it was tried to put back, and when.
    returned: BTreeMap<DiskId, Duration>,
}

impl Default for Waits {
    fn default() -> Self {
        let (pools, failures, finding, returned) = Default::default();
        Self { began: Instant::now(), pools, failures, finding, returned }
    }
}

impl Returns {
    /// True while something is waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.access.absences.is_waiting()
    }

    /// One round.
    ///
    /// *Errors*: the data plane is gone, or the state cannot be written.
    pub(crate) async fn look(&self, waits: &mut Waits) -> Result<(), Refusal> {
        let reports = self.core.engine.pools(Order::Pools).await?;
        let mut open: BTreeSet<Name> = reports.iter().map(|pool| pool.name.clone()).collect();
        for pool in reports.iter().filter(|pool| has_failed(pool)) {
            if self.close_failed(waits, pool).await? {
                open.remove(&pool.name);
            }
        }
        let state = self.core.state();
        waits.pools.retain(|name, _| state.pools.contains_key(name) && !open.contains(name));
        self.access.absences.retain(|name| state.pools.contains_key(name) && !open.contains(name));
        for (name, record) in state.pools.iter().filter(|(name, _)| !open.contains(*name)) {
            self.look_for_pool(waits, name, record).await?;
        }
        for pool in &reports {
            self.put_members_back(waits, pool).await?;
        }
        self.open_files().await?;
        self.volumes.note_shapes().await
    }

    /// The pool, which serves nothing any more, is closed, so that it can be opened again; its presentations stay. False where it
    /// cannot be closed.
    async fn close_failed(&self, waits: &mut Waits, pool: &PoolReport) -> Result<bool, Refusal> {
        let _alone = self.pools.opening.write().await;
        let Some(turn) = self.core.turn_now() else { return Ok(false) };
        let name = &pool.name;
        if let Err(refusal) = self.core.engine.done(Order::ClosePool { pool: name.clone() }).await {
            tracing::warn!(pool = %name, %refusal, "a pool that has failed cannot be closed");
            return Ok(false);
        }
        drop(turn);
        tracing::warn!(pool = %name, "a pool that has failed is closed, and opened again when its disks are there");
        let now = waits.began.elapsed();
        let not_before = waits.failures.entry(name.clone()).or_default().note(now);
        waits.pools.insert(name.clone(), Wait::since(now, not_before));
        let why = "more disks are lost than it bears, and it waits for them".to_owned();
        self.note(name, PoolWaiting { why, needs_operator: false, hint: None, disks: Vec::new(), degraded_in_s: None })
            .await?;
        Ok(true)
    }

    /// The pool is opened, if that is to be tried now.
    async fn look_for_pool(&self, waits: &mut Waits, name: &Name, record: &PoolRecord) -> Result<(), Refusal> {
        let _alone = self.pools.opening.write().await;
        let present = self.find(&mut waits.finding, record).await?;
        let state = self.core.state();
        let (now, patience) = (waits.began.elapsed(), patience(record));
        let wait = waits.pools.entry(name.clone()).or_insert_with(|| Wait::since(now, now));
        let attempt = wait.judge(now, &present, patience);
        let ids: BTreeSet<DiskId> = present.iter().filter_map(|disk| state.disks.get(disk)?.id).collect();
        let members = state.disks.iter().filter(|(_, disk)| disk.id.is_some_and(|id| record.members.contains(&id)));
        let absent: Vec<DiskName> =
            members.filter(|(disk, _)| !present.contains(*disk)).map(|(disk, _)| disk.clone()).collect();
        let all_there = ids.len() >= record.members.len();
        let degraded_in_s = wait.degraded_in(now, patience).map(|left| left.as_secs());
        let refusal = match attempt {
            Some(attempt) => {
                let order = record.order(attempt == Attempt::Whole);
                match self.core.engine.pool(order).await {
                    Ok(pool) => {
                        drop(_alone);
                        waits.pools.remove(name);
                        return self.settle(&pool).await;
                    }
                    Err(refusal) => Some(refusal),
                }
            }
            None => None,
        };
        let before = self.access.absences.of(name);
        let (why, needs_operator, hint) = match (refusal, before) {
            (Some(refusal), _) if needs_operator(refusal.code, all_there) => {
                (refusal.message.clone(), true, advice(&refusal, name))
            }
            // What is missing beside disks that are absent, their names say less.
            (Some(refusal), _) if attempt == Some(Attempt::Degraded) => (refusal.message, false, None),
            (None, Some(before)) if before.disks == absent => (before.why, before.needs_operator, before.hint),
            _ => (waits_for(&absent), false, None),
        };
        self.note(name, PoolWaiting { why, needs_operator, hint, disks: absent, degraded_in_s }).await
    }

    /// What was set for the pool, which is open again, and for its volumes, holds, and its hosts are let in.
    async fn settle(&self, pool: &PoolReport) -> Result<(), Refusal> {
        let turn = self.core.turn().await;
        self.access.absences.forget(&pool.name);
        tracing::info!(pool = %pool.name, state = ?pool.state, "a pool is open again");
        self.pools.settle(&turn, pool).await?;
        self.access.drop_dangling(&turn).await?;
        self.volumes.learn_shapes(&turn).await?;
        self.access.apply().await
    }

    async fn note(&self, pool: &Name, waiting: PoolWaiting) -> Result<(), Refusal> {
        if self.access.absences.note(pool, waiting) {
            return self.access.apply().await;
        }
        Ok(())
    }

    /// Members that were absent when their pool was opened, and are there now, get what they have missed.
    async fn put_members_back(&self, waits: &mut Waits, pool: &PoolReport) -> Result<(), Refusal> {
        let state = self.core.state();
        let Some(record) = state.pools.get(&pool.name).filter(|_| may_get_members(pool)) else { return Ok(()) };
        let missing = pool.members().filter(|member| member.state == MemberState::Missing);
        let missing: BTreeSet<DiskId> = missing.map(|member| member.id).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let _alone = self.pools.opening.write().await;
        let of_missing = PoolRecord { members: missing, ..record.clone() };
        for disk in self.find(&mut waits.finding, &of_missing).await? {
            let Some(id) = state.disks.get(&disk).and_then(|disk| disk.id) else { continue };
            let now = waits.began.elapsed();
            if waits.returned.get(&id).is_some_and(|last| now - *last < RETURN_INTERVAL) {
                continue;
            }
            waits.returned.insert(id, now);
            match self.core.engine.pool(Order::ReturnDisk { disk: disk.clone(), member: id }).await {
                Ok(_) => tracing::info!(%disk, "a member that was absent is back in its place"),
                Err(refusal) => tracing::info!(%disk, %refusal, "a member that is there again is not taken back"),
            }
        }
        Ok(())
    }

    /// Volumes whose file or device could not be opened serve, if it can be now.
    async fn open_files(&self) -> Result<(), Refusal> {
        let state = self.core.state();
        if !state.volumes.values().any(|record| matches!(record.backend, Backend::File { .. })) {
            return Ok(());
        }
        let open = self.core.engine.volume_names(Order::VolumeNames).await?;
        let lost = state.volumes.iter().filter(|(name, record)| {
            matches!(record.backend, Backend::File { .. }) && open.binary_search(name).is_err()
        });
        for (name, record) in lost {
            let Some(_turn) = self.core.turn_now() else { return Ok(()) };
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
    /// At a start, the pool is open as its record says. One whose disks are not all there waits for them.
    pub(crate) async fn open_at_start(&self, name: &Name, record: &PoolRecord) -> Option<PoolReport> {
        let mut opened = self.core.engine.pool(record.order(true)).await;
        if opened.as_ref().is_err_and(|refusal| refusal.code == code::POOL_WAITING) && patience(record).is_zero() {
            opened = self.core.engine.pool(record.order(false)).await;
        }
        let refusal = match opened {
            Ok(pool) => return Some(pool),
            Err(refusal) => refusal,
        };
        let needs_operator = needs_operator(refusal.code, false);
        let sentence = match needs_operator {
            true => format!("pool {name} could not be opened: {refusal}"),
            false => {
                format!("pool {name} is not open, and opens by itself when its disks are there: {}", refusal.message)
            }
        };
        tracing::error!(pool = %name, "{sentence}");
        self.core.raise(event::POOL_UNOPENED, Subject::pool(name), sentence);
        let hint = advice(&refusal, name).filter(|_| needs_operator);
        let (why, disks) = (refusal.message, Vec::new());
        self.access.absences.note(name, PoolWaiting { why, needs_operator, hint, disks, degraded_in_s: None });
        None
    }
}

fn patience(record: &PoolRecord) -> Duration {
    record.policy.wait.map_or(PATIENCE, |span| Duration::from_millis(span.millis()))
}

/// True for a pool that lost more members than it bears, and not to another owner.
fn has_failed(pool: &PoolReport) -> bool {
    pool.state == PoolState::Failed && pool.fenced.is_none() && pool.read_only.is_none()
}

fn may_get_members(pool: &PoolReport) -> bool {
    pool.state != PoolState::Failed
        && pool.read_only.is_none()
        && pool.groups.iter().all(|group| group.reshape.is_none())
}

/// True where a pool that was refused so does not open by itself, whatever disks come; with all of them there, too few is a riddle that
/// no disk solves.
fn needs_operator(code: Code, all_there: bool) -> bool {
    match code {
        code::POOL_WAITING | code::POOL_OUTDATED | code::POOL_BUSY | code::DISK_UNREADABLE | code::POOL_FAILED => false,
        code::POOL_INCOMPLETE => all_there,
        _ => true,
    }
}

/// What an operator is to do about a pool that another node has, or that is in parts; the import says it of any other.
fn advice(refusal: &Refusal, pool: &Name) -> Option<String> {
    match refusal.code {
        code::POOL_OWNED | code::POOL_NOT_RELEASED => Some(format!(
            "to have it here, export it on that node, or shut that node down, and run blockyard pool import {pool}"
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
