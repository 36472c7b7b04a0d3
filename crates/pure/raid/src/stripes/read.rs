//! Reads: straight from the member that holds the block, and from redundancy where that fails.

use crate::geometry::{Piece, Place, Role, Rows};
use crate::members::{MemberState, Op, Ops, Patience};
use crate::stripes::restore::Salvaged;
use crate::stripes::{Blind, Stripes};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Rope};
use futures_util::stream::{self, StreamExt};
use std::rc::Rc;

/// Pieces of one read that are under way at once.
const PIECES_AT_ONCE: usize = 32;

impl<D: BlockDevice + 'static> Stripes<D> {
    pub(crate) async fn read(self: &Rc<Self>, extent: Extent) -> Result<Rope, IoError> {
        self.tally.add(|counters| counters.reads += 1);
        let mut pieces = self.layout.pieces(extent);
        let Some(first) = pieces.next() else { return Ok(Rope::new()) };
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

    /// Takes no lock while the member answers: each of its blocks is old or new, as with any device.
    async fn read_piece(self: &Rc<Self>, piece: Piece) -> Result<Rope, IoError> {
        let mut blind = Blind::default();
        if let Some(member) = self.choose_copy(&piece) {
            let tenure = self.members.place(member).tenure.get();
            match self.read_member(member, self.member_extent(&piece), Patience::Hedged).await {
                // A member that failed meanwhile may have answered what a write that it refused has left half done.
                Ok(_) if !self.is_answerable(member, tenure, &piece) => {}
                Ok(rope) => return Ok(rope),
                Err(error) if error.kind == IoErrorKind::TimedOut => blind = Blind::because_of(member, error),
                // What does not match may be being written: asked again under the lock, it is known.
                Err(_) if self.protection.is_some() => {}
                Err(error) if self.is_bare() => {
                    let extent = self.array_extent(&piece, error.extent);
                    return Err(error.at(extent).of_member(member));
                }
                Err(error) => blind = Blind::because_of(member, error),
            }
        }
        let mut whole = Rope::new();
        for (place, rows) in self.rows_of(&piece) {
            whole.append(self.recover(place, rows, blind).await?);
        }
        Ok(whole)
    }

    /// The rows of one stripe from redundancy. What a member could not read is written back to it.
    async fn recover(self: &Rc<Self>, place: Place, rows: Rows, blind: Blind) -> Result<Rope, IoError> {
        self.tally.add(|counters| counters.degraded_reads += 1);
        let (stripe, column) = (place.stripe, place.column);
        let first = self.layout.member_extent(stripe, rows).start.0;
        let guard = self.locks.rows_shared(first..first + rows.len()).await;
        let salvaged = self.salvage(stripe, Role::Data { column, copy: 0 }, rows, blind).await;
        self.tell(stripe, column, &salvaged);
        let ops = self.heals_of(stripe, column, &salvaged);
        if !ops.is_empty() {
            self.heal(ops, guard).await;
        }
        let mut whole = Rope::new();
        let mut lost: Option<(Rows, IoError)> = None;
        for part in salvaged {
            match (part.content, &mut lost) {
                (Ok(view), None) => whole.push(view),
                (Err(error), None) => lost = Some((part.rows, error)),
                (Err(_), Some((rows, _))) if rows.end == part.rows.start => rows.end = part.rows.end,
                _ => {}
            }
        }
        let Some((rows, error)) = lost else { return Ok(whole) };
        let start = self.layout.lba_of(Place { stripe, column, row: rows.start });
        // A block that nobody can read is a medium error, unless the array cannot serve as a whole.
        let kind = if self.members.stopped_by().is_some() { error.kind } else { IoErrorKind::Medium };
        Err(IoError { kind, extent: Extent::new(start.0, rows.len()), member: error.member })
    }

    /// The writes that put salvaged rows back where they could not be read.
    fn heals_of(&self, stripe: u64, column: u16, salvaged: &[Salvaged]) -> Ops {
        let mut ops = Ops::new();
        let usable = self.members.usable(stripe);
        for part in salvaged {
            let Ok(view) = &part.content else { continue };
            for copy in 0..self.layout.copies() {
                let member = self.layout.member_of(stripe, Role::Data { column, copy });
                if (part.blind.unreadable() & usable.read).contains(member) {
                    ops.push(Op::write(member, self.layout.member_extent(stripe, part.rows), view.clone()));
                }
            }
        }
        ops
    }

    /// The member to read `piece` from: of mirrors the one with the shortest queue, of those the one
    /// whose last read ended here, of those each in turn. None when nobody holds it that is in use.
    fn choose_copy(&self, piece: &Piece) -> Option<u16> {
        let (stripe, column) = (piece.place.stripe, piece.place.column);
        let member_of = |copy| self.layout.member_of(stripe, Role::Data { column, copy });
        let copies = self.layout.copies();
        if copies == 1 {
            return Some(member_of(0)).filter(|&member| self.can_read(member, piece));
        }
        let mut candidates = (0..copies).filter(|&copy| self.can_read(member_of(copy), piece));
        if self.is_suspect(piece) {
            return candidates.next().map(member_of);
        }
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let start = self.member_extent(piece).start;
        let best = candidates.min_by_key(|&copy| {
            let member = self.members.place(member_of(copy));
            let queue = member.counts.in_flight.get();
            // A few more in the queue cost less than a seek.
            (queue / 4, member.read_end.get() != start, queue, (copy + turn % copies) % copies)
        });
        best.map(member_of)
    }

    /// True where what the member has answered may be passed on: sums have proved it, or it is still in service.
    fn is_answerable(&self, member: u16, tenure: u64, piece: &Piece) -> bool {
        self.protection.is_some()
            || self.is_bare()
            || (self.members.place(member).tenure.get() == tenure && self.can_read(member, piece))
    }

    fn can_read(&self, member: u16, piece: &Piece) -> bool {
        let member = self.members.place(member);
        match member.state() {
            MemberState::InService => true,
            _ => self.rows_of(piece).all(|(place, _)| member.usable(place.stripe).0),
        }
    }

    /// True when mirrors may differ here since an unclean stop.
    fn is_suspect(&self, piece: &Piece) -> bool {
        let suspect = self.suspect.borrow();
        let is_suspect = |stripe| suspect.iter().any(|range| range.contains(&stripe));
        !suspect.is_empty() && self.rows_of(piece).any(|(place, _)| is_suspect(place.stripe))
    }

    pub(crate) fn member_extent(&self, piece: &Piece) -> Extent {
        let chunk = self.layout.member_extent(piece.place.stripe, self.layout.all_rows());
        Extent::new(chunk.start.0 + piece.place.row, piece.blocks)
    }

    /// The blocks of the array that `part` of a piece on `member` holds; all of the piece if it is elsewhere.
    fn array_extent(&self, piece: &Piece, part: Extent) -> Extent {
        let whole = self.member_extent(piece);
        let start = self.layout.lba_of(piece.place);
        let part = part.intersection(whole);
        if part.is_empty() {
            return Extent { start, len: whole.len };
        }
        let skipped = part.start - whole.start;
        Extent { start: Lba(start.0 + skipped.0), len: part.len }
    }

    /// The rows of each stripe of `piece`, and where they begin.
    fn rows_of(&self, piece: &Piece) -> impl Iterator<Item = (Place, Rows)> + use<D> {
        let (chunk, mut place, mut rest) = (self.layout.chunk_blocks(), piece.place, piece.blocks);
        std::iter::from_fn(move || {
            let (here, rows) = (place, Rows::new(place.row, chunk.min(place.row + rest)));
            let more = rest > 0;
            rest -= rows.len().min(rest);
            place = Place { stripe: place.stripe + 1, row: 0, ..place };
            more.then_some((here, rows))
        })
    }
}
