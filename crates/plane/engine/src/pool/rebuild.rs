//! Background repair of groups: rebuild of members, and resync after an unclean stop.

use super::losses::LostList;
use super::maintenance::{Maintenance, Pace};
use super::member_copy::until_exchanged;
use super::membership::note_membership;
use super::work::{Work, WorkKind};
use super::{OpenPool, uuid};
use block::{Extent, IoError, IoErrorKind, Stable};
use futures_util::future::{Either, select};
use model::{EventCode, Subject, event};
use raid::{MemberState, RebuildError, RebuildOwner, Rebuilt};
use shard::{Signal, World, yield_now};
use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// Stop signal for the maintenance tasks of a pool.
#[derive(Default)]
pub(super) struct StopSignal {
    halted: Cell<bool>,
    told: Signal,
}

impl StopSignal {
    pub(super) fn raise(&self) {
        self.halted.set(true);
        self.told.raise();
    }

    pub(super) async fn raised(&self) {
        self.told.until(|| self.halted.get()).await;
    }
}

impl<W: World> OpenPool<W> {
    /// Starts the repair task of the group, unless it runs already. It does all pending work in order, while the group
    /// serves.
    pub(super) fn start_repair(self: &Rc<Self>, group: usize) {
        // The running task looks for more work before it ends.
        if self.groups[group].repairing.replace(true) {
            return;
        }
        let pool = self.clone();
        self.shard.world.spawn(async move {
            let repair = GroupRepair { pool: pool.clone(), group };
            let repair = pin!(repair.run());
            let halted = pin!(async {
                pool.halt.raised().await;
                // A copy that is taking its place is not interrupted: catalog and array would name different disks.
                until_exchanged(&pool, group).await;
            });
            if let Either::Right(_) = select(repair, halted).await {
                tracing::debug!(pool = %pool.name, group, "repair is interrupted");
            }
            // Also after an interruption: reports must not show an operation that has ended.
            pool.groups[group].work.set(None);
            assert!(pool.groups[group].repairing.replace(false), "a repair of a group ends once");
        });
    }

    /// Stops all maintenance of the pool and waits for it.
    pub(super) async fn stop_work(&self) {
        self.halt.raise();
        while self.groups.iter().any(|(_, group)| group.repairing.get()) || self.maintenance.scrub.runs() {
            yield_now().await;
        }
    }

    /// Stripes that volumes or the log use, in ascending order.
    pub(super) fn stripes_in_use(&self, group: usize) -> Vec<Range<u64>> {
        let array = &self.groups[group].array;
        let (stripe, stripes) = (array.stripe_blocks(), array.layout().stripes());
        let number = u16::try_from(group).expect("a pool has at most 64 groups");
        // The log device has no slabs; all of it counts as used.
        if self.pool.write_log().group() == Some(number) {
            return std::iter::once(0..stripes).collect();
        }
        // A stripe that is used in part counts as a whole.
        let range = |run: &Extent| run.start.0 / stripe..run.end().0.div_ceil(stripe);
        self.pool.allocated(number).iter().map(range).collect()
    }

    /// Raises an event about the pool.
    pub(super) fn raise(&self, code: EventCode, sentence: String) {
        self.shard.raise(code, Subject::pool(&self.name), sentence);
    }

    /// Creates the work record of an operation over all used stripes of the group.
    pub(super) fn begin(&self, group: usize, kind: WorkKind) -> Work {
        self.begin_over(group, kind, &self.stripes_in_use(group))
    }

    /// Creates the work record of an operation over these stripes of the group.
    pub(super) fn begin_over(&self, group: usize, kind: WorkKind, stripes: &[Range<u64>]) -> Work {
        let stripes: u64 = stripes.iter().map(|range| range.end - range.start).sum();
        Work::new(kind, self.shard.world.now(), stripes * self.groups[group].stripe_bytes())
    }
}

/// Repair task of one group; does all pending work there in order.
pub(super) struct GroupRepair<W: World> {
    pub(super) pool: Rc<OpenPool<W>>,
    pub(super) group: usize,
}

impl<W: World> GroupRepair<W> {
    async fn run(&self) {
        let group = self.group;
        let state = &self.pool.groups[group];
        // Resync first: a rebuild computes from parity, which must be right.
        if state.needs_resync.get() {
            self.resync().await;
        }
        loop {
            // A reshape comes before rebuilds: members that returned during it wait for its end.
            if !self.expand().await {
                return;
            }
            let members = state.array.status().members;
            let waiting = members.iter().position(|member| matches!(member.state, MemberState::Rebuilding { .. }));
            let Some(member) = waiting else {
                // A copy may end with a failed member, so the members are examined again.
                if self.copy().await {
                    continue;
                }
                return;
            };
            let member = u16::try_from(member).expect("a group has at most 64 members");
            if !self.rebuild(member).await {
                return;
            }
        }
    }

    /// Rebuilds a member. False if continuing with other members makes no sense.
    async fn rebuild(&self, member: u16) -> bool {
        let group = self.group;
        let stripes = self.stripes_to_fill(member);
        let disk = self.pool.disk_name(group, member);
        // Before the work record: time for which repairs are paused is no time of the rebuild.
        self.pool.maintenance.until_resumed().await;
        let work = self.pool.begin_over(group, WorkKind::Rebuild, &stripes);
        let mut owner = Owner {
            pool: self.pool.clone(),
            group,
            work,
            gait: self.pool.maintenance.start_pace(),
            disk: disk.clone(),
        };
        let sentence = format!("rebuild of disk {disk} of pool {} started", self.pool.name);
        self.pool.raise(event::REBUILD_BEGAN, sentence);
        // The event reports the bytes that were really written; skipped stripes cost no writes.
        let before = self.pool.groups[group].written_bytes(Some(member));
        match self.pool.groups[group].array.rebuild(member, &stripes, &mut owner).await {
            Ok(rebuilt) => {
                // Kept until here: an interrupted rebuild starts again with the same stripes.
                self.pool.groups[group].to_fill.borrow_mut().remove(&member);
                // With one more current member, blocks that were lost may be readable again.
                LostList(&self.pool).doubt(group);
                tracing::info!(pool = %self.pool.name, disk, stripes = rebuilt.stripes, "a member is rebuilt and in service");
                let after = self.pool.groups[group].written_bytes(Some(member));
                assert!(after >= before, "a member that is filled is one disk, whose counters rise");
                let written = after - before;
                let taken = work.summary(self.pool.shard.world.now(), written, "it");
                let sentence = format!("rebuild of disk {disk} of pool {} finished{taken}", self.pool.name);
                self.pool.raise(event::REBUILD_ENDED, sentence);
                true
            }
            // Only this member is concerned; the group serves on and others may still be rebuilt.
            Err(RebuildError::ReplacementLost(_)) => {
                tracing::error!(pool = %self.pool.name, disk, "the replacement failed during its rebuild");
                let sentence = format!("disk {disk} failed during its rebuild for pool {}", self.pool.name);
                self.pool.raise(event::REBUILD_STOPPED, sentence);
                true
            }
            Err(error) => {
                tracing::error!(pool = %self.pool.name, disk, %error, "the rebuild stopped");
                let sentence = format!("rebuild of disk {disk} of pool {} failed: {error}", self.pool.name);
                self.pool.raise(event::REBUILD_STOPPED, sentence);
                false
            }
        }
    }

    async fn resync(&self) {
        let group = self.group;
        let (name, array) = (&self.pool.name, self.pool.groups[group].array.clone());
        tracing::info!(pool = %name, group, "the daemon ended while the group was written; parity is computed again");
        let sentence = format!("group {group} of pool {name} was not closed cleanly; resync started");
        self.pool.raise(event::RESYNC_BEGAN, sentence);
        let mut mismatches = 0;
        // Only stripes in use are compared: others are written as a whole, as zeros, before they can be read (ADR 5).
        let ranges = self.pool.stripes_in_use(group);
        self.pool.maintenance.until_resumed().await;
        let (mut work, mut gait, mut before) =
            (self.pool.begin(group, WorkKind::Resync), self.pool.maintenance.start_pace(), 0);
        let stripe_bytes = self.pool.groups[group].stripe_bytes();
        for range in ranges {
            let length = range.end - range.start;
            let pace = async |progress: raid::Progress| {
                let done = (before + progress.done) * stripe_bytes;
                work.advance(self.pool.shard.world.now(), done);
                self.pool.groups[group].work.set(Some(work));
                self.pool.maintenance.keep_pace(&mut gait, done, work.total_bytes(), Maintenance::is_resumed).await;
            };
            match array.resync(range.clone(), pace).await {
                Ok(verified) => {
                    mismatches += verified.mismatches;
                    // Reads as a host would, so that blocks that cannot be reconstructed are listed as lost.
                    if verified.unreadable > 0 {
                        LostList(&self.pool).look_for(group, range).await;
                    }
                }
                Err(error) => {
                    tracing::error!(pool = %name, group, %error, "the resync stopped");
                    let sentence = format!("resync of group {group} of pool {name} failed: {error}");
                    self.pool.raise(event::RESYNC_STOPPED, sentence);
                    return;
                }
            }
            before += length;
        }
        self.pool.groups[group].needs_resync.set(false);
        self.pool.groups[group].work.set(None);
        let number = u16::try_from(group).expect("a pool has at most 64 groups");
        // False means that a write has come in already; the group is marked clean when the pool is closed.
        if let Err(error) = self.pool.pool.mark_clean(number).await {
            tracing::error!(pool = %name, group, %error, "the group cannot be marked clean");
        }
        tracing::info!(pool = %name, group, mismatches, "the resync is done");
        let sentence =
            format!("resync of group {group} of pool {name} finished: {mismatches} inconsistent stripes repaired");
        self.pool.raise(event::RESYNC_ENDED, sentence);
    }

    /// Stripes to write to a member. Checksums cover every block, so a protected group is rebuilt in full unless the
    /// missed stripes are known.
    fn stripes_to_fill(&self, member: u16) -> Vec<Range<u64>> {
        let group = self.group;
        let state = &self.pool.groups[group];
        let missed = state.to_fill.borrow().get(&member).cloned();
        let everything = || std::iter::once(0..state.array.layout().stripes()).collect();
        missed
            .unwrap_or_else(|| if state.array.is_protected() { everything() } else { self.pool.stripes_in_use(group) })
    }
}

/// Callbacks of the array for one rebuild: pace and commit.
struct Owner<W: World> {
    pool: Rc<OpenPool<W>>,
    group: usize,
    work: Work,
    gait: Pace,
    disk: String,
}

impl<W: World> RebuildOwner for Owner<W> {
    async fn pace(&mut self, progress: raid::Progress) {
        let (pool, done) = (&self.pool, progress.done * self.pool.groups[self.group].stripe_bytes());
        self.work.advance(pool.shard.world.now(), done);
        pool.groups[self.group].work.set(Some(self.work));
        if !pool.maintenance.keep_pace(&mut self.gait, done, self.work.total_bytes(), Maintenance::is_resumed).await {
            let sentence = format!("rebuild of disk {} of pool {} will miss its deadline", self.disk, pool.name);
            pool.raise(event::REBUILD_LATE, sentence);
        }
    }

    async fn commit(&mut self, member: u16, flushed: Stable, rebuilt: &Rebuilt) -> Result<Stable, IoError> {
        let gone = IoError::new(IoErrorKind::Gone, Extent::default());
        // The list of lost blocks is durable before the member counts as complete.
        if !rebuilt.lost.is_empty() {
            LostList(&self.pool).enter(self.group, &rebuilt.lost).await;
        }
        if !rebuilt.unreadable.is_empty() && !self.pool.groups[self.group].array.is_protected() {
            // Without checksums nothing remembers lost blocks, and after a restart a member in service is taken for
            // complete. A group that stays degraded is better.
            let lost: u64 = rebuilt.lost.iter().map(|extent| extent.len.0).sum();
            let pool = &self.pool.name;
            tracing::error!(%pool, lost_blocks = lost, "some blocks could not be reconstructed; rewrite them, \
                 then replace the disk again");
            return Err(gone);
        }
        // The argument proves that the rebuilt data is stable before the catalog puts the member into service.
        let _: Stable = flushed;
        let disk = self.pool.groups[self.group].slots.borrow()[usize::from(member)].id;
        let committed = self.pool.pool.members().set_state(uuid(disk), volume::MemberState::InService).await;
        // Not waited for: an older row in the node's state refuses less, never more (ADR 27).
        note_membership(&self.pool);
        committed.map(|()| Stable::attest()).map_err(|error| {
            tracing::error!(pool = %self.pool.name, %error, "the rebuilt member could not be put into service");
            gone
        })
    }
}
