//! Member operations that change blocks, and what their errors mean for the array.

use crate::geometry::bytes;
use crate::members::Members;
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Lba, View};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::rc::Rc;

/// Member operation that changes blocks.
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

/// Operations of one stripe.
pub(crate) type Ops = SmallVec<[Op; 8]>;

/// Result of an operation, with the incarnation of the device in the place when it was started.
pub(crate) struct Ended {
    pub(crate) member: u16,
    pub(crate) extent: Extent,
    pub(crate) incarnation: u64,
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
    /// Runs of a member's `extent` that are written; while the member is rebuilt, only those of stripes that are
    /// usable.
    pub(crate) fn written_runs(&self, member: u16, extent: Extent) -> impl Iterator<Item = Extent> {
        let chunk = self.layout.chunk_blocks();
        let (mut at, end) = (extent.start.0, extent.end().0);
        let is_written = move |block: u64| self.place(member).usable(block / chunk).1;
        std::iter::from_fn(move || {
            let next_stripe = |block: u64| end.min((block / chunk + 1) * chunk);
            // Usability changes only at stripe borders, so the search steps by stripes.
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

    /// Executes the operations concurrently and returns all results.
    pub(crate) async fn perform(self: &Rc<Self>, ops: Ops) -> Vec<Ended> {
        // All of them are awaited, even after an error: a stripe must not be left with some writes in flight.
        join_all(ops.into_iter().map(|op| self.perform_one(op))).await
    }

    /// Executes one operation, retrying a write refused for want of space.
    ///
    /// Without checksums, a spare member that did not write fails here, before the others have ended: they may take
    /// seconds, and the blocks it holds now may be part old, part new.
    async fn perform_one(self: &Rc<Self>, op: Op) -> Ended {
        let place = self.place(op.member);
        let (member, extent, incarnation) = (op.member, op.extent(), place.device_incarnation.get());
        assert!(member < self.layout.members(), "an operation is of a member that the layout has");
        assert!(extent.end() <= Lba(self.layout.member_blocks().0), "an operation is within the stripes");
        let is_write = matches!(op.change, Change::Write(_));
        let written = match op.change {
            Change::Write(data) => match place.write(op.start, data.clone()).await {
                Err(error) if self.is_temporary(member, error) => {
                    // Boxed: retries are rare, and the future of every write would otherwise carry theirs.
                    Box::pin(self.retry_no_space(member, error, async || place.write(op.start, data.clone()).await))
                        .await
                }
                written => written,
            },
            Change::Discard(_) => place.discard(extent).await,
        };
        if let Err(error) = written
            && is_write
            // `missed` exists only in protected arrays.
            && self.shared.missed.is_none()
            && self.can_lose(member)
        {
            self.mark_failed_in(member, incarnation, error);
        }
        // The acknowledgement comes from the array, once failures are durable.
        Ended { member, extent, incarnation, result: written.map(drop) }
    }

    /// Judges results: a member that did not write is failed, if the others can serve without it.
    pub(crate) fn judge(self: &Rc<Self>, all: &[Ended], extent: Extent) -> Result<(), IoError> {
        let mut refused = Ok(());
        for ended in all {
            let Err(error) = ended.result else { continue };
            // With parity a refused write cannot stand: it would leave wrong parity, so the array stops where it
            // needs the member.
            if self.can_lose(ended.member) || error.kind == IoErrorKind::Gone || self.layout.has_parity() {
                self.mark_failed_in(ended.member, ended.incarnation, error);
            } else {
                // There is no other copy, and no parity that would now be wrong: the error is returned.
                refused = Err(error.at(extent).of_member(ended.member));
                self.mark_mirrors_unreadable(ended, all);
            }
        }
        refused.and_then(|()| self.serving(extent))
    }

    /// Blocks that members in service have refused, so that no other copy has them.
    pub(crate) fn refused_of(&self, all: &[Ended]) -> Vec<(u16, Extent)> {
        let in_service = self.in_service();
        // A member that has failed needs no repair here: its rebuild restores the blocks.
        let is_refused = |one: &&Ended| one.result.is_err() && in_service.contains(one.member);
        all.iter().filter(is_refused).map(|one| (one.member, one.extent)).collect()
    }

    /// Marks the written copies unreadable on replacements: the only full copy kept its old content.
    fn mark_mirrors_unreadable(&self, refused: &Ended, all: &[Ended]) {
        let pair = |member: u16| member / self.layout.copies();
        for other in all.iter().filter(|other| other.result.is_ok() && pair(other.member) == pair(refused.member)) {
            self.place(other.member).mark_unreadable(other.extent.intersection(refused.extent));
        }
    }
}
