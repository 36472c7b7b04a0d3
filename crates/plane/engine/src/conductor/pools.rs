//! Pools by name: their homes, and the orders about them.

use super::{Conductor, PoolHome, VolumeHome, engine_gone};
use crate::pool::{self, Candidate};
use crate::shard_context::ShardContext;
use model::{
    DiskCounters, DiskName, GroupSpec, MemberSize, Name, PoolId, PoolReport, Refusal, RepairPolicy, Report,
    SpacePolicy, VolumeReport, VolumeState, code,
};
use shard::World;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use volume::STATE_COPY_BYTES_MAX;

impl<W: World> Conductor<W> {
    pub(super) async fn create_pool(
        &self,
        name: &Name,
        id: PoolId,
        groups: &[GroupSpec],
        force: bool,
    ) -> Result<PoolReport, Refusal> {
        self.admit_pool_name(name)?;
        let mut seen = BTreeSet::new();
        let mut made = Vec::new();
        for group in groups {
            group.level.admit_members(group.disks.len())?;
            let mut disks = Vec::new();
            for disk in &group.disks {
                // `free_disk` does not see this: no disk is reserved before the pool exists.
                if !seen.insert(disk) {
                    let hint = "list every disk once";
                    return Err(Refusal::new(code::DISK_IN_USE, format!("disk {disk} is listed twice"), hint));
                }
                disks.push(Candidate { name: disk.clone(), path: self.free_disk(disk).await?.path });
            }
            let GroupSpec { level, chunk, integrity, member_size, .. } = *group;
            made.push(pool::NewGroup { level, chunk, integrity, member_size, disks });
        }
        let home = self.choose_home();
        let spec = pool::NewPool { name: name.clone(), id, groups: made, force };
        let taking = self.taking();
        let report = self.at(home, move |shard| pool::create(shard, spec, taking)).await;
        match report {
            Ok(report) => {
                // A new pool has no volumes, so nothing is published.
                self.enter_pool(&report, home, &[]);
                Ok(report)
            }
            Err(refusal) => {
                // The creation may have written to disks before it failed, so their labels are read again.
                let touched: Vec<DiskName> = groups.iter().flat_map(|group| group.disks.iter().cloned()).collect();
                for disk in &touched {
                    self.look_again(disk).await;
                }
                Err(refusal)
            }
        }
    }

    /// Lets the members of all pools keep a copy of the node's state. A state that is too large is not copied.
    pub(super) async fn keep_state(&self, version: u64, bytes: &Arc<[u8]>) -> Result<Report, Refusal> {
        if bytes.len() > STATE_COPY_BYTES_MAX {
            let message =
                format!("the state has {} bytes, and disks keep copies of {STATE_COPY_BYTES_MAX}", bytes.len());
            return Err(Refusal::new(code::LIMIT_REACHED, message, "back up the state folder"));
        }
        for home in 0..self.shard.limits.shards {
            let bytes = bytes.clone();
            self.shard.call(home, move |shard| async move { pool::keep_state(&shard, version, &bytes).await }).await;
        }
        Ok(Report::Done)
    }

    /// Returns the key of a pool and its identifier.
    pub(super) async fn pool_key(&self, name: &Name) -> Result<Report, Refusal> {
        let home = self.pool_home(name)?.home;
        let (pool, secret) = (name.clone(), self.secret.clone());
        let (id, key) = self.at(home, move |shard| pool::key_of(shard, pool, secret)).await?;
        Ok(Report::PoolKey(id, key))
    }

    pub(super) async fn add_group(&self, name: &Name, group: &GroupSpec, force: bool) -> Result<PoolReport, Refusal> {
        let home = self.pool_home(name)?.home;
        group.level.admit_members(group.disks.len())?;
        let mut disks = Vec::new();
        for disk in &group.disks {
            disks.push(Candidate { name: disk.clone(), path: self.free_disk(disk).await?.path });
        }
        let GroupSpec { level, chunk, integrity, member_size, .. } = *group;
        let made = pool::NewGroup { level, chunk, integrity, member_size, disks };
        let pool = name.clone();
        let report = self.at(home, move |shard| pool::add_group(shard, pool, made, force)).await;
        // Learned first: `look_again` leaves out disks that are members.
        if let Ok(report) = &report {
            self.disks.learn_members(report);
        }
        // Also after a failure: labels may have been written.
        for disk in &group.disks {
            self.look_again(disk).await;
        }
        report
    }

    pub(super) async fn add_member(
        &self,
        name: &Name,
        group: Option<u16>,
        disk: &DiskName,
        force: bool,
    ) -> Result<PoolReport, Refusal> {
        let home = self.pool_home(name)?.home;
        let candidate = Candidate { name: disk.clone(), path: self.free_disk(disk).await?.path };
        let pool = name.clone();
        let report = self.at(home, move |shard| pool::add_member(shard, pool, group, candidate, force)).await;
        if let Ok(report) = &report {
            self.disks.learn_members(report);
        }
        // Also after a failure: a label may have been written.
        self.look_again(disk).await;
        report
    }

    pub(super) async fn grow_pool(
        &self,
        name: &Name,
        group: Option<u16>,
        member_size: MemberSize,
    ) -> Result<PoolReport, Refusal> {
        let name = name.clone();
        self.at(self.pool_home(&name)?.home, move |shard| pool::grow(shard, name, group, member_size)).await
    }

    pub(super) async fn add_log(&self, name: &Name, disks: &[DiskName], force: bool) -> Result<PoolReport, Refusal> {
        let home = self.pool_home(name)?.home;
        let mut free = Vec::new();
        for disk in disks {
            free.push(Candidate { name: disk.clone(), path: self.free_disk(disk).await?.path });
        }
        let (new, pool) = (pool::NewLog { disks: free, force }, name.clone());
        let report = self.at(home, move |shard| pool::add_log(shard, pool, new)).await;
        if let Ok(report) = &report {
            self.disks.learn_members(report);
        }
        // Also after a failure: labels may have been written.
        for disk in disks {
            self.look_again(disk).await;
        }
        report
    }

    pub(super) async fn remove_log(&self, name: &Name, lost: bool) -> Result<PoolReport, Refusal> {
        let home = self.pool_home(name)?.home;
        let pool = name.clone();
        // Listed before the removal: these disks are free afterwards and are inspected again.
        let before = self.disks.members_of(name);
        let (report, shown) = self.at(home, move |shard| pool::remove_log(shard, pool, lost)).await?;
        self.disks.learn_members(&report);
        for disk in &before {
            self.look_again(disk).await;
        }
        // Volumes that waited for the content of the log serve without it now.
        self.enter_volumes(home, &shown);
        self.publish_volumes().await;
        Ok(report)
    }

    pub(super) async fn close_pool(&self, name: &Name) -> Result<(), Refusal> {
        let PoolHome { id, home, .. } = self.pool_home(name)?;
        // Before anything is withdrawn: a refused order leaves the pool as it serves.
        self.copies.admit_no_copy(name)?;
        // Hosts lose the volumes first: nothing may be written while the groups are marked clean.
        self.volumes.borrow_mut().retain(|volume, _| volume.pool() != Some(name));
        self.publish_volumes().await;
        let pool = name.clone();
        self.at(home, move |shard| pool::close(shard, pool)).await?;
        // Opened again, the pool keeps its home shard.
        self.former.borrow_mut().insert(id, home);
        self.forget_pool(name).await;
        Ok(())
    }

    pub(super) async fn destroy_pool(&self, name: &Name) -> Result<(), Refusal> {
        let home = self.pool_home(name)?.home;
        let pool = name.clone();
        // A pool with volumes is refused there, so no front end has anything of it.
        self.at(home, move |shard| pool::destroy(shard, pool)).await?;
        self.forget_pool(name).await;
        Ok(())
    }

    /// Removes the pool from the tables and frees its disks.
    async fn forget_pool(&self, name: &Name) {
        self.pools.borrow_mut().remove(name);
        super::copies::continuing::forget(self, name);
        // Listed first: the next line forgets which disks they are.
        let members = self.disks.members_of(name);
        self.disks.forget_members(name);
        for disk in &members {
            self.look_again(disk).await;
        }
    }

    pub(super) async fn set_repair(&self, name: &Name, policy: &RepairPolicy) -> Result<PoolReport, Refusal> {
        let (name, policy) = (name.clone(), policy.clone());
        self.at(self.pool_home(&name)?.home, move |shard| pool::set_repair(shard, name, policy)).await
    }

    pub(super) async fn set_space(&self, name: &Name, policy: SpacePolicy) -> Result<PoolReport, Refusal> {
        let name = name.clone();
        self.at(self.pool_home(&name)?.home, move |shard| pool::set_space(shard, name, policy)).await
    }

    pub(super) async fn start_scrub(&self, name: &Name, repairs: bool) -> Result<PoolReport, Refusal> {
        let name = name.clone();
        self.at(self.pool_home(&name)?.home, move |shard| pool::start_scrub(shard, name, repairs)).await
    }

    pub(super) async fn stop_scrub(&self, name: &Name) -> Result<PoolReport, Refusal> {
        let name = name.clone();
        self.at(self.pool_home(&name)?.home, move |shard| pool::stop_scrub(shard, name)).await
    }

    pub(super) async fn hold_scrub(&self, name: &Name, held: bool) -> Result<PoolReport, Refusal> {
        let name = name.clone();
        self.at(self.pool_home(&name)?.home, move |shard| pool::hold_scrub(shard, name, held)).await
    }

    pub(super) fn enter_pool(&self, report: &PoolReport, home: usize, volumes: &[VolumeReport]) {
        self.pools
            .borrow_mut()
            .insert(report.name.clone(), PoolHome { id: report.id, home, read_only: report.read_only.is_some() });
        self.disks.learn_members(report);
        self.enter_volumes(home, volumes);
    }

    pub(super) fn enter_volumes(&self, home: usize, volumes: &[VolumeReport]) {
        assert!(home < self.shard.limits.shards, "a home is one of the shards");
        for VolumeReport { name, id, state, .. } in volumes {
            let known = VolumeHome { id: *id, home, serves: *state == VolumeState::Online };
            self.volumes.borrow_mut().insert(name.clone(), known);
        }
    }

    pub(super) fn pool_home(&self, name: &Name) -> Result<PoolHome, Refusal> {
        // The name is reserved while the pool is being opened.
        if self.openings.has(name) {
            let hint = "wait until it has finished";
            return Err(Refusal::new(code::POOL_BUSY, format!("pool {name} is being opened"), hint));
        }
        self.pools.borrow().get(name).copied().ok_or_else(|| {
            let hint = "`blockyard pool list` shows the pools";
            Refusal::new(code::POOL_UNKNOWN, format!("pool {name} does not exist"), hint)
        })
    }

    pub(super) async fn pool_reports(&self) -> Vec<PoolReport> {
        let mut reports = Vec::new();
        for home in 0..self.shard.limits.shards {
            reports
                .extend(self.shard.call(home, |shard| async move { pool::reports(&shard) }).await.unwrap_or_default());
        }
        // Shards answer in the order of their indices, which means nothing to an operator.
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    pub(super) async fn disk_counters(&self) -> BTreeMap<DiskName, DiskCounters> {
        let mut counters = BTreeMap::new();
        for home in 0..self.shard.limits.shards {
            let here = self.shard.call(home, |shard| async move { pool::disk_counters(&shard) }).await;
            counters.extend(here.unwrap_or_default());
        }
        counters
    }

    /// Runs `work` on the shard `home`.
    pub(super) async fn at<R, F>(
        &self,
        home: usize,
        work: impl FnOnce(Rc<ShardContext<W>>) -> F + Send + 'static,
    ) -> Result<R, Refusal>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, Refusal>> + 'static,
    {
        self.shard.call(home, work).await.unwrap_or_else(|| Err(engine_gone()))
    }
}
