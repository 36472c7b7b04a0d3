//! Making writes durable, and forgetting blocks.

use crate::array::Core;
use crate::geometry::{Role, Span};
use crate::members::{Op, Ops};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Stable, Written};
use futures_util::future::join_all;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Core<D> {
    /// One flush for each member that was written since its last; a member whose flush fails has failed.
    pub(crate) async fn flush(self: &Rc<Self>, _after: Written) -> Result<Stable, IoError> {
        let everything = Extent { start: block::Lba(0), len: self.layout.blocks() };
        self.members.serving(everything)?;
        if self.protected.is_some() {
            // What was overwritten is in the log since its write ended; what is fresh comes there now.
            self.settle_fresh().await?;
            self.members.failures_recorded(everything).await?;
            return Ok(Stable::attest());
        }
        let members = (0..self.layout.members()).filter(|&member| self.members.place(member).needs_flush());
        let flush = |member| self.members.flush_member(member);
        for flushed in join_all(members.map(flush)).await {
            // A failed flush costs the member; whether the array can do without is judged below.
            drop(flushed);
        }
        self.members.failures_recorded(everything).await?;
        Ok(Stable::attest())
    }

    /// Passes on what leaves parity and mirrors right; keeps the content of everything else.
    pub(crate) async fn discard(self: &Rc<Self>, extent: Extent) -> Result<Written, IoError> {
        self.members.serving(extent)?;
        if self.is_bare() || self.all_discard_to_zeros() {
            self.for_spans(extent, |span| self.discard_span(span)).await?;
        }
        self.members.failures_recorded(extent).await?;
        Ok(Written::attest())
    }

    /// Zeros on all members are right parity, and equal mirrors.
    fn all_discard_to_zeros(&self) -> bool {
        self.members.places().iter().filter_map(|member| member.device()).all(|device| device.geometry().discard_zeroes)
    }

    async fn discard_span(self: &Rc<Self>, span: Span) -> Result<(), IoError> {
        if self.layout.has_parity() && span.extent.len.0 < self.layout.stripe_blocks() {
            return Ok(());
        }
        if self.is_bare() {
            // A hint that a member does not take costs nothing where nothing relies on it.
            return match self.carry_out_bare(self.each_copy(&span), span.extent).await {
                Err(error) if error.kind == IoErrorKind::Unsupported => Ok(()),
                result => result,
            };
        }
        let guard = self.locks.exclusive(span.stripes.clone()).await;
        self.members.serving(span.extent)?;
        let ops = if self.layout.has_parity() { self.whole_stripe(&span) } else { self.each_copy(&span) };
        self.carry_out(ops, guard, span.extent).await
    }

    fn whole_stripe(&self, span: &Span) -> Ops {
        let stripe = span.stripes.start;
        let chunk = self.layout.member_extent(stripe, self.layout.all_rows());
        self.members.usable(stripe).write.iter().map(|member| Op::discard(member, chunk)).collect()
    }

    fn each_copy(&self, span: &Span) -> Ops {
        let mut ops = Ops::new();
        for piece in self.layout.pieces(span.extent) {
            for copy in 0..self.layout.copies() {
                let role = Role::Data { column: piece.place.column, copy };
                let member = self.layout.member_of(piece.place.stripe, role);
                let extent = self.member_extent(&piece);
                ops.extend(self.members.written_runs(member, extent).map(|run| Op::discard(member, run)));
            }
        }
        ops
    }
}
