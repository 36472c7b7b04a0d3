//! Ownership of an open pool: claim, heartbeat, fencing, release, and copies of the node's state.
//!
//! Called by the engine every [`HEARTBEAT`](cluster::HEARTBEAT). It must never write a mark to a disk that
//! shows another owner.

use super::Pool;
use crate::error::PoolError;
use crate::owner::{self, FenceReason, Marked, OwnershipState, write_mark};
use crate::state_copy;
use crate::store::Store;
use block::BlockDevice;
use cluster::{Claim, LastMark, Node};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;

/// Maximum number of state copies written at a time: each holds the whole state in memory.
const COPIES_AT_ONCE: usize = 4;

/// Heartbeat state of an open pool.
#[derive(Default)]
pub(crate) struct Heartbeats {
    /// Disks with a mark write in flight; a slow disk does not delay the others.
    busy: RefCell<BTreeSet<Uuid>>,
    beat: Cell<u64>,
    /// Beat of the last mark that each disk took.
    written: RefCell<BTreeMap<Uuid, u64>>,
    /// Disks whose last mark was missing or damaged at the last heartbeat.
    damaged_marks: RefCell<BTreeSet<Uuid>>,
    /// Disks with a repaired mark, until they are reported.
    repaired_marks: RefCell<Vec<Uuid>>,
    /// Version of the latest state copy requested.
    latest_copy: Cell<u64>,
    /// Disks with a write of a state copy in flight; a slow disk does not delay the others.
    copying: RefCell<BTreeSet<Uuid>>,
    /// Number of state copies that each disk took: they alternate between two places, whatever their versions
    /// are.
    copies: RefCell<BTreeMap<Uuid, usize>>,
}

impl Heartbeats {
    /// Records that `disk` took the mark of `beat`; `is_worn` tells that its previous mark was missing or
    /// damaged.
    fn record_written(&self, disk: Uuid, beat: u64, is_worn: bool) {
        self.written.borrow_mut().insert(disk, beat);
        if !is_worn {
            self.damaged_marks.borrow_mut().remove(&disk);
        // Reported on the transition only: a disk that loses its mark at every heartbeat raises one event.
        } else if self.damaged_marks.borrow_mut().insert(disk) {
            self.repaired_marks.borrow_mut().push(disk);
        }
    }
}

impl Heartbeats {
    /// Writes a copy of the state to the disk; true when it is durable.
    async fn write_state_copy<D: BlockDevice>(&self, disk: &D, ids: (Uuid, Uuid), number: u64, bytes: &[u8]) -> bool {
        let before = self.copies.borrow().get(&ids.1).copied().unwrap_or_default();
        let is_kept = state_copy::write(disk, ids, (before % 2, number), bytes).await.is_ok();
        // Counted on success only: a failed write is repeated in the same place, and the other copy stays intact.
        if is_kept {
            self.copies.borrow_mut().insert(ids.1, before + 1);
        }
        is_kept
    }
}

/// Disk with a heartbeat in progress.
struct HeartbeatDisk<'a, D> {
    id: Uuid,
    disk: Rc<D>,
    group: usize,
    /// True when the last mark that the disk took is missing or damaged.
    is_mark_damaged: bool,
    _busy: Busy<'a>,
}

/// Progress of a heartbeat on one disk.
enum HeartbeatStep<'a, D> {
    /// Disk read; its mark is to be written.
    Read(HeartbeatDisk<'a, D>, LastMark),
    /// Mark written and the disk read again; the index of its group, if both succeeded.
    Marked(Option<usize>),
}

/// Guard of a disk with a write in flight.
struct Busy<'a>(&'a RefCell<BTreeSet<Uuid>>, Uuid);

impl<'a> Busy<'a> {
    /// Takes the guard; none while the previous write has not completed.
    fn take(busy: &'a RefCell<BTreeSet<Uuid>>, disk: Uuid) -> Option<Self> {
        busy.borrow_mut().insert(disk).then(|| Self(busy, disk))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().remove(&self.1);
    }
}

/// Ownership interface of a pool: claim, heartbeat, fencing, release.
pub struct Ownership<'a, D> {
    store: &'a Store<D>,
    heartbeats: &'a Heartbeats,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Ownership of the pool.
    #[must_use]
    pub fn ownership(&self) -> Ownership<'_, D> {
        Ownership { store: &self.shared.store, heartbeats: &self.shared.heartbeats }
    }
}

impl<D: BlockDevice + 'static> Ownership<'_, D> {
    fn pool(&self) -> Uuid {
        self.store.with_catalog(|catalog| catalog.pool)
    }

    /// Claims a new pool for `node`, as [`AssembledPool::claim`](crate::AssembledPool::claim) and [`Ownership::hold`]
    /// do for an existing one.
    ///
    /// *Durability*: when it returns. *Errors*: as theirs.
    pub async fn claim(&self, node: &Node, now: u64) -> Result<(), PoolError> {
        let above = self.store.with_catalog(|catalog| catalog.owner_epoch);
        let own = owner::claim(self.pool(), &self.taking_part(), above, node, now, None).await?;
        self.hold(own).await
    }

    /// Records the epoch of the claim `own` in the catalog; every commit from now on verifies the claim.
    ///
    /// *Shape*: from now on the caller calls [`Ownership::beat`] every [`HEARTBEAT`](cluster::HEARTBEAT).
    /// *Durability*: when it returns. *Errors*: `CatalogLost`, also when another owner has taken the pool over.
    pub async fn hold(&self, own: Claim) -> Result<(), PoolError> {
        let epoch = own.epoch;
        assert!(!own.released, "who holds a pool has not released it");
        self.heartbeats.beat.set(own.beat);
        // Set before the change: the commit that raises the epoch is the first to verify the claim.
        self.store.guard(Some(own));
        let ((), change) = self.store.change(|catalog| {
            catalog.owner_epoch = epoch;
            Ok(())
        })?;
        self.store.committed(change).await
    }

    /// Renews the mark on every member that answers (heartbeat); calls `held` as soon as each group has one
    /// renewed mark.
    ///
    /// Each member is read, written, and read again: of two nodes that do so at the same time at least one sees
    /// the other, and a node that has lost the pool detects that before it writes. A member that has lost its
    /// mark is written only after another member has shown the last mark. A member that has not completed the
    /// previous call is skipped, so calls may overlap. Does nothing before a claim.
    ///
    /// *Errors*: `Fenced` when the pool was lost to another owner: it accepts no change, and none of its disks
    /// may be written.
    pub async fn beat(&self, held: impl FnOnce()) -> Result<(), PoolError> {
        let Some(own) = self.store.guarded() else { return Ok(()) };
        // Counted before the first await: heartbeats may overlap, and no two marks may have the same beat.
        let beat = self.heartbeats.beat.get() + 1;
        self.heartbeats.beat.set(beat);
        let mark = Claim { beat, ..own };
        let disks = self.taking_part();
        let mut missing: BTreeSet<usize> = disks.iter().map(|(_, _, group)| *group).collect();
        let mut held = Some(held);
        let busy = &self.heartbeats.busy;
        let all = disks.len();
        let idle = disks.into_iter().filter_map(|(id, disk, group)| Some((Busy::take(busy, id)?, id, disk, group)));
        let mut steps: FuturesUnordered<LocalBoxFuture<'_, Result<HeartbeatStep<'_, D>, PoolError>>> = idle
            .map(|(_busy, id, disk, group)| HeartbeatDisk { id, disk, group, is_mark_damaged: false, _busy })
            .map(|disk| self.read_before(&mark, disk).boxed_local())
            .collect();
        // A disk whose last write has not ended is skipped.
        let is_all = steps.len() == all;
        let (mut is_shown, mut unshown) = (false, Vec::new());
        while let Some(step) = steps.next().await {
            match step? {
                // A disk without the last mark may have been taken and wiped by another owner. It waits until
                // another member shows the mark.
                HeartbeatStep::Read(disk, LastMark::Missing) if !is_shown => unshown.push(disk),
                HeartbeatStep::Read(disk, last) => {
                    is_shown |= last == LastMark::Present;
                    steps.push(self.mark_one(&mark, disk).boxed_local());
                }
                HeartbeatStep::Marked(group) => {
                    // One renewed mark per group is enough: a contender reads every group.
                    missing.retain(|group_left| Some(*group_left) != group);
                    if missing.is_empty()
                        // The lease is extended by the first mark of each group, without waiting for slow
                        // members.
                        && let Some(held) = held.take()
                    {
                        held();
                    }
                }
            }
            // The claim stands on another member, so a mark that is missing here was lost and is rewritten.
            if is_shown {
                unshown.drain(..).for_each(|disk| steps.push(self.mark_one(&mark, disk).boxed_local()));
            }
        }
        // A skipped member may have the last mark.
        if unshown.is_empty() || !is_all { Ok(()) } else { Err(self.fence(FenceReason::MarkMissing)) }
    }

    /// Reads one disk before its mark is written.
    async fn read_before<'a>(
        &self,
        mark: &Claim,
        beaten: HeartbeatDisk<'a, D>,
    ) -> Result<HeartbeatStep<'a, D>, PoolError> {
        let sight = OwnershipState::read(&*beaten.disk, self.pool(), beaten.id, Some(mark)).await;
        let written = self.heartbeats.written.borrow().get(&beaten.id).copied();
        let last = sight.last_mark(mark, written);
        let is_worn = sight.lacks_mark(mark, written);
        if let Some(loss) = sight.fence_reason {
            return Err(self.fence(loss));
        }
        Ok(HeartbeatStep::Read(HeartbeatDisk { is_mark_damaged: is_worn, ..beaten }, last))
    }

    /// Writes the mark to one disk, then reads the disk again.
    async fn mark_one<'a>(
        &self,
        mark: &Claim,
        beaten: HeartbeatDisk<'a, D>,
    ) -> Result<HeartbeatStep<'a, D>, PoolError> {
        let HeartbeatDisk { id, ref disk, group, is_mark_damaged: is_worn, .. } = beaten;
        // A disk that cannot be read or written is reported by the I/O paths that use it.
        let written = write_mark(&**disk, self.pool(), id, mark).await;
        if written.is_ok() {
            self.heartbeats.record_written(id, mark.beat, is_worn);
        }
        // Read after the write: of two owners that write at the same time, at least one sees the other.
        let sight = OwnershipState::read(&**disk, self.pool(), id, Some(mark)).await;
        if let Some(loss) = sight.fence_reason {
            return Err(self.fence(loss));
        }
        Ok(HeartbeatStep::Marked(written.and(sight.marks).ok().map(|_| group)))
    }

    /// Returns, and clears, the members whose damaged or missing mark was rewritten since the last call.
    ///
    /// A member that keeps losing its mark is returned once.
    pub fn take_repaired_marks(&self) -> Vec<Uuid> {
        self.heartbeats.repaired_marks.take()
    }

    /// Fences the store, unless the pool was released meanwhile.
    fn fence(&self, loss: FenceReason) -> PoolError {
        // A pool that was released has no owner here that could be fenced.
        if self.store.guarded().is_some() {
            self.store.fence(loss.clone());
        }
        PoolError::Fenced(loss)
    }

    /// Writes this copy of the node's state to every participating member; returns how many took it. A pool
    /// that this node does not own, or no longer owns, takes none.
    ///
    /// A member that has not completed the previous call is skipped, so calls may overlap. *Durability*: when
    /// it returns, on the members that answer. *Panics*: when the copy is larger than its limit.
    pub async fn store_state_copy(&self, number: u64, bytes: &[u8]) -> usize {
        let claim = self.heartbeats;
        claim.latest_copy.set(number);
        let disks = self.taking_part().into_iter();
        let idle: Vec<_> =
            disks.filter_map(|(id, disk, _)| Some((Busy::take(&claim.copying, id)?, id, disk))).collect();
        let writes = idle.into_iter().map(async |(_busy, id, disk)| {
            // While this write waited for its turn, a later copy may have been written or the pool released.
            let is_ours = self.store.guarded().is_some() && self.fenced_by().is_none();
            is_ours
                && claim.latest_copy.get() == number
                && claim.write_state_copy(&*disk, (self.pool(), id), number, bytes).await
        });
        let mut writes = stream::iter(writes).buffer_unordered(COPIES_AT_ONCE);
        let mut kept = 0;
        while let Some(is_kept) = writes.next().await {
            kept += usize::from(is_kept);
        }
        kept
    }

    /// Releases the pool: any node may open it at once. No commit is made after that.
    ///
    /// *Durability*: when it returns, on the members that answer. A pool that was fenced, or turns out to
    /// belong to another owner now, is left as it is.
    pub async fn release(&self) {
        let Some(own) = self.store.guarded().filter(|_| self.fenced_by().is_none()) else { return };
        // The mark must not say released while a commit is still being written.
        self.store.drain().await;
        let pool = self.pool();
        let disks = self.taking_part();
        // Read before the write: a released mark must not cover that of a new owner.
        let looks = disks
            .iter()
            .map(async |(id, disk, _)| OwnershipState::read(&**disk, pool, *id, Some(&own)).await.fence_reason);
        if let Some(loss) = join_all(looks).await.into_iter().flatten().next() {
            let _ = self.fence(loss);
            return;
        }
        self.store.close();
        let mark = Claim { beat: self.heartbeats.beat.get() + 1, released: true, ..own };
        // A member that misses this write keeps an older beat, so the released mark on the others wins.
        join_all(disks.iter().map(async |(id, disk, _)| write_mark(&**disk, pool, *id, &mark).await.ok())).await;
        // From here on a heartbeat does nothing: a mark of it would hide the released ones.
        self.store.guard(None);
    }

    /// Reason why the pool was lost to another owner, once that was detected.
    #[must_use]
    pub fn fenced_by(&self) -> Option<FenceReason> {
        self.store.fenced_by()
    }

    /// Sets the callback that learns, once, why the pool was lost: none of its disks may be written from then
    /// on.
    pub fn on_fenced(&self, on_fenced: impl Fn(&FenceReason) + 'static) {
        self.store.on_fenced(Rc::new(on_fenced));
    }

    /// Participating disks, each with the index of its group.
    fn taking_part(&self) -> Vec<Marked<D>> {
        let disks = self.store.disks();
        self.store.with_catalog(|catalog| {
            let group = |id: Uuid| {
                let counts = |member: &crate::MemberRecord| member.disk == id && member.state.takes_part();
                catalog.groups.iter().position(|group| group.members.iter().any(counts))
            };
            disks.into_iter().filter_map(|(id, disk)| Some((id, disk, group(id)?))).collect()
        })
    }
}
