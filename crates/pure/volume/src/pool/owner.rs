//! Claiming a pool, saying so again and again, and hearing that somebody else has it.

use super::Pool;
use crate::error::PoolError;
use crate::owner::{self, Marked, Node, Owner, read_marks, write_mark};
use crate::state_copy;
use block::BlockDevice;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;

/// What an open pool knows of its claim.
#[derive(Default)]
pub(crate) struct Claim {
    /// Disks whose marks are being written: a slow one does not hold up the others.
    busy: RefCell<BTreeSet<Uuid>>,
    beat: Cell<u64>,
}

/// A disk whose mark is being written.
struct Busy<'a>(&'a RefCell<BTreeSet<Uuid>>, Uuid);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().remove(&self.1);
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The pool that was just made is `node`'s, as [`FoundPool::claim`](crate::FoundPool::claim) and [`Pool::hold`] make one
    /// that was found.
    ///
    /// *Durability*: when it returns. *Errors*: as theirs.
    pub async fn claim(&self, node: &Node, now: u64) -> Result<(), PoolError> {
        let above = self.shared.store.look(|catalog| catalog.owner_epoch);
        let own = owner::claim(self.id(), &self.taking_part(), above, node, now, None).await?;
        self.hold(own).await
    }

    /// The catalog has the epoch of the claim `own`, and every commit from now on looks whether it still holds.
    ///
    /// *Shape*: the caller calls [`Pool::beat`] every [`BEAT`](crate::owner::BEAT) from now on. *Durability*: when it
    /// returns. *Errors*: `CatalogLost`, also when somebody has taken the pool over.
    pub async fn hold(&self, own: Owner) -> Result<(), PoolError> {
        let epoch = own.epoch;
        self.shared.claim.beat.set(own.beat);
        self.shared.store.guard(Some(own));
        let ((), change) = self.shared.store.change(|catalog| {
            catalog.owner_epoch = epoch;
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }

    /// Every member that answers says once more that the pool is ours. `held` is called as soon as every group has one that does.
    ///
    /// A member that has not answered the last call is left out, so calls may overlap. *Errors*: `Fenced` when another node
    /// has the pool: it takes no change any more, and nothing may be written to any of its disks. Nothing is done before a claim.
    pub async fn beat(&self, held: impl FnOnce()) -> Result<(), PoolError> {
        let Some(own) = self.shared.store.guarded() else { return Ok(()) };
        let beat = self.shared.claim.beat.get() + 1;
        self.shared.claim.beat.set(beat);
        let mark = Owner { beat, ..own };
        let disks = self.taking_part();
        let mut missing: BTreeSet<usize> = disks.iter().map(|(_, _, group)| *group).collect();
        let mut held = Some(held);
        let idle = |id: &Uuid| self.shared.claim.busy.borrow_mut().insert(*id);
        let idle = disks.into_iter().filter(|(id, _, _)| idle(id));
        let mut beats: FuturesUnordered<_> =
            idle.map(|(id, disk, group)| self.beat_one(&mark, id, disk, group)).collect();
        while let Some(done) = beats.next().await {
            if let Some(group) = done? {
                missing.remove(&group);
            }
            if missing.is_empty()
                && let Some(held) = held.take()
            {
                held();
            }
        }
        Ok(())
    }

    /// One disk says once more that the pool is ours; its group when it does.
    async fn beat_one(&self, mark: &Owner, id: Uuid, disk: Rc<D>, group: usize) -> Result<Option<usize>, PoolError> {
        let _busy = Busy(&self.shared.claim.busy, id);
        let pool = self.id();
        // Written first, then looked: of two who do so at the same time one at least sees the other. A disk that cannot be
        // read or written is found out by those who use it for more than this.
        let written = write_mark(&*disk, pool, id, mark).await;
        let Ok(marks) = read_marks(&*disk, pool, id).await else { return Ok(None) };
        if let Some(other) = marks.into_iter().find(|found| found.has_taken_over(mark)) {
            self.shared.store.fence(other.clone());
            return Err(PoolError::Fenced { node: other.name });
        }
        Ok(written.ok().map(|()| group))
    }

    /// Every member that takes part has this copy of the node's state; how many do. A pool that was fenced keeps none.
    ///
    /// *Durability*: when it returns, on the members that answer. *Panics*: as the limit of a copy says.
    pub async fn keep_state_copy(&self, number: u64, bytes: &[u8]) -> usize {
        if self.fenced_by().is_some() {
            return 0;
        }
        let pool = self.id();
        let mut kept = 0;
        for (id, disk, _) in self.taking_part() {
            // One at a time: a write that goes wrong on all of them leaves the copy before on each.
            kept += usize::from(state_copy::write(&*disk, (pool, id), number, bytes).await.is_ok());
        }
        kept
    }

    /// Nobody has the pool: whoever finds it may open it at once. No commit is made any more.
    ///
    /// *Durability*: when it returns, on the members that answer. A pool that was fenced is left as it is.
    pub async fn release(&self) {
        let Some(own) = self.shared.store.guarded().filter(|_| self.fenced_by().is_none()) else { return };
        self.shared.store.rest().await;
        self.shared.store.close();
        let mark = Owner { beat: self.shared.claim.beat.get() + 1, released: true, ..own };
        let pool = self.id();
        let disks = self.taking_part();
        // One that keeps the mark of before is older than the others.
        join_all(disks.iter().map(async |(id, disk, _)| write_mark(&**disk, pool, *id, &mark).await.ok())).await;
        self.shared.store.guard(None);
    }

    /// Who has taken the pool over, once that was found out.
    #[must_use]
    pub fn fenced_by(&self) -> Option<Owner> {
        self.shared.store.fenced_by()
    }

    /// `on_fenced` hears, once, who has taken the pool over: nothing may be written to any of its disks from then on.
    pub fn on_fenced(&self, on_fenced: impl Fn(&Owner) + 'static) {
        self.shared.store.on_fenced(Rc::new(on_fenced));
    }

    /// The disks that take part, each with its group.
    fn taking_part(&self) -> Vec<Marked<D>> {
        let disks = self.shared.store.disks();
        self.shared.store.look(|catalog| {
            let group = |id: Uuid| {
                let counts = |member: &crate::MemberRecord| member.disk == id && member.state.takes_part();
                catalog.groups.iter().position(|group| group.members.iter().any(counts))
            };
            disks.into_iter().filter_map(|(id, disk)| Some((id, disk, group(id)?))).collect()
        })
    }
}
