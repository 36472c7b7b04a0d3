//! Disks by name: their inspection reports, the pools that use them, and the orders about them.

use super::Conductor;
use crate::shard_context::ShardContext;
use crate::{inspect, locate, pool};
use model::{
    DiskId, DiskName, DiskPathReport, DiskReport, DiskState, Label, Name, PoolId, PoolReport, Refusal, RemoteAddress,
    RemoteLogin, code,
};
use shard::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A disk with a name in the control plane.
#[derive(Clone, Debug)]
pub(super) struct KnownDisk {
    pub(super) path: String,
    /// Report of its last inspection.
    pub(super) report: DiskReport,
    /// Open pool of which it is a member, and its identity there.
    pub(super) member: Option<(Name, DiskId)>,
}

/// Opened disks by name.
#[derive(Default)]
pub(super) struct KnownDisks(pub(super) RefCell<BTreeMap<DiskName, KnownDisk>>);

impl KnownDisks {
    pub(super) fn member_of(&self, disk: &DiskName) -> Result<(Name, DiskId), Refusal> {
        let disks = self.0.borrow();
        if let Some(known) = disks.get(disk) {
            return known.member.clone().ok_or_else(|| {
                Refusal::new(
                    code::DISK_NOT_MEMBER,
                    format!("disk {disk} is not a member of an open pool"),
                    "`blockyard pool show` lists the members of a pool",
                )
            });
        }
        Err(unknown_disk(disk))
    }

    /// Updates the members of a pool from its report.
    pub(super) fn learn_members(&self, report: &PoolReport) {
        let mut disks = self.0.borrow_mut();
        // Former members first, so that a disk that was removed becomes free.
        for known in disks.values_mut() {
            known.member.take_if(|(pool, _)| *pool == report.name);
        }
        for member in report.members() {
            if let Some(known) = member.disk.as_ref().and_then(|name| disks.get_mut(name)) {
                known.member = Some((report.name.clone(), member.id));
                let (pool, pool_name) = (report.id, report.name.clone());
                // While the pool is open its owner is this node.
                known.report.label = Label::PoolMember { pool, pool_name, disk: member.id, owner: None };
            }
        }
    }

    /// True if the report names a member that is not known as one.
    fn lacks_members(&self, report: &PoolReport) -> bool {
        let disks = self.0.borrow();
        let is_unknown = |name: &DiskName| disks.get(name).is_some_and(|known| known.member.is_none());
        report.members().filter_map(|member| member.disk.as_ref()).any(is_unknown)
    }

    /// Marks the disks of `pool` as not in use.
    pub(super) fn forget_members(&self, pool: &Name) {
        for known in self.0.borrow_mut().values_mut() {
            known.member.take_if(|(name, _)| name == pool);
        }
    }

    /// Disks that are members of the pool.
    pub(super) fn members_of(&self, pool: &Name) -> Vec<DiskName> {
        let disks = self.0.borrow();
        let of_pool = |known: &KnownDisk| known.member.as_ref().is_some_and(|(name, _)| name == pool);
        disks.iter().filter(|(_, known)| of_pool(known)).map(|(disk, _)| disk.clone()).collect()
    }

    /// Pool of which the disk is a member.
    pub(super) fn pool_of(&self, disk: &DiskName) -> Option<Name> {
        self.0.borrow().get(disk)?.member.as_ref().map(|(pool, _)| pool.clone())
    }
}

impl<W: World> Conductor<W> {
    pub(super) async fn inspect_disk(&self, path: &str, remote: Option<&RemoteLogin>) -> Result<DiskReport, Refusal> {
        if let Some(login) = remote {
            self.shard.remotes.logins().learn_unnamed(path, login.clone());
        }
        inspect::inspect_disk(&self.shard.remotes, path, true).await
    }

    pub(super) async fn open_disk(
        &self,
        disk: &DiskName,
        path: &str,
        remote: Option<&RemoteLogin>,
    ) -> Result<DiskReport, Refusal> {
        if self.disks.0.borrow().contains_key(disk) {
            let hint = "choose another name, or remove the existing disk first";
            return Err(Refusal::new(code::NAME_TAKEN, format!("disk {disk} already exists"), hint));
        }
        let logins = self.shard.remotes.logins();
        // The login must be known before the inspection below opens the disk.
        if RemoteAddress::is_remote(path) {
            let login = remote.cloned().unwrap_or_default();
            let force = login.force;
            logins.learn(path, disk, login);
            // Preempted first: the inspection refuses a disk that another initiator has registered with.
            if force && let Err(refusal) = self.shard.remotes.take(path).await {
                // A disk that was not added leaves no login behind.
                logins.forget(path);
                return Err(refusal);
            }
        }
        let looked = self.look_at_disk(path).await;
        if looked.is_err() {
            logins.forget(path);
        }
        let mut report = looked?;
        report.name = Some(disk.clone());
        let known = KnownDisk { path: path.to_owned(), report: report.clone(), member: None };
        let before = self.disks.0.borrow_mut().insert(disk.clone(), known);
        assert!(before.is_none(), "a name is of one disk");
        Ok(report)
    }

    /// Inspects the disk at `path`. A member of a pool that can only be opened for reading is accepted: its pool opens
    /// read-only.
    async fn look_at_disk(&self, path: &str) -> Result<DiskReport, Refusal> {
        // Only an unreadable disk is tried again, for reading; any other refusal stays.
        let refusal = match inspect::inspect_disk(&self.shard.remotes, path, false).await {
            Err(refusal) if refusal.code == code::DISK_UNREADABLE => refusal,
            looked => return looked,
        };
        let readable = inspect::inspect_disk(&self.shard.remotes, path, true).await;
        readable.ok().filter(|report| matches!(report.label, Label::PoolMember { .. })).ok_or(refusal)
    }

    pub(super) async fn close_disk(&self, disk: &DiskName) -> Result<(), Refusal> {
        let known = self.free_disk(disk).await?;
        self.shard.remotes.logins().forget(&known.path);
        self.disks.0.borrow_mut().remove(disk);
        Ok(())
    }

    pub(super) async fn erase_disk(&self, disk: &DiskName, pool: PoolId) -> Result<(), Refusal> {
        let known = self.free_disk(disk).await?;
        // Only a label of ours, intact or damaged, is erased.
        if matches!(known.report.label, Label::PoolMember { .. } | Label::Damaged) {
            pool::admit_erasure(&self.shard, &self.taking(), (disk, &known.path), pool).await?;
            inspect::erase(&self.shard.remotes, &known.path).await?;
            self.look_again(disk).await;
        }
        Ok(())
    }

    pub(super) fn locate_disk(&self, disk: &DiskName, on: bool) -> Result<(), Refusal> {
        let path = self.disks.0.borrow().get(disk).map(|known| known.path.clone());
        locate::light(&self.shard.world, disk, &path.ok_or_else(|| unknown_disk(disk))?, on)
    }

    pub(super) async fn blink_disk(&self, disk: &DiskName, seconds: u64) -> Result<(), Refusal> {
        let known = self.disks.0.borrow().get(disk).cloned().ok_or_else(|| unknown_disk(disk))?;
        // A member is read through its pool, which has it open.
        if let Some((pool, id)) = known.member {
            let home = self.pool_home(&pool)?.home;
            return self.at(home, move |shard| pool::blink(shard, pool, id, seconds)).await;
        }
        // A remote disk is opened without a registration, which reads do not need.
        let opened =
            inspect::open_as(&self.shard.remotes, &known.path, RemoteAddress::is_remote(&known.path), false).await?;
        let world = self.shard.world.clone();
        self.shard.world.spawn(async move { locate::blink(&world, &opened, seconds).await });
        Ok(())
    }

    pub(super) async fn fail_disk(&self, disk: &DiskName) -> Result<PoolReport, Refusal> {
        let (pool, id) = self.disks.member_of(disk)?;
        let home = self.pool_home(&pool)?.home;
        self.at(home, move |shard| pool::fail_disk(shard, pool, id)).await
    }

    pub(super) async fn replace_disk(
        &self,
        failed: &DiskName,
        member: Option<DiskId>,
        replacement: &DiskName,
        force: bool,
    ) -> Result<PoolReport, Refusal> {
        // The name of an absent member may be unknown to this node; its identity is enough.
        let (pool, id) = match (self.disks.member_of(failed), member) {
            (Err(unknown), Some(member)) => self.pool_with(member).await.ok_or(unknown)?,
            (found, _) => found?,
        };
        let home = self.pool_home(&pool)?.home;
        // A failed disk may be tried again in its own slot.
        let own = self.disks.0.borrow().get(replacement).filter(|_| failed == replacement).map(|own| own.path.clone());
        let path = match own {
            Some(path) => path,
            None => self.free_disk(replacement).await?.path,
        };
        let candidate = pool::Candidate { name: replacement.clone(), path };
        let name = pool.clone();
        let replaced = self.at(home, move |shard| pool::replace_disk(shard, name, id, candidate, force)).await;
        let (report, shown) = replaced?;
        self.disks.learn_members(&report);
        self.look_again(replacement).await;
        // A returned log device has released volumes that were held back.
        if !shown.is_empty() {
            self.enter_volumes(home, &shown);
            self.publish_volumes().await;
        }
        Ok(report)
    }

    /// Returns an absent member to its slot: the disk of `member`, which was not there when its pool was opened.
    pub(super) async fn return_disk(&self, disk: &DiskName, member: DiskId) -> Result<PoolReport, Refusal> {
        let hint = "see blockyard pool list";
        let unknown =
            || Refusal::new(code::DISK_NOT_MEMBER, format!("disk {disk} is not a member of an open pool"), hint);
        let (pool, id) = self.pool_with(member).await.ok_or_else(unknown)?;
        let home = self.pool_home(&pool)?.home;
        let path = self.free_disk(disk).await?.path;
        let candidate = pool::Candidate { name: disk.clone(), path };
        let report = self.at(home, move |shard| pool::return_disk(shard, pool, id, candidate)).await?;
        self.disks.learn_members(&report);
        self.look_again(disk).await;
        Ok(report)
    }

    /// Returns a known disk that no open pool uses.
    pub(super) async fn free_disk(&self, disk: &DiskName) -> Result<KnownDisk, Refusal> {
        self.refresh_released(disk).await;
        let disks = self.disks.0.borrow();
        let known = disks.get(disk).ok_or_else(|| unknown_disk(disk))?;
        match &known.member {
            None => Ok(known.clone()),
            Some((pool, _)) => Err(Refusal::new(
                code::DISK_IN_USE,
                format!("disk {disk} is a member of pool {pool}"),
                "choose a disk that `blockyard disk list` shows as free",
            )),
        }
    }

    /// Updates a disk that its pool may have removed by itself, after it could not join.
    async fn refresh_released(&self, disk: &DiskName) {
        let Some((pool, id)) = self.disks.0.borrow().get(disk).and_then(|known| known.member.clone()) else { return };
        // A pool that is being opened has no report yet, and its disks are reserved.
        if self.openings.has(&pool) {
            return;
        }
        let reports = self.pool_reports().await;
        let has = |report: &PoolReport| report.name == pool && report.members().any(|member| member.id == id);
        if !reports.iter().any(has) {
            if let Some(known) = self.disks.0.borrow_mut().get_mut(disk) {
                known.member = None;
            }
            self.look_again(disk).await;
        }
    }

    pub(super) async fn copy_member(
        &self,
        disk: &DiskName,
        replacement: &DiskName,
        force: bool,
    ) -> Result<PoolReport, Refusal> {
        let (pool, id) = self.disks.member_of(disk)?;
        let home = self.pool_home(&pool)?.home;
        let path = self.free_disk(replacement).await?.path;
        let candidate = pool::Candidate { name: replacement.clone(), path };
        // Answered when the copy is queued; `disk_reports` enters the new member once it has the slot.
        self.at(home, move |shard| pool::copy_member(shard, pool, id, candidate, force)).await
    }

    /// Open pool that has this member, even if the member's disk was not found.
    async fn pool_with(&self, id: DiskId) -> Option<(Name, DiskId)> {
        let pools = self.pool_reports().await;
        pools.into_iter().find(|pool| pool.members().any(|member| member.id == id)).map(|pool| (pool.name, id))
    }

    /// Inspects a free disk again after something may have been written to it.
    pub(super) async fn look_again(&self, disk: &DiskName) {
        let Some(path) =
            self.disks.0.borrow().get(disk).filter(|known| known.member.is_none()).map(|known| known.path.clone())
        else {
            return;
        };
        if let Ok(mut report) = self.look_at_disk(&path).await
            && let Some(known) = self.disks.0.borrow_mut().get_mut(disk)
        {
            report.name = Some(disk.clone());
            known.report = report;
        }
    }

    pub(super) async fn disk_reports(&self) -> Vec<DiskReport> {
        // Copied before the pools are asked, because the table must not be borrowed across the calls.
        let mut reports: Vec<DiskReport> = self.disks.0.borrow().values().map(|known| known.report.clone()).collect();
        let pools = self.pool_reports().await;
        // The copy of a member takes its slot long after the order was answered, so the table is updated from the
        // reports.
        pools.iter().filter(|pool| self.disks.lacks_members(pool)).for_each(|pool| self.disks.learn_members(pool));
        for report in &mut reports {
            // Compared by name: members whose disks have none on this node are in no report of disks.
            let member = pools.iter().flat_map(model::PoolReport::members).find(|member| member.disk == report.name);
            let is_copied_to = |member: &model::MemberReport| {
                member.copy.as_ref().is_some_and(|copy| Some(&copy.disk) == report.name.as_ref())
            };
            let is_target = pools.iter().flat_map(model::PoolReport::members).any(is_copied_to);
            let without = match is_target {
                true => DiskState::Rebuilding,
                false if is_former(report, &pools) => DiskState::Former,
                false => DiskState::Free,
            };
            report.state = member.map_or(without, |member| match member.state {
                model::MemberState::InSync | model::MemberState::Joining => DiskState::InUse,
                model::MemberState::Rebuilding => DiskState::Rebuilding,
                model::MemberState::Failed | model::MemberState::NotResponding => DiskState::Failed,
                model::MemberState::Missing => DiskState::Missing,
            });
        }
        let counters = self.disk_counters().await;
        for report in &mut reports {
            if let Some(counted) = report.name.as_ref().and_then(|name| counters.get(name)) {
                report.counters = *counted;
            }
        }
        let paths = paths_of(&self.shard, &reports).await;
        for report in &mut reports {
            if let (Some(remote), Some(paths)) = (&mut report.remote, paths.get(&report.path)) {
                remote.paths.clone_from(paths);
            }
        }
        reports
    }
}

/// True for a disk with the label of an open pool of which it is not a member any more.
fn is_former(disk: &DiskReport, pools: &[PoolReport]) -> bool {
    let (Some((pool, _)), Some(id)) = (disk.label.pool(), disk.label.disk()) else { return false };
    pools.iter().any(|open| open.id == pool && open.members().all(|member| member.id != id))
}

/// Paths of the remote disks that are open on any shard, by the path of the disk.
async fn paths_of<W: World>(
    shard: &Rc<ShardContext<W>>,
    disks: &[DiskReport],
) -> BTreeMap<String, Vec<DiskPathReport>> {
    let mut paths = BTreeMap::new();
    // The usual case without remote disks asks no other shard.
    if !disks.iter().any(|disk| disk.remote.is_some()) {
        return paths;
    }
    for home in 0..shard.limits.shards {
        paths.extend(shard.call(home, |shard| async move { shard.remotes.reports() }).await.unwrap_or_default());
    }
    paths
}

fn unknown_disk(disk: &DiskName) -> Refusal {
    Refusal::new(code::DISK_UNKNOWN, format!("disk {disk} does not exist"), "`blockyard disk list` shows the disks")
}
