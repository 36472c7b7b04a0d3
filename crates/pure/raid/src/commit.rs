//! The member writes of a stripe: all of them, to the end, and what their errors mean.

use crate::array::Core;
use crate::geometry::bytes;
use crate::member::count;
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Lba, View};
use futures_util::future::join_all;
use shard::RangeGuard;
use smallvec::SmallVec;
use std::rc::Rc;

/// One member operation that changes blocks.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) member: u16,
    pub(crate) start: Lba,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write(View),
    Discard(Blocks),
}

/// The operations of a stripe.
pub(crate) type Ops = SmallVec<[Op; 8]>;

/// How an operation ended, and in whose tenure it was begun.
pub(crate) struct Ended {
    pub(crate) member: u16,
    pub(crate) extent: Extent,
    pub(crate) tenure: u64,
    pub(crate) result: Result<(), IoError>,
}

impl Op {
    pub(crate) fn write(member: u16, at: Extent, data: View) -> Self {
        debug_assert_eq!(data.len(), bytes(at.len.0), "data fills its extent");
        Self { member, start: at.start, change: Change::Write(data) }
    }

    pub(crate) fn discard(member: u16, at: Extent) -> Self {
        Self { member, start: at.start, change: Change::Discard(at.len) }
    }

    pub(crate) fn extent(&self) -> Extent {
        match &self.change {
            Change::Write(data) => Extent::new(self.start.0, data.len() as u64 / u64::from(crate::BLOCK_BYTES)),
            Change::Discard(blocks) => Extent { start: self.start, len: *blocks },
        }
    }
}

impl<D: BlockDevice + 'static> Core<D> {
    /// The operations are done, on every member that still counts. They end under `guard` even when the
    /// caller is dropped.
    ///
    /// Failures may not be durable yet: [`Core::failures_recorded`] comes before any acknowledgement.
    /// *Errors*: in the array's blocks `extent`, when data could not be written and has no other copy,
    /// or the array has stopped.
    pub(crate) async fn carry_out(self: &Rc<Self>, ops: Ops, guard: RangeGuard, extent: Extent) -> Result<(), IoError> {
        let core = self.clone();
        let work = async move {
            let ended = core.perform(ops).await;
            let judged = core.judge(&ended, extent);
            drop(guard);
            judged
        };
        self.background.finish(work).await
    }

    /// The operations are done on members that have nothing in common: no lock, and no end once dropped.
    pub(crate) async fn carry_out_bare(self: &Rc<Self>, ops: Ops, extent: Extent) -> Result<(), IoError> {
        let ended = self.perform(ops).await;
        self.judge(&ended, extent)
    }

    /// Writes back what had been unreadable. The data was served already, so an error only costs the
    /// member, if the array can do without.
    pub(crate) async fn heal(self: &Rc<Self>, ops: Ops, guard: RangeGuard) {
        let core = self.clone();
        let work = async move {
            let remembered = core.remember(&ops).await;
            for ended in core.perform(ops).await {
                match ended.result {
                    Ok(()) => {
                        count(&core.member(ended.member).counts.heals);
                        core.tally.add(|counters| counters.heals += 1);
                    }
                    Err(error) if core.spares(ended.member) => core.lose_in(ended.member, ended.tenure, error),
                    Err(_) => {}
                }
            }
            if let Some(remembered) = remembered {
                core.make_known(remembered).await;
            }
            drop(guard);
        };
        self.background.finish(work).await;
    }

    /// The operations have ended, each however it did.
    pub(crate) async fn perform(&self, ops: Ops) -> Vec<Ended> {
        join_all(ops.into_iter().map(|op| self.perform_one(op))).await
    }

    /// A member that did not write has failed, if the others can serve without it.
    pub(crate) fn judge(self: &Rc<Self>, all: &[Ended], extent: Extent) -> Result<(), IoError> {
        let mut refused = Ok(());
        for ended in all {
            let Err(error) = ended.result else { continue };
            if self.spares(ended.member) || error.kind == IoErrorKind::Gone || self.layout.has_parity() {
                self.lose_in(ended.member, ended.tenure, error);
            } else {
                // There is no other copy, and no parity that would now be wrong: the caller is told.
                refused = Err(error.at(extent).of_member(ended.member));
                self.disbelieve_mirrors(ended, all);
            }
        }
        refused.and_then(|()| self.serving(extent))
    }

    /// The blocks that members refused which are in service all the same: there is no other copy.
    pub(crate) fn refused_of(&self, all: &[Ended]) -> Vec<(u16, Extent)> {
        let in_service = self.in_service();
        let is_refused = |one: &&Ended| one.result.is_err() && in_service.contains(one.member);
        all.iter().filter(is_refused).map(|one| (one.member, one.extent)).collect()
    }

    /// The only full copy kept its old content, so a replacement that took the new one differs from it.
    fn disbelieve_mirrors(&self, refused: &Ended, all: &[Ended]) {
        let pair = |member: u16| member / self.layout.copies();
        for other in all.iter().filter(|other| other.result.is_ok() && pair(other.member) == pair(refused.member)) {
            self.member(other.member).mark_unreadable(other.extent.intersection(refused.extent));
        }
    }
}
