//! Operations that change blocks of members, and what their errors mean for the array.

use crate::geometry::bytes;
use crate::members::Members;
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Lba, View};
use futures_util::future::join_all;
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
        assert_eq!(data.len(), bytes(at.len.0), "data fills its extent");
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

impl<D: BlockDevice + 'static> Members<D> {
    /// The runs of a member's `extent` that are written: all of it, or what its rebuild has left behind.
    pub(crate) fn written_runs(&self, member: u16, extent: Extent) -> impl Iterator<Item = Extent> {
        let chunk = self.layout.chunk_blocks();
        let (mut at, end) = (extent.start.0, extent.end().0);
        let is_written = move |block: u64| self.place(member).usable(block / chunk).1;
        std::iter::from_fn(move || {
            let next_stripe = |block: u64| end.min((block / chunk + 1) * chunk);
            while at < end && !is_written(at) {
                at = next_stripe(at);
            }
            let start = at;
            while at < end && is_written(at) {
                at = next_stripe(at);
            }
            (start < at).then(|| Extent::new(start, at - start))
        })
    }

    /// The operations have ended, each however it did.
    pub(crate) async fn perform(self: &Rc<Self>, ops: Ops) -> Vec<Ended> {
        join_all(ops.into_iter().map(|op| self.perform_one(op))).await
    }

    /// The member has written what `op` says.
    ///
    /// Without checksums, a member that did not write, and is spared, fails here: the others may take seconds yet, and what it
    /// holds now may be part old, part new.
    async fn perform_one(self: &Rc<Self>, op: Op) -> Ended {
        let place = self.place(op.member);
        let (member, extent, tenure) = (op.member, op.extent(), place.tenure.get());
        assert!(member < self.layout.members(), "an operation is of a member that the layout has");
        assert!(extent.end() <= Lba(self.layout.member_blocks().0), "an operation is within the stripes");
        let is_write = matches!(op.change, Change::Write(_));
        let written = match op.change {
            Change::Write(data) => match place.write(op.start, data.clone()).await {
                Err(error) if self.may_pass(member, error) => {
                    Box::pin(self.insist(member, error, async || place.write(op.start, data.clone()).await)).await
                }
                written => written,
            },
            Change::Discard(_) => place.discard(extent).await,
        };
        if let Err(error) = written
            && is_write
            && self.shared.missed.is_none()
            && self.spares(member)
        {
            self.lose_in(member, tenure, error);
        }
        // The proof that counts is the array's own, given once failures are durable.
        Ended { member, extent, tenure, result: written.map(drop) }
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
            self.place(other.member).mark_unreadable(other.extent.intersection(refused.extent));
        }
    }
}
