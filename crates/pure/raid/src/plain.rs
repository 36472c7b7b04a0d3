//! Plain array: striping, mirroring and parity without any metadata on disk; it trusts what its members return.
//!
//! docs/raid.md, "Plain arrays after a crash", says what `resync` is for.

use crate::geometry::{Role, Span, bytes};
use crate::members::{Op, Ops};
use crate::protected::OldContent;
use crate::stripes::Stripes;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Rope, Stable, View, Written};
use futures_util::future::join_all;
use std::rc::Rc;

mod best;
mod verify;

/// Plain array; all of its state is in the stripes.
pub(crate) struct Plain<D> {
    pub(crate) stripes: Rc<Stripes<D>>,
}

impl<D: BlockDevice + 'static> Plain<D> {
    pub(crate) fn read(&self, extent: Extent) -> impl Future<Output = Result<Rope, IoError>> {
        self.stripes.read(extent)
    }

    pub(crate) async fn write(&self, extent: Extent, data: View, _: OldContent) -> Result<Written, IoError> {
        assert_eq!(data.len(), bytes(extent.len.0), "data fills its extent");
        self.stripes.tally.add(|counters| counters.writes += 1);
        self.stripes.members.serving(extent)?;
        self.stripes
            .for_spans(extent, |span| {
                let part = data.slice(bytes(span.at)..bytes(span.at + span.extent.len.0));
                self.write_span(span, part)
            })
            .await?;
        // Before the acknowledgement: a member that missed the write must not return as current.
        self.stripes.members.failures_recorded(extent).await?;
        Ok(Written::attest())
    }

    async fn write_span(&self, span: Span, data: View) -> Result<(), IoError> {
        if self.stripes.has_no_redundancy() {
            let _guard = self.stripes.locks.shared(span.stripes.clone()).await;
            return self.stripes.execute_independent(self.mirrored(&span, &data), span.extent).await;
        }
        let guard = self.stripes.locks.exclusive(span.stripes.clone()).await;
        // Checked again under the lock, because the array may have stopped while the command waited.
        self.stripes.members.serving(span.extent)?;
        let ops = if self.stripes.layout.has_parity() {
            self.stripes.plan_stripe(&span, &data).await?
        } else {
            self.mirrored(&span, &data)
        };
        self.stripes.execute(ops, guard, span.extent).await
    }

    /// Returns the writes to every copy, one for each run that is contiguous on a member.
    fn mirrored(&self, span: &Span, data: &View) -> Ops {
        let mut ops = Ops::new();
        for piece in self.stripes.layout.pieces(span.extent) {
            let first = piece.position.stripe;
            let first_row =
                self.stripes.layout.member_extent(first, self.stripes.layout.all_rows()).start.0 + piece.position.row;
            for copy in 0..self.stripes.layout.copies() {
                let member = self.stripes.layout.member_of(first, Role::Data { column: piece.position.column, copy });
                // A member under rebuild takes only stripes below its front, and those outside of the rebuild.
                for run in self.stripes.members.written_runs(member, Extent::new(first_row, piece.blocks)) {
                    let at = piece.at + run.start.0 - first_row;
                    ops.push(Op::write(member, run, data.slice(bytes(at)..bytes(at + run.len.0))));
                }
            }
        }
        ops
    }

    /// Flushes each member that was written since its last flush; a member whose flush fails is failed.
    pub(crate) async fn flush(&self) -> Result<Stable, IoError> {
        let everything = Extent { start: block::Lba(0), len: self.stripes.layout.blocks() };
        self.stripes.members.serving(everything)?;
        let members =
            (0..self.stripes.layout.members()).filter(|&member| self.stripes.members.place(member).needs_flush());
        let flush = |member| self.stripes.members.flush_member(member);
        for flushed in join_all(members.map(flush)).await {
            // A failed flush fails the member; whether the array can spare it is judged below.
            drop(flushed);
        }
        self.stripes.members.failures_recorded(everything).await?;
        Ok(Stable::attest())
    }

    /// Passes a discard on where parity and mirrors stay consistent; elsewhere the content is kept.
    pub(crate) async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.stripes.members.serving(extent)?;
        if self.stripes.has_no_redundancy() || self.all_discard_to_zeros() {
            self.stripes.for_spans(extent, |span| self.discard_span(span)).await?;
        }
        self.stripes.members.failures_recorded(extent).await?;
        Ok(Written::attest())
    }

    /// True where a discard leaves zeros on all members: these are valid parity and equal mirrors.
    fn all_discard_to_zeros(&self) -> bool {
        self.stripes
            .members
            .places()
            .iter()
            .filter_map(|member| member.device())
            .all(|device| device.geometry().discard_zeroes)
    }

    async fn discard_span(&self, span: Span) -> Result<(), IoError> {
        // Part of a stripe cannot become zeros without changing its parity.
        if self.stripes.layout.has_parity() && span.extent.len.0 < self.stripes.layout.stripe_blocks() {
            return Ok(());
        }
        if self.stripes.has_no_redundancy() {
            let _guard = self.stripes.locks.shared(span.stripes.clone()).await;
            // RAID-0 relies on no content after a discard, so a member that does not support it costs nothing.
            return match self.stripes.execute_independent(self.each_copy(&span), span.extent).await {
                Err(error) if error.kind == IoErrorKind::Unsupported => Ok(()),
                result => result,
            };
        }
        let guard = self.stripes.locks.exclusive(span.stripes.clone()).await;
        self.stripes.members.serving(span.extent)?;
        let ops = if self.stripes.layout.has_parity() { self.whole_stripe(&span) } else { self.each_copy(&span) };
        self.stripes.execute(ops, guard, span.extent).await
    }

    fn whole_stripe(&self, span: &Span) -> Ops {
        let stripe = span.stripes.start;
        let chunk = self.stripes.layout.member_extent(stripe, self.stripes.layout.all_rows());
        // Data and parity alike, because the parity of zeros is zeros.
        self.stripes.members.usable(stripe).write.iter().map(|member| Op::discard(member, chunk)).collect()
    }

    fn each_copy(&self, span: &Span) -> Ops {
        let mut ops = Ops::new();
        for piece in self.stripes.layout.pieces(span.extent) {
            for copy in 0..self.stripes.layout.copies() {
                let role = Role::Data { column: piece.position.column, copy };
                let member = self.stripes.layout.member_of(piece.position.stripe, role);
                let extent = self.stripes.member_extent(&piece);
                ops.extend(self.stripes.members.written_runs(member, extent).map(|run| Op::discard(member, run)));
            }
        }
        ops
    }
}
