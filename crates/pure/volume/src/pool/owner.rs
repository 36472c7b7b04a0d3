//! Claiming a pool, saying so again and again, and hearing that somebody else has it.

use super::Pool;
use crate::error::PoolError;
use crate::owner::{self, Loss, Marked, Sight, write_mark};
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

/// Copies of the state that are written at once: each is as large as the state in memory.
const COPIES_AT_ONCE: usize = 4;

/// What an open pool has told its disks of its claim.
#[derive(Default)]
pub(crate) struct Heartbeats {
    /// Disks whose marks are being written: a slow one does not hold up the others.
    busy: RefCell<BTreeSet<Uuid>>,
    beat: Cell<u64>,
    /// The beat of the last mark that each disk has taken.
    written: RefCell<BTreeMap<Uuid, u64>>,
    /// Disks that lacked it when they were looked at last.
    worn: RefCell<BTreeSet<Uuid>>,
    /// Those of them that got it anew, until somebody asks.
    mended: RefCell<Vec<Uuid>>,
    /// The latest copy of the node's state that was to be kept.
    latest_copy: Cell<u64>,
    /// Disks that a copy is being written to: a slow one does not hold up the others.
    copying: RefCell<BTreeSet<Uuid>>,
    /// Copies that each disk has taken: they go to two places in turn, whatever their versions are.
    copies: RefCell<BTreeMap<Uuid, usize>>,
}

impl Heartbeats {
    /// `disk` has taken the mark of this beat, and had not the one before where `is_worn`.
    fn note_written(&self, disk: Uuid, beat: u64, is_worn: bool) {
        self.written.borrow_mut().insert(disk, beat);
        if !is_worn {
            self.worn.borrow_mut().remove(&disk);
        } else if self.worn.borrow_mut().insert(disk) {
            self.mended.borrow_mut().push(disk);
        }
    }
}

impl Heartbeats {
    /// True when the disk has this copy of the state.
    async fn keep_copy<D: BlockDevice>(&self, disk: &D, ids: (Uuid, Uuid), number: u64, bytes: &[u8]) -> bool {
        let before = self.copies.borrow().get(&ids.1).copied().unwrap_or_default();
        let is_kept = state_copy::write(disk, ids, (before % 2, number), bytes).await.is_ok();
        if is_kept {
            self.copies.borrow_mut().insert(ids.1, before + 1);
        }
        is_kept
    }
}

/// A disk that a beat is under way to.
struct Beaten<'a, D> {
    id: Uuid,
    disk: Rc<D>,
    group: usize,
    /// It had not the last mark that it took.
    is_worn: bool,
    _busy: Busy<'a>,
}

/// How far a beat has come on one disk.
enum Step<'a, D> {
    /// The disk was looked at, and is to get the mark.
    Looked(Beaten<'a, D>, LastMark),
    /// The disk has the mark, and was looked at again: its group, when it has.
    Marked(Option<usize>),
}

/// A disk that is being written to.
struct Busy<'a>(&'a RefCell<BTreeSet<Uuid>>, Uuid);

impl<'a> Busy<'a> {
    /// None while the last write to it has no answer.
    fn take(busy: &'a RefCell<BTreeSet<Uuid>>, disk: Uuid) -> Option<Self> {
        busy.borrow_mut().insert(disk).then(|| Self(busy, disk))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().remove(&self.1);
    }
}

/// Whose a pool is: claiming it, saying so again and again, and hearing that somebody else has it.
pub struct Ownership<'a, D> {
    store: &'a Store<D>,
    heartbeats: &'a Heartbeats,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Whose the pool is.
    #[must_use]
    pub fn ownership(&self) -> Ownership<'_, D> {
        Ownership { store: &self.shared.store, heartbeats: &self.shared.heartbeats }
    }
}

impl<D: BlockDevice + 'static> Ownership<'_, D> {
    fn pool(&self) -> Uuid {
        self.store.look(|catalog| catalog.pool)
    }

    /// The pool that was just made is `node`'s, as [`FoundPool::claim`](crate::FoundPool::claim) and [`Ownership::hold`] make one
    /// that was found.
    ///
    /// *Durability*: when it returns. *Errors*: as theirs.
    pub async fn claim(&self, node: &Node, now: u64) -> Result<(), PoolError> {
        let above = self.store.look(|catalog| catalog.owner_epoch);
        let own = owner::claim(self.pool(), &self.taking_part(), above, node, now, None).await?;
        self.hold(own).await
    }

    /// The catalog has the epoch of the claim `own`, and every commit from now on looks whether it still holds.
    ///
    /// *Shape*: the caller calls [`Ownership::beat`] every [`HEARTBEAT`](cluster::HEARTBEAT) from now on. *Durability*: when it
    /// returns. *Errors*: `CatalogLost`, also when somebody has taken the pool over.
    pub async fn hold(&self, own: Claim) -> Result<(), PoolError> {
        let epoch = own.epoch;
        assert!(!own.released, "who holds a pool has not released it");
        self.heartbeats.beat.set(own.beat);
        self.store.guard(Some(own));
        let ((), change) = self.store.change(|catalog| {
            catalog.owner_epoch = epoch;
            Ok(())
        })?;
        self.store.committed(change).await
    }

    /// Every member that answers says once more that the pool is ours. `held` is called as soon as every group has one that does.
    ///
    /// Each is looked at, written, and looked at again: of two who do so at the same time one at least sees the other, and
    /// who has lost the pool finds that out before it writes. A member that has lost its mark is written only once another
    /// one has shown the last. A member that has not answered the last call is left out, so calls may overlap.
    /// *Errors*: `Fenced` when the pool is not ours any more: it takes no change, and nothing may be written to any of its
    /// disks. Nothing is done before a claim.
    pub async fn beat(&self, held: impl FnOnce()) -> Result<(), PoolError> {
        let Some(own) = self.store.guarded() else { return Ok(()) };
        let beat = self.heartbeats.beat.get() + 1;
        self.heartbeats.beat.set(beat);
        let mark = Claim { beat, ..own };
        let disks = self.taking_part();
        let mut missing: BTreeSet<usize> = disks.iter().map(|(_, _, group)| *group).collect();
        let mut held = Some(held);
        let busy = &self.heartbeats.busy;
        let all = disks.len();
        let idle = disks.into_iter().filter_map(|(id, disk, group)| Some((Busy::take(busy, id)?, id, disk, group)));
        let mut steps: FuturesUnordered<LocalBoxFuture<'_, Result<Step<'_, D>, PoolError>>> = idle
            .map(|(_busy, id, disk, group)| Beaten { id, disk, group, is_worn: false, _busy })
            .map(|disk| self.look_before(&mark, disk).boxed_local())
            .collect();
        let is_all = steps.len() == all;
        let (mut is_shown, mut unshown) = (false, Vec::new());
        while let Some(step) = steps.next().await {
            match step? {
                Step::Looked(disk, LastMark::Missing) if !is_shown => unshown.push(disk),
                Step::Looked(disk, last) => {
                    is_shown |= last == LastMark::Present;
                    steps.push(self.mark_one(&mark, disk).boxed_local());
                }
                Step::Marked(group) => {
                    missing.retain(|group_left| Some(*group_left) != group);
                    if missing.is_empty()
                        && let Some(held) = held.take()
                    {
                        held();
                    }
                }
            }
            if is_shown {
                unshown.drain(..).for_each(|disk| steps.push(self.mark_one(&mark, disk).boxed_local()));
            }
        }
        // A member that is left out may have the last mark.
        if unshown.is_empty() || !is_all { Ok(()) } else { Err(self.lose(Loss::MarkMissing)) }
    }

    /// What one disk says before it is written.
    async fn look_before<'a>(&self, mark: &Claim, beaten: Beaten<'a, D>) -> Result<Step<'a, D>, PoolError> {
        let sight = Sight::of(&*beaten.disk, self.pool(), beaten.id, Some(mark)).await;
        let written = self.heartbeats.written.borrow().get(&beaten.id).copied();
        let last = sight.last_mark(mark, written);
        let is_worn = sight.lacks_mark(mark, written);
        if let Some(loss) = sight.loss {
            return Err(self.lose(loss));
        }
        Ok(Step::Looked(Beaten { is_worn, ..beaten }, last))
    }

    /// One disk says once more that the pool is ours, and nothing else by then.
    async fn mark_one<'a>(&self, mark: &Claim, beaten: Beaten<'a, D>) -> Result<Step<'a, D>, PoolError> {
        let Beaten { id, ref disk, group, is_worn, .. } = beaten;
        // A disk that cannot be read or written is found out by those who use it for more than this.
        let written = write_mark(&**disk, self.pool(), id, mark).await;
        if written.is_ok() {
            self.heartbeats.note_written(id, mark.beat, is_worn);
        }
        let sight = Sight::of(&**disk, self.pool(), id, Some(mark)).await;
        if let Some(loss) = sight.loss {
            return Err(self.lose(loss));
        }
        Ok(Step::Marked(written.and(sight.marks).ok().map(|_| group)))
    }

    /// The members whose last mark was damaged or gone and that were given it anew since this was asked last. One that loses
    /// its mark again and again is told once.
    pub fn take_mended_marks(&self) -> Vec<Uuid> {
        self.heartbeats.mended.take()
    }

    /// The pool is not ours any more, unless it was let go of meanwhile.
    fn lose(&self, loss: Loss) -> PoolError {
        if self.store.guarded().is_some() {
            self.store.fence(loss.clone());
        }
        PoolError::Fenced(loss)
    }

    /// Every member that takes part has this copy of the node's state; how many do. A pool that is not ours, or not any more,
    /// keeps none.
    ///
    /// A member that has not answered the last call is left out, so calls may overlap. *Durability*: when it returns, on the
    /// members that answer. *Panics*: as the limit of a copy says.
    pub async fn keep_state_copy(&self, number: u64, bytes: &[u8]) -> usize {
        let claim = self.heartbeats;
        claim.latest_copy.set(number);
        let disks = self.taking_part().into_iter();
        let idle: Vec<_> =
            disks.filter_map(|(id, disk, _)| Some((Busy::take(&claim.copying, id)?, id, disk))).collect();
        let writes = idle.into_iter().map(async |(_busy, id, disk)| {
            // While a slow disk was waited for, this one may have got a later copy, and the pool may have been let go of.
            let is_ours = self.store.guarded().is_some() && self.fenced_by().is_none();
            is_ours
                && claim.latest_copy.get() == number
                && claim.keep_copy(&*disk, (self.pool(), id), number, bytes).await
        });
        let mut writes = stream::iter(writes).buffer_unordered(COPIES_AT_ONCE);
        let mut kept = 0;
        while let Some(is_kept) = writes.next().await {
            kept += usize::from(is_kept);
        }
        kept
    }

    /// Nobody has the pool: whoever finds it may open it at once. No commit is made any more.
    ///
    /// *Durability*: when it returns, on the members that answer. A pool that was fenced, or is found to be another owner's
    /// now, is left as it is.
    pub async fn release(&self) {
        let Some(own) = self.store.guarded().filter(|_| self.fenced_by().is_none()) else { return };
        self.store.rest().await;
        let pool = self.pool();
        let disks = self.taking_part();
        let looks = disks.iter().map(async |(id, disk, _)| Sight::of(&**disk, pool, *id, Some(&own)).await.loss);
        if let Some(loss) = join_all(looks).await.into_iter().flatten().next() {
            let _ = self.lose(loss);
            return;
        }
        self.store.close();
        let mark = Claim { beat: self.heartbeats.beat.get() + 1, released: true, ..own };
        // One that keeps the mark of before is older than the others.
        join_all(disks.iter().map(async |(id, disk, _)| write_mark(&**disk, pool, *id, &mark).await.ok())).await;
        self.store.guard(None);
    }

    /// Why the pool is not ours any more, once that was found out.
    #[must_use]
    pub fn fenced_by(&self) -> Option<Loss> {
        self.store.fenced_by()
    }

    /// `on_fenced` hears, once, why the pool is not ours any more: nothing may be written to any of its disks from then on.
    pub fn on_fenced(&self, on_fenced: impl Fn(&Loss) + 'static) {
        self.store.on_fenced(Rc::new(on_fenced));
    }

    /// The disks that take part, each with its group.
    fn taking_part(&self) -> Vec<Marked<D>> {
        let disks = self.store.disks();
        self.store.look(|catalog| {
            let group = |id: Uuid| {
                let counts = |member: &crate::MemberRecord| member.disk == id && member.state.takes_part();
                catalog.groups.iter().position(|group| group.members.iter().any(counts))
            };
            disks.into_iter().filter_map(|(id, disk)| Some((id, disk, group(id)?))).collect()
        })
    }
}
