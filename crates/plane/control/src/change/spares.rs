//! Spares: named, taken away, and put into the places of lost members without being asked.

use crate::change::disks::{Disks, missing};
use crate::change::pools::Pools;
use crate::core::{Core, Turn};
use crate::request::NewSpare;
use crate::state::{SpareRecord, TakenRecord};
use crate::system::now;
use model::{
    DiskId, DiskName, DiskReport, DiskState, FormerMember, GroupReport, Label, Level, MemberFitness, MemberReport,
    MemberState, Name, NextSpare, Order, PoolReport, PoolState, Refusal, Size, Subject, code, event,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a member that was not found, or does not answer, is waited for: a shelf may be slower than we are.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a member is left alone that could not be copied, or taken out.
const COPY_AGAIN: Duration = Duration::from_secs(300);

/// A spare that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spare {
    disk: DiskName,
    size: Size,
    /// The pool that it is for; any when absent.
    pool: Option<Name>,
    /// True when what it holds may be overwritten.
    force: bool,
}

/// Hot spares.
pub struct Spares {
    pub(crate) core: Arc<Core>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
}

impl Spares {
    /// The disk is a spare.
    ///
    /// *Errors*: it is not known, missing, in use, not blank or a spare already, or the pool is not there or
    /// has no place that it fits.
    pub async fn add(&self, name: &DiskName, request: NewSpare) -> Result<DiskReport, Refusal> {
        let turn = self.core.turn().await;
        let disk = self.disks.admit_spare(name, request.force).await?;
        if let Some(pool) = &request.pool {
            let pool = self.pools.report(pool).await?;
            admit_size(name, disk.size, &pool)?;
        }
        self.core.commit(&turn, |state| {
            let spare = SpareRecord { pool: request.pool.clone(), force: request.force };
            // The place of a spare that was used is filled again.
            let taken = state.pools.values_mut().map(|pool| &mut pool.taken);
            for taken in taken {
                if let Some(at) = taken.iter().position(|taken| taken.pool == request.pool) {
                    taken.remove(at);
                    break;
                }
            }
            if let Some(record) = state.disks.get_mut(name) {
                record.spare = Some(spare);
                record.former = None;
            }
        })?;
        drop(turn);
        self.disks.report(name).await
    }

    /// The disk is a spare no more, and stays known.
    ///
    /// *Errors*: it is not known, or no spare.
    pub async fn remove(&self, name: &DiskName) -> Result<(), Refusal> {
        let turn = self.core.turn().await;
        if self.core.state().disk(name)?.spare.is_none() {
            let message = format!("disk {name} is no spare");
            return Err(Refusal::new(code::DISK_NOT_SPARE, message, "blockyard disk list shows which disks are"));
        }
        self.core.commit(&turn, |state| {
            if let Some(record) = state.disks.get_mut(name) {
                record.spare = None;
            }
        })
    }

    /// Each lost member that a spare fits has one in its place, and is being filled.
    pub(crate) async fn place(&self, vigil: &mut Vigil) -> Result<(), Refusal> {
        let pools = self.pools.list().await?;
        vigil.watch(&pools);
        self.announce(vigil, &pools).await?;
        let is_wanted = |pool: &PoolReport| lost(pool).next().is_some() || sick(pool).next().is_some();
        if !pools.iter().any(|pool| is_wanted(pool) || self.arrived(pool).next().is_some()) {
            return Ok(());
        }
        let turn = self.core.turn().await;
        self.enter_arrived(&turn, &pools)?;
        // Somebody may have replaced a disk meanwhile.
        let may_be_filled = |pool: &&PoolReport| pool.state != PoolState::Failed && pool.read_only.is_none();
        for pool in self.pools.list().await?.iter().filter(may_be_filled) {
            // A group that is laid out anew gets its spares after that.
            for (group, member) in lost(pool).filter(|(group, _)| group.reshape.is_none()) {
                if vigil.is_due(member) {
                    self.place_one(&turn, vigil, pool, group, member).await?;
                }
            }
            for (group, member) in sick(pool) {
                if vigil.may_copy(member) {
                    self.relieve(vigil, pool, group, member).await?;
                }
            }
        }
        Ok(())
    }

    /// Which spares take the places of members that are still waited for, and when, is known to all who show the pools.
    async fn announce(&self, vigil: &Vigil, pools: &[PoolReport]) -> Result<(), Refusal> {
        let is_waited_for = |pool: &PoolReport| lost(pool).any(|(_, member)| member.state != MemberState::Failed);
        let coming = match pools.iter().any(is_waited_for) {
            true => vigil.coming(pools, self.ready().await?),
            false => BTreeMap::new(),
        };
        for (member, next) in self.pools.coming_spares.replace(coming) {
            let places = pools.iter().flat_map(|pool| lost(pool).map(move |(_, lost)| (pool, lost)));
            let Some((pool, lost)) = places.into_iter().find(|(_, lost)| lost.id == member) else { continue };
            let disk = lost.disk.as_ref().map_or_else(|| member.to_string(), ToString::to_string);
            let NextSpare { disk: spare, at, .. } = next;
            let sentence =
                format!("spare {spare} takes the place of disk {disk} in pool {} at {at} unless it returns", pool.name);
            self.core.raise(event::SPARE_WAITS, Subject::disk(&spare), sentence);
        }
        Ok(())
    }

    async fn place_one(
        &self,
        turn: &Turn<'_>,
        vigil: &mut Vigil,
        pool: &PoolReport,
        group: &GroupReport,
        member: &MemberReport,
    ) -> Result<(), Refusal> {
        let spares = self.ready().await?;
        let of = member.disk.as_ref().map_or_else(|| member.id.to_string(), ToString::to_string);
        for spare in fitting(&spares, &pool.name, group.member_size) {
            let order = Order::ReplaceDisk {
                failed: member.disk.clone().unwrap_or_else(|| unnamed(member.id)),
                member: Some(member.id),
                replacement: spare.disk.clone(),
                force: spare.force,
            };
            match self.core.engine.pool(order).await {
                Ok(report) => {
                    let taken = TakenRecord { spare: spare.disk.clone(), of: of.clone(), pool: spare.pool.clone() };
                    self.core.commit(turn, |state| {
                        state.learn(&report);
                        if let Some(disk) = &member.disk {
                            state.let_go(disk, former(pool, &spare.disk, member.state != MemberState::Missing));
                        }
                        if let Some(record) = state.pools.get_mut(&pool.name) {
                            record.taken.push(taken);
                        }
                    })?;
                    let sentence =
                        format!("spare {} has taken the place of disk {of} in pool {}", spare.disk, pool.name);
                    self.core.raise(event::SPARE_TOOK_OVER, Subject::disk(&spare.disk), sentence);
                    return Ok(());
                }
                Err(refusal) if refusal.code == code::ENGINE_GONE => return Err(refusal),
                Err(refusal) => {
                    let sentence = format!(
                        "spare {} could not take the place of disk {of} in pool {}: {refusal}",
                        spare.disk, pool.name
                    );
                    self.core.raise(event::SPARE_REFUSED, Subject::disk(&spare.disk), sentence);
                }
            }
        }
        if !spares.is_empty() && vigil.in_vain.insert(member.id, spares.len()) != Some(spares.len()) {
            let sentence = format!("no spare fits the place of disk {of} in pool {}", pool.name);
            self.core.raise(event::SPARE_NONE, Subject::pool(&pool.name), sentence);
        }
        Ok(())
    }

    /// A member that errs more than it may, or is slow for too long, begins to be copied to a spare that fits. Without one a member
    /// that is useless is taken out, where its group is whole but for that.
    async fn relieve(
        &self,
        vigil: &mut Vigil,
        pool: &PoolReport,
        group: &GroupReport,
        member: &MemberReport,
    ) -> Result<(), Refusal> {
        let Some(disk) = &member.disk else { return Ok(()) };
        let spares = self.ready().await?;
        for spare in fitting(&spares, &pool.name, group.member_size) {
            vigil.copied.insert(member.id, Instant::now());
            let order = Order::CopyMember { disk: disk.clone(), replacement: spare.disk.clone(), force: spare.force };
            match self.core.engine.pool(order).await {
                Ok(_) => return Ok(()),
                Err(refusal) if refusal.code == code::ENGINE_GONE => return Err(refusal),
                Err(refusal) => {
                    let sentence = format!(
                        "disk {disk} of pool {} cannot be copied to spare {}: {refusal}",
                        pool.name, spare.disk
                    );
                    self.core.raise(event::SPARE_REFUSED, Subject::disk(&spare.disk), sentence);
                }
            }
        }
        let others_serve = group.members.iter().all(|other| other.state == MemberState::InSync);
        if member.fitness != MemberFitness::Useless || !others_serve || group.level == Level::Raid0 {
            return Ok(());
        }
        vigil.copied.insert(member.id, Instant::now());
        match self.core.engine.pool(Order::FailDisk { disk: disk.clone() }).await {
            Ok(_) => {
                let sentence = format!(
                    "disk {disk} of pool {} failed too many of its reads and was taken out, as disk.error-rate says; replace it",
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

    /// The spares that a member was copied to, and that have its place: the spare, and what is to be known of it.
    fn arrived<'a>(&self, pool: &'a PoolReport) -> impl Iterator<Item = (&'a DiskName, TakenRecord)> + use<'a> {
        let state = self.core.state();
        pool.members().filter(|member| member.state == MemberState::InSync).filter_map(move |member| {
            let (disk, of) = (member.disk.as_ref()?, member.stands_for.clone()?);
            let spare = state.disks.get(disk)?.spare.as_ref()?;
            Some((disk, TakenRecord { spare: disk.clone(), of, pool: spare.pool.clone() }))
        })
    }

    /// Spares whose copies have ended are members from now on.
    fn enter_arrived(&self, turn: &Turn<'_>, pools: &[PoolReport]) -> Result<(), Refusal> {
        for pool in pools {
            let taken: Vec<(&DiskName, TakenRecord)> = self.arrived(pool).collect();
            if taken.is_empty() {
                continue;
            }
            self.core.commit(turn, |state| {
                state.learn(pool);
                for (spare, TakenRecord { of, .. }) in &taken {
                    if let Ok(disk) = of.parse() {
                        state.let_go(&disk, former(pool, spare, true));
                    }
                }
                if let Some(record) = state.pools.get_mut(&pool.name) {
                    record.taken.extend(taken.iter().map(|(_, taken)| taken.clone()));
                }
            })?;
            for (spare, TakenRecord { of, .. }) in &taken {
                let sentence = format!("spare {spare} has taken the place of disk {of} in pool {}", pool.name);
                self.core.raise(event::SPARE_TOOK_OVER, Subject::disk(spare), sentence);
            }
        }
        Ok(())
    }

    /// The spares that are there and free.
    async fn ready(&self) -> Result<Vec<Spare>, Refusal> {
        let state = self.core.state();
        let ready = self
            .core
            .engine
            .disks(Order::Disks)
            .await?
            .into_iter()
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
    /// Admits a known disk that nothing uses, and that is blank unless `force` says that it need not be.
    pub(crate) async fn admit_spare(&self, name: &DiskName, force: bool) -> Result<DiskReport, Refusal> {
        let state = self.core.state();
        if state.disk(name)?.spare.is_some() {
            let message = format!("disk {name} is a spare already");
            let hint = format!("take it away first with blockyard disk spare remove {name}");
            return Err(Refusal::new(code::DISK_IN_USE, message, hint));
        }
        let disk = self.opened(name).await?.ok_or_else(|| missing(name))?;
        crate::change::disks::admit_unused(name, &disk)?;
        crate::change::disks::admit_former(name, state.disk(name)?.former.as_ref(), force)?;
        let holds = match &disk.label {
            Label::None => return Ok(disk),
            _ if force => return Ok(disk),
            Label::Ours { pool_name, .. } => format!("a label of pool {pool_name}"),
            Label::Damaged => "a damaged label of a pool".to_owned(),
            Label::Foreign { what } => what.clone(),
        };
        let message = format!("disk {name} is not blank: it holds {holds}");
        let hint = format!(
            "a spare is overwritten without being asked; wipe it first, as with wipefs --all {}, or --force",
            disk.path
        );
        Err(Refusal::new(code::DISK_FOREIGN, message, hint))
    }
}

/// Lost members that a spare was sought for.
#[derive(Default)]
pub(crate) struct Vigil {
    /// Since when members were not found, or did not answer.
    missing: BTreeMap<DiskId, Instant>,
    /// Members for which it was told that no spare fits, and how many spares there were then.
    in_vain: BTreeMap<DiskId, usize>,
    /// Members in service that were to be copied or taken out, and when.
    copied: BTreeMap<DiskId, Instant>,
}

impl Vigil {
    /// Goes by how the members are now.
    fn watch(&mut self, pools: &[PoolReport]) {
        let is_lost = |id: &DiskId| pools.iter().flat_map(lost).any(|(_, member)| member.id == *id);
        self.missing.retain(|id, _| is_lost(id));
        self.in_vain.retain(|id, _| is_lost(id));
        for (_, member) in pools.iter().flat_map(lost).filter(|(_, member)| member.state != MemberState::Failed) {
            self.missing.entry(member.id).or_insert_with(Instant::now);
        }
    }

    /// True when it was not tried a short while ago to copy the member.
    fn may_copy(&self, member: &MemberReport) -> bool {
        self.copied.get(&member.id).is_none_or(|tried| tried.elapsed() >= COPY_AGAIN)
    }

    /// The spares that take the places of members that are waited for, by member, and when; each spare is one member's.
    fn coming(&self, pools: &[PoolReport], mut spares: Vec<Spare>) -> BTreeMap<DiskId, (DiskName, Instant)> {
        let may_be_filled = |pool: &&PoolReport| pool.state != PoolState::Failed && pool.read_only.is_none();
        let places = pools.iter().filter(may_be_filled).flat_map(|pool| lost(pool).map(move |place| (pool, place)));
        let due = |member: &MemberReport| match (member.state, self.missing.get(&member.id)) {
            (MemberState::Failed, _) | (_, None) => None,
            (_, Some(since)) => Some(*since + PATIENCE),
        };
        let mut places: Vec<_> = places.map(|(pool, (group, member))| (due(member), pool, group, member)).collect();
        places.sort_by_key(|(due, ..)| *due);
        let mut coming = BTreeMap::new();
        for (due, pool, group, member) in places {
            let Some(spare) = fitting(&spares, &pool.name, group.member_size).first().map(|spare| spare.disk.clone())
            else {
                continue;
            };
            spares.retain(|other| other.disk != spare);
            if let Some(due) = due {
                coming.insert(member.id, (spare, due));
            }
        }
        coming
    }

    /// True when the member is not waited for any more, and no spare was sought in vain that was not there before.
    fn is_due(&self, member: &MemberReport) -> bool {
        member.state == MemberState::Failed
            || self.missing.get(&member.id).is_some_and(|since| since.elapsed() >= PATIENCE)
    }
}

/// Members that have failed or were not found, with their groups.
fn lost(pool: &PoolReport) -> impl Iterator<Item = (&GroupReport, &MemberReport)> {
    let of_group = |group| -> Vec<_> { GroupReport::lost(group).map(|member| (group, member)).collect() };
    pool.kept_groups().flat_map(of_group)
}

/// Members in service that the pool's policy says are to be copied to a spare, with their groups; none of a group that copies
/// one already, or is laid out anew.
fn sick(pool: &PoolReport) -> impl Iterator<Item = (&GroupReport, &MemberReport)> {
    let is_sick = |member: &&MemberReport| {
        member.state == MemberState::InSync && member.fitness != MemberFitness::Fit && member.copy.is_none()
    };
    let is_free =
        |group: &&GroupReport| group.reshape.is_none() && group.members.iter().all(|member| member.copy.is_none());
    // The worst first.
    let of_group = move |group| Some((group, worst(group, is_sick)?));
    pool.kept_groups().filter(is_free).filter_map(of_group)
}

fn worst<'a>(group: &'a GroupReport, is_sick: impl Fn(&&'a MemberReport) -> bool) -> Option<&'a MemberReport> {
    group.members.iter().filter(is_sick).max_by_key(|member| member.fitness)
}

/// The spares that fit, the best first: those of the pool before those of all pools, the smallest first.
fn fitting<'a>(spares: &'a [Spare], pool: &Name, needed: Size) -> Vec<&'a Spare> {
    let may = |spare: &&Spare| spare.size >= needed && spare.pool.as_ref().is_none_or(|own| own == pool);
    let mut fitting: Vec<&Spare> = spares.iter().filter(may).collect();
    fitting.sort_by_key(|spare| (spare.pool.is_none(), spare.size, &spare.disk));
    fitting
}

/// Admits a disk that fits at least one place of the pool.
pub(crate) fn admit_size(disk: &DiskName, size: Size, pool: &PoolReport) -> Result<(), Refusal> {
    match pool.kept_groups().map(|group| group.member_size).min() {
        Some(needed) if size < needed => Err(Refusal::new(
            code::DISK_TOO_SMALL,
            format!("disk {disk} has only {}", size.iec_rounded(false)),
            format!("a spare of pool {} needs at least {}", pool.name, needed.iec_rounded(true)),
        )),
        Some(_) => Ok(()),
        None => Err(Refusal::new(
            code::POOL_INCOMPLETE,
            pool.waiting.as_ref().map_or_else(
                || format!("pool {} is not open", pool.name),
                |waiting| format!("pool {} is not open: {}", pool.name, waiting.why),
            ),
            format!("{} says what to do", pool.import_command()),
        )),
    }
}

/// What a disk is from now on whose place in the pool a spare has.
fn former(pool: &PoolReport, spare: &DiskName, failed: bool) -> FormerMember {
    FormerMember { pool: pool.name.clone(), failed, replaced_by: Some(spare.clone()), since: Some(now()) }
}

/// A name that no disk has been given: the identity says which member is meant.
fn unnamed(id: DiskId) -> DiskName {
    format!("unknown.{id}").parse().expect("these characters make a name")
}

#[cfg(test)]
mod tests;
