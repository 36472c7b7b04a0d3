//! Reads: directly from the member that holds the block, and from redundancy where that fails.

use crate::geometry::{Piece, Role, Rows, StripePosition};
use crate::members::{MemberState, Op, Ops, ReadWait};
use crate::stripes::restore::Salvaged;
use crate::stripes::{Excluded, Stripes};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Rope};
use futures_util::stream::{self, StreamExt};
use std::rc::Rc;

/// Concurrent pieces of one read.
const PIECES_AT_ONCE: usize = 32;

impl<D: BlockDevice + 'static> Stripes<D> {
    /// Reads blocks of the array, in pieces that are contiguous on the members.
    pub(crate) async fn read(self: &Rc<Self>, extent: Extent) -> Result<Rope, IoError> {
        self.tally.add(|counters| counters.reads += 1);
        let mut pieces = self.layout.pieces(extent);
        let Some(first) = pieces.next() else { return Ok(Rope::new()) };
        // The common case: the read is contiguous on one member.
        if first.blocks == extent.len.0 {
            return self.read_piece(first).await;
        }
        let all = std::iter::once(first).chain(pieces);
        let mut ropes = stream::iter(all).map(|piece| self.read_piece(piece)).buffered(PIECES_AT_ONCE);
        let mut whole = Rope::new();
        while let Some(rope) = ropes.next().await {
            whole.append(rope?);
        }
        Ok(whole)
    }

    /// Reads a piece without a lock while the member responds: each block is old or new, as with any device.
    async fn read_piece(self: &Rc<Self>, piece: Piece) -> Result<Rope, IoError> {
        let mut excluded = Excluded::default();
        if let Some(member) = self.choose_copy(&piece) {
            let incarnation = self.members.place(member).device_incarnation.get();
            match self.read_member(member, self.member_extent(&piece), ReadWait::Deadline).await {
                // The member failed meanwhile: it may have returned blocks that a refused write left half done.
                Ok(_) if !self.is_answerable(member, incarnation, &piece) => {}
                Ok(rope) => return Ok(rope),
                // Excluded for now: if the others cannot serve, the member is waited for.
                Err(error) if error.kind == IoErrorKind::TimedOut => excluded = Excluded::because_of(member, error),
                // A mismatch may be a write in progress; it is read again under the lock.
                Err(_) if self.protection.is_some() => {}
                Err(error) if self.has_no_redundancy() => {
                    // RAID-0 reports the exact blocks, in addresses of the array.
                    let extent = self.array_extent(&piece, error.extent);
                    return Err(error.at(extent).of_member(member));
                }
                Err(error) => excluded = Excluded::because_of(member, error),
            }
        }
        let mut whole = Rope::new();
        for (place, rows) in self.rows_of(&piece) {
            whole.append(self.recover(place, rows, excluded).await?);
        }
        Ok(whole)
    }

    /// Reads rows of one stripe from redundancy, and writes back what a member could not read.
    async fn recover(self: &Rc<Self>, place: StripePosition, rows: Rows, excluded: Excluded) -> Result<Rope, IoError> {
        self.tally.add(|counters| counters.degraded_reads += 1);
        let (stripe, column) = (place.stripe, place.column);
        let first = self.layout.member_extent(stripe, rows).start.0;
        let guard = self.locks.rows_shared(first..first + rows.len()).await;
        let salvaged = self.salvage(stripe, Role::Data { column, copy: 0 }, rows, excluded).await;
        // Reported before it is healed: a finding names the state that was found.
        self.report(stripe, column, &salvaged);
        let ops = self.heals_of(stripe, column, &salvaged);
        // The lock is kept until the repair is written, so that no newer write is overwritten by it.
        if !ops.is_empty() {
            self.heal(ops, guard).await;
        }
        let mut whole = Rope::new();
        let mut lost: Option<(Rows, IoError)> = None;
        for part in salvaged {
            match (part.content, &mut lost) {
                (Ok(view), None) => whole.push(view),
                (Err(error), None) => lost = Some((part.rows, error)),
                // Adjacent lost rows are one extent of the error; rows behind a gap are left to the next read.
                (Err(_), Some((rows, _))) if rows.end == part.rows.start => rows.end = part.rows.end,
                _ => {}
            }
        }
        let Some((rows, error)) = lost else { return Ok(whole) };
        let start = self.layout.lba_of(StripePosition { stripe, column, row: rows.start });
        // Only a stopped array is an error of the whole; otherwise just these blocks are lost.
        let kind = if self.members.stopped_by().is_some() { error.kind } else { IoErrorKind::Medium };
        Err(IoError { kind, extent: Extent::new(start.0, rows.len()), member: error.member })
    }

    /// Returns the writes that put restored rows back on the members that could not read them.
    fn heals_of(&self, stripe: u64, column: u16, salvaged: &[Salvaged]) -> Ops {
        let mut ops = Ops::new();
        let usable = self.members.usable(stripe);
        for part in salvaged {
            let Ok(view) = &part.content else { continue };
            for copy in 0..self.layout.copies() {
                let member = self.layout.member_of(stripe, Role::Data { column, copy });
                // Only members that failed the read; a late one may hold the content.
                if (part.excluded.unreadable() & usable.read).contains(member) {
                    ops.push(Op::write(member, self.layout.member_extent(stripe, part.rows), view.clone()));
                }
            }
        }
        ops
    }

    /// Chooses the member to read `piece` from: of mirrors the one with the shortest queue, then the one whose last
    /// read ended here, then round-robin. `None` when no usable member holds it.
    fn choose_copy(&self, piece: &Piece) -> Option<u16> {
        let (stripe, column) = (piece.position.stripe, piece.position.column);
        let member_of = |copy| self.layout.member_of(stripe, Role::Data { column, copy });
        let copies = self.layout.copies();
        if copies == 1 {
            return Some(member_of(0)).filter(|&member| self.can_read(member, piece));
        }
        // All of them agree: `Array::read` has settled the mirrors of suspect stripes before.
        let candidates = (0..copies).filter(|&copy| self.can_read(member_of(copy), piece));
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let start = self.member_extent(piece).start;
        let best = candidates.min_by_key(|&copy| {
            let member = self.members.place(member_of(copy));
            let queue = member.counts.in_flight.get();
            // Queues that differ by less than 4 count as equal: a few more commands cost less than a seek.
            (queue / 4, member.read_end.get() != start, queue, (copy + turn % copies) % copies)
        });
        best.map(member_of)
    }

    /// True where the member's answer may be passed on: checksums have verified it, or the member is still in
    /// service.
    fn is_answerable(&self, member: u16, incarnation: u64, piece: &Piece) -> bool {
        self.protection.is_some()
            || self.has_no_redundancy()
            || (self.members.place(member).device_incarnation.get() == incarnation && self.can_read(member, piece))
    }

    fn can_read(&self, member: u16, piece: &Piece) -> bool {
        let member = self.members.place(member);
        match member.state() {
            MemberState::InService => true,
            _ => self.rows_of(piece).all(|(place, _)| member.usable(place.stripe).0),
        }
    }

    /// True while the mirrors of any stripe may differ since an unclean stop.
    pub(crate) fn is_any_suspect(&self) -> bool {
        !self.suspect.borrow().is_empty()
    }

    /// True while the mirrors of this stripe may differ.
    pub(crate) fn is_suspect_stripe(&self, stripe: u64) -> bool {
        self.suspect.borrow().iter().any(|range| range.contains(&stripe))
    }

    pub(crate) fn member_extent(&self, piece: &Piece) -> Extent {
        let chunk = self.layout.member_extent(piece.position.stripe, self.layout.all_rows());
        Extent::new(chunk.start.0 + piece.position.row, piece.blocks)
    }

    /// Maps `part` of a piece on a member to blocks of the array; returns the whole piece if `part` lies elsewhere.
    fn array_extent(&self, piece: &Piece, part: Extent) -> Extent {
        let whole = self.member_extent(piece);
        let start = self.layout.lba_of(piece.position);
        let part = part.intersection(whole);
        if part.is_empty() {
            return Extent { start, len: whole.len };
        }
        let skipped = part.start - whole.start;
        Extent { start: Lba(start.0 + skipped.0), len: part.len }
    }

    /// Splits `piece` into the rows of each stripe, each with its place.
    fn rows_of(&self, piece: &Piece) -> impl Iterator<Item = (StripePosition, Rows)> + use<D> {
        let (chunk, mut place, mut rest) = (self.layout.chunk_blocks(), piece.position, piece.blocks);
        std::iter::from_fn(move || {
            let (here, rows) = (place, Rows::new(place.row, chunk.min(place.row + rest)));
            let more = rest > 0;
            rest -= rows.len().min(rest);
            place = StripePosition { stripe: place.stripe + 1, row: 0, ..place };
            more.then_some((here, rows))
        })
    }
}
