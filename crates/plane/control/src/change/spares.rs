//! Hot spares: assigned and removed by operators, and placed automatically for lost or failing members.

use crate::change::disks::{Disks, missing};
use crate::change::pools::Pools;
use crate::core::{ChangeGuard, Core};
use crate::request::NewSpare;
use crate::state::{SpareInUse, SpareRecord};
use crate::system::now;
use model::{
    DiskId, DiskName, DiskReport, DiskState, FormerMember, GroupReport, Label, Level, MemberFitness, MemberReport,
    MemberState, Name, NextSpare, Order, PoolReport, PoolState, Refusal, Size, Subject, code, event,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time to wait for a member that is missing or does not answer: an enclosure may start more slowly than the
/// array.
const REPLACEMENT_DELAY: Duration = Duration::from_secs(300);

/// Back-off after an attempt to copy or fail a member.
const COPY_AGAIN: Duration = Duration::from_secs(300);

/// A spare that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spare {
    disk: DiskName,
    size: Size,
    /// The pool that it is assigned to; every pool when absent.
    pool: Option<Name>,
    /// True when its content may be overwritten.
    force: bool,
}

/// Hot spares.
pub struct Spares {
    pub(crate) core: Arc<Core>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
}

impl Spares {
    /// Makes the disk a hot spare.
    ///
    /// *Errors*: it is unknown, missing, in use, not blank or a spare already, or the pool does not exist or
    /// has no member that it could replace.
    pub async fn add(&self, name: &DiskName, request: NewSpare) -> Result<DiskReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let disk = self.disks.admit_spare(name, request.force).await?;
        if let Some(pool) = &request.pool {
            let pool = self.pools.report(pool).await?;
            admit_size(name, disk.size, &pool)?;
        }
        // Adding the spare and replenishing the pool are one commit.
        self.core.commit(&turn, |state| {
            let spare = SpareRecord { pool: request.pool.clone(), force: request.force };
            // A new spare replenishes the pool: one replacement of the same assignment no longer counts as a
            // spare in use.
            let taken = state.pools.values_mut().map(|pool| &mut pool.taken);
            for taken in taken {
                // Of the same assignment, because a spare of one pool does not replenish another.
                if let Some(at) = taken.iter().position(|taken| taken.pool == request.pool) {
                    taken.remove(at);
                    break;
                }
            }
            if let Some(record) = state.disks.get_mut(name) {
                record.spare = Some(spare);
                // With `force` a former member becomes a spare like any other, and its past no longer matters.
                record.former = None;
            }
        })?;
        drop(turn);
        self.disks.report(name).await
    }

    /// Removes the spare assignment; the disk stays known.
    ///
    /// *Errors*: it is unknown, or no spare.
    pub async fn remove(&self, name: &DiskName) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        if self.core.state().disk(name)?.spare.is_none() {
            let message = format!("disk {name} is not a hot spare");
            return Err(Refusal::new(code::DISK_NOT_SPARE, message, "blockyard disk list shows the hot spares"));
        }
        self.core.commit(&turn, |state| {
            if let Some(record) = state.disks.get_mut(name) {
                record.spare = None;
            }
        })
    }

    /// Replaces each lost member by a fitting spare, and starts copies of failing members.
    pub(crate) async fn place(&self, vigil: &mut SpareMonitor) -> Result<(), Refusal> {
        let pools = self.pools.list().await?;
        // Waiting times run from the first round in which a member was missing.
        vigil.watch(&pools);
        self.announce(vigil, &pools).await?;
        let is_wanted = |pool: &PoolReport| lost(pool).next().is_some() || failing_members(pool).next().is_some();
        // The common case ends here, without the change lock.
        if !pools.iter().any(|pool| is_wanted(pool) || self.finished_copies(pool).next().is_some()) {
            return Ok(());
        }
        let turn = self.core.lock_changes().await;
        // The list is read again under the lock: an operator may have replaced a disk since, or exported a pool,
        // which a record of its copies would make one of this array again.
        let pools = self.pools.list().await?;
        self.record_finished_copies(&turn, &pools)?;
        // A failed pool cannot rebuild, and a read-only one must not be written.
        let may_be_filled = |pool: &&PoolReport| pool.state != PoolState::Failed && pool.read_only.is_none();
        for pool in pools.iter().filter(may_be_filled) {
            // A group in reshape gets its spares when the reshape has finished.
            for (group, member) in lost(pool).filter(|(group, _)| group.reshape.is_none()) {
                if vigil.is_due(member) {
                    self.replace_member(&turn, vigil, pool, group, member).await?;
                }
            }
            for (group, member) in failing_members(pool) {
                if vigil.may_copy(member) {
                    self.replace_failing(vigil, pool, group, member).await?;
                }
            }
        }
        Ok(())
    }

    /// Publishes the pending replacements of members that are still waited for, and raises an event for new
    /// ones.
    async fn announce(&self, vigil: &SpareMonitor, pools: &[PoolReport]) -> Result<(), Refusal> {
        let is_waited_for = |pool: &PoolReport| lost(pool).any(|(_, member)| member.state != MemberState::Failed);
        let coming = match pools.iter().any(is_waited_for) {
            true => vigil.coming(pools, self.ready().await?),
            false => BTreeMap::new(),
        };
        for (member, next) in self.pools.pending_replacements.replace(coming) {
            let places = pools.iter().flat_map(|pool| lost(pool).map(move |(_, lost)| (pool, lost)));
            let Some((pool, lost)) = places.into_iter().find(|(_, lost)| lost.id == member) else { continue };
            let disk = lost.disk.as_ref().map_or_else(|| member.to_string(), ToString::to_string);
            let NextSpare { disk: spare, at, .. } = next;
            let sentence =
                format!("hot spare {spare} replaces disk {disk} in pool {} at {at} unless the disk returns", pool.name);
            self.core.raise(event::SPARE_WAITS, Subject::disk(&spare), sentence);
        }
        Ok(())
    }

    async fn replace_member(
        &self,
        turn: &ChangeGuard<'_>,
        vigil: &mut SpareMonitor,
        pool: &PoolReport,
        group: &GroupReport,
        member: &MemberReport,
    ) -> Result<(), Refusal> {
        // Read for each member, because the one before may have used a spare.
        let spares = self.ready().await?;
        let of = member.disk.as_ref().map_or_else(|| member.id.to_string(), ToString::to_string);
        for spare in matching_spares(&spares, &pool.name, group.member_size) {
            let order = Order::ReplaceDisk {
                failed: member.disk.clone().unwrap_or_else(|| unnamed(member.id)),
                member: Some(member.id),
                replacement: spare.disk.clone(),
                force: spare.force,
            };
            match self.core.engine.pool(order).await {
                Ok(report) => {
                    let taken = SpareInUse { spare: spare.disk.clone(), of: of.clone(), pool: spare.pool.clone() };
                    // The pool has committed the replacement; the state only follows it.
                    self.core.commit(turn, |state| {
                        state.learn(&report);
                        if let Some(disk) = &member.disk {
                            // A missing member may be healthy, so only the others count as failed.
                            state.mark_former_member(
                                disk,
                                former(pool, &spare.disk, member.state != MemberState::Missing),
                            );
                        }
                        if let Some(record) = state.pools.get_mut(&pool.name) {
                            record.taken.push(taken);
                        }
                    })?;
                    let sentence = format!("hot spare {} replaces disk {of} in pool {}", spare.disk, pool.name);
                    self.core.raise(event::SPARE_TOOK_OVER, Subject::disk(&spare.disk), sentence);
                    return Ok(());
                }
                // Without the data plane every spare would be refused, and reported as defective.
                Err(refusal) if refusal.code == code::ENGINE_GONE => return Err(refusal),
                // The next fitting spare is tried: this one may be defective.
                Err(refusal) => {
                    let sentence = format!(
                        "hot spare {} could not replace disk {of} in pool {}: {refusal}",
                        spare.disk, pool.name
                    );
                    self.core.raise(event::SPARE_REFUSED, Subject::disk(&spare.disk), sentence);
                }
            }
        }
        // Reported once for each number of spares, not in each round.
        if !spares.is_empty() && vigil.in_vain.insert(member.id, spares.len()) != Some(spares.len()) {
            let sentence = format!("no hot spare fits disk {of} in pool {}", pool.name);
            self.core.raise(event::SPARE_NONE, Subject::pool(&pool.name), sentence);
        }
        Ok(())
    }

    /// Starts the copy of a member with too many errors, or that is slow for too long, to a fitting spare.
    /// Without a spare, a useless member is failed, if all other members of its group are in sync.
    async fn replace_failing(
        &self,
        vigil: &mut SpareMonitor,
        pool: &PoolReport,
        group: &GroupReport,
        member: &MemberReport,
    ) -> Result<(), Refusal> {
        let Some(disk) = &member.disk else { return Ok(()) };
        let spares = self.ready().await?;
        for spare in matching_spares(&spares, &pool.name, group.member_size) {
            // Recorded before the attempt, so that a refusal backs off as well.
            vigil.copied.insert(member.id, Instant::now());
            let order = Order::CopyMember { disk: disk.clone(), replacement: spare.disk.clone(), force: spare.force };
            match self.core.engine.pool(order).await {
                Ok(_) => return Ok(()),
                Err(refusal) if refusal.code == code::ENGINE_GONE => return Err(refusal),
                Err(refusal) => {
                    let sentence = format!(
                        "disk {disk} of pool {} cannot be copied to hot spare {}: {refusal}",
                        pool.name, spare.disk
                    );
                    self.core.raise(event::SPARE_REFUSED, Subject::disk(&spare.disk), sentence);
                }
            }
        }
        // Failing a member is safe only while the redundancy of its group is complete.
        let others_serve = group.members.iter().all(|other| other.state == MemberState::InSync);
        // RAID 0 has no redundancy: a pool with a failing member is better than none.
        if member.health != MemberFitness::Critical || !others_serve || group.level == Level::Raid0 {
            return Ok(());
        }
        vigil.copied.insert(member.id, Instant::now());
        match self.core.engine.pool(Order::FailDisk { disk: disk.clone() }).await {
            Ok(_) => {
                let sentence = format!(
                    "disk {disk} of pool {} exceeded disk.error-rate and was removed from the pool; replace it",
                    pool.name
                );
                self.core.raise(event::DISK_USELESS, Subject::disk(disk), sentence);
                Ok(())
            }
            Err(refusal) if refusal.code == code::ENGINE_GONE => Err(refusal),
            Err(refusal) => {
                tracing::warn!(%disk, %refusal, "a disk that fails its reads stays");
                Ok(())
            }
        }
    }

    /// Returns the spares that have replaced a copied member, with the record for each.
    fn finished_copies<'a>(&self, pool: &'a PoolReport) -> impl Iterator<Item = (&'a DiskName, SpareInUse)> + use<'a> {
        let state = self.core.state();
        pool.members().filter(|member| member.state == MemberState::InSync).filter_map(move |member| {
            // A member that a copy has filled is still assigned as a spare until this is recorded.
            let (disk, of) = (member.disk.as_ref()?, member.replaces.clone()?);
            let spare = state.disks.get(disk)?.spare.as_ref()?;
            Some((disk, SpareInUse { spare: disk.clone(), of, pool: spare.pool.clone() }))
        })
    }

    /// Records spares whose copies have finished as members.
    fn record_finished_copies(&self, turn: &ChangeGuard<'_>, pools: &[PoolReport]) -> Result<(), Refusal> {
        for pool in pools {
            let taken: Vec<(&DiskName, SpareInUse)> = self.finished_copies(pool).collect();
            if taken.is_empty() {
                continue;
            }
            self.core.commit(turn, |state| {
                state.learn(pool);
                for (spare, SpareInUse { of, .. }) in &taken {
                    // `of` may be the identity of a member without a name, which is no disk name.
                    if let Ok(disk) = of.parse() {
                        state.mark_former_member(&disk, former(pool, spare, true));
                    }
                }
                if let Some(record) = state.pools.get_mut(&pool.name) {
                    record.taken.extend(taken.iter().map(|(_, taken)| taken.clone()));
                }
            })?;
            for (spare, SpareInUse { of, .. }) in &taken {
                let sentence = format!("hot spare {spare} replaces disk {of} in pool {}", pool.name);
                self.core.raise(event::SPARE_TOOK_OVER, Subject::disk(spare), sentence);
            }
        }
        Ok(())
    }

    /// Returns the spares that are present and free.
    async fn ready(&self) -> Result<Vec<Spare>, Refusal> {
        let state = self.core.state();
        let ready = self
            .core
            .engine
            .disks(Order::Disks)
            .await?
            .into_iter()
            // A former member of a pool can be a spare, if it was made one with `force`.
            .filter(|disk| matches!(disk.state, DiskState::Free | DiskState::Former));
        let spare = |disk: DiskReport| {
            let name = disk.name?;
            let record = state.disks.get(&name)?.spare.as_ref()?;
            Some(Spare { disk: name, size: disk.size, pool: record.pool.clone(), force: record.force })
        };
        Ok(ready.filter_map(spare).collect())
    }
}

impl Disks {
    /// Admits a known, unused disk, which must be blank unless `force` is set.
    pub(crate) async fn admit_spare(&self, name: &DiskName, force: bool) -> Result<DiskReport, Refusal> {
        let state = self.core.state();
        if state.disk(name)?.spare.is_some() {
            let message = format!("disk {name} is already a hot spare");
            let hint = format!("remove it first with blockyard disk spare remove {name}");
            return Err(Refusal::new(code::DISK_IN_USE, message, hint));
        }
        let disk = self.opened(name).await?.ok_or_else(|| missing(name))?;
        crate::change::disks::admit_unused(name, &disk)?;
        crate::change::disks::admit_former(name, state.disk(name)?.former.as_ref(), force)?;
        let holds = match &disk.label {
            Label::None => return Ok(disk),
            _ if force => return Ok(disk),
            Label::PoolMember { pool_name, .. } => format!("a label of pool {pool_name}"),
            Label::Damaged => "a damaged label of a pool".to_owned(),
            Label::Foreign { description: what } => what.clone(),
        };
        let message = format!("disk {name} is not blank: it contains {holds}");
        let hint = format!(
            "a hot spare is overwritten without further confirmation; wipe it first with wipefs --all {}, or \
             repeat with --force",
            disk.path
        );
        Err(Refusal::new(code::DISK_FOREIGN, message, hint))
    }
}

/// Progress of the search for spares, by member.
#[derive(Default)]
pub(crate) struct SpareMonitor {
    /// Time since which a member is missing or does not answer.
    missing: BTreeMap<DiskId, Instant>,
    /// Members for which the lack of a spare was reported, with the number of spares at that time.
    in_vain: BTreeMap<DiskId, usize>,
    /// Members in service with an attempt to copy or fail them, and its time.
    copied: BTreeMap<DiskId, Instant>,
}

impl SpareMonitor {
    /// Updates the waiting times to the current members.
    fn watch(&mut self, pools: &[PoolReport]) {
        let is_lost = |id: &DiskId| pools.iter().flat_map(lost).any(|(_, member)| member.id == *id);
        self.missing.retain(|id, _| is_lost(id));
        self.in_vain.retain(|id, _| is_lost(id));
        // A failed member is replaced without waiting, so only the others have a waiting time.
        for (_, member) in pools.iter().flat_map(lost).filter(|(_, member)| member.state != MemberState::Failed) {
            self.missing.entry(member.id).or_insert_with(Instant::now);
        }
    }

    /// Returns true when the last attempt to copy the member is long enough ago.
    fn may_copy(&self, member: &MemberReport) -> bool {
        self.copied.get(&member.id).is_none_or(|tried| tried.elapsed() >= COPY_AGAIN)
    }

    /// Assigns spares to waited-for members by due time; each spare is assigned once.
    fn coming(&self, pools: &[PoolReport], mut spares: Vec<Spare>) -> BTreeMap<DiskId, (DiskName, Instant)> {
        let may_be_filled = |pool: &&PoolReport| pool.state != PoolState::Failed && pool.read_only.is_none();
        let places = pools.iter().filter(may_be_filled).flat_map(|pool| lost(pool).map(move |place| (pool, place)));
        let due = |member: &MemberReport| match (member.state, self.missing.get(&member.id)) {
            (MemberState::Failed, _) | (_, None) => None,
            (_, Some(since)) => Some(*since + REPLACEMENT_DELAY),
        };
        let mut places: Vec<_> = places.map(|(pool, (group, member))| (due(member), pool, group, member)).collect();
        // Failed members, which have no due time, sort first: they take their spares without waiting.
        places.sort_by_key(|(due, ..)| *due);
        let mut coming = BTreeMap::new();
        for (due, pool, group, member) in places {
            let Some(spare) =
                matching_spares(&spares, &pool.name, group.member_size).first().map(|spare| spare.disk.clone())
            else {
                continue;
            };
            // A spare is assigned to one member only.
            spares.retain(|other| other.disk != spare);
            // A failed member is replaced in this round, so there is nothing to announce.
            if let Some(due) = due {
                coming.insert(member.id, (spare, due));
            }
        }
        coming
    }

    /// Returns true when the member is no longer waited for.
    fn is_due(&self, member: &MemberReport) -> bool {
        member.state == MemberState::Failed
            || self.missing.get(&member.id).is_some_and(|since| since.elapsed() >= REPLACEMENT_DELAY)
    }
}

/// Returns failed, missing and unresponsive members, with their groups.
fn lost(pool: &PoolReport) -> impl Iterator<Item = (&GroupReport, &MemberReport)> {
    let of_group = |group| -> Vec<_> { GroupReport::lost(group).map(|member| (group, member)).collect() };
    pool.kept_groups().flat_map(of_group)
}

/// Returns members in service that the policy says to copy to a spare, with their groups; none of a group that
/// already copies one, or that is in reshape.
fn failing_members(pool: &PoolReport) -> impl Iterator<Item = (&GroupReport, &MemberReport)> {
    let is_sick = |member: &&MemberReport| {
        member.state == MemberState::InSync && member.health != MemberFitness::Good && member.copy.is_none()
    };
    let is_free =
        |group: &&GroupReport| group.reshape.is_none() && group.members.iter().all(|member| member.copy.is_none());
    // One copy per group at a time, and the member in the worst condition first.
    let of_group = move |group| Some((group, worst(group, is_sick)?));
    pool.kept_groups().filter(is_free).filter_map(of_group)
}

fn worst<'a>(group: &'a GroupReport, is_sick: impl Fn(&&'a MemberReport) -> bool) -> Option<&'a MemberReport> {
    group.members.iter().filter(is_sick).max_by_key(|member| member.health)
}

/// Returns the fitting spares, the best first: those assigned to the pool before global ones, the smallest
/// first.
fn matching_spares<'a>(spares: &'a [Spare], pool: &Name, needed: Size) -> Vec<&'a Spare> {
    let may = |spare: &&Spare| spare.size >= needed && spare.pool.as_ref().is_none_or(|own| own == pool);
    let mut fitting: Vec<&Spare> = spares.iter().filter(may).collect();
    // Small spares first, so that large ones stay available for large members.
    // By name at last, so that the spare that is announced is the one that is used.
    fitting.sort_by_key(|spare| (spare.pool.is_none(), spare.size, &spare.disk));
    fitting
}

/// Admits a disk that could replace at least one member of the pool.
pub(crate) fn admit_size(disk: &DiskName, size: Size, pool: &PoolReport) -> Result<(), Refusal> {
    match pool.kept_groups().map(|group| group.member_size).min() {
        Some(needed) if size < needed => Err(Refusal::new(
            code::DISK_TOO_SMALL,
            format!("disk {disk} is too small: {}", size.iec_rounded(false)),
            format!("a hot spare of pool {} needs at least {}", pool.name, needed.iec_rounded(true)),
        )),
        Some(_) => Ok(()),
        None => Err(Refusal::new(
            code::POOL_INCOMPLETE,
            pool.waiting.as_ref().map_or_else(
                || format!("pool {} is not open", pool.name),
                |waiting| format!("pool {} is not open: {}", pool.name, waiting.reason),
            ),
            format!("{} shows the next step", pool.import_command()),
        )),
    }
}

/// Builds the record of a replaced member.
fn former(pool: &PoolReport, spare: &DiskName, failed: bool) -> FormerMember {
    FormerMember { pool: pool.name.clone(), failed, replaced_by: Some(spare.clone()), since: Some(now()) }
}

/// Builds a placeholder name; the order identifies the member by its identity.
fn unnamed(id: DiskId) -> DiskName {
    format!("unknown.{id}").parse().expect("these characters make a name")
}

#[cfg(test)]
mod tests;
