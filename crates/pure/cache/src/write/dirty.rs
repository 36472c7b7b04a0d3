//! Dirty data of a volume: pieces in address order, each block at most once.

use crate::log::RecordRef;
use block::{Extent, View};
use shard::Time;
use simd::crc32c::crc32c;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Run of dirty blocks that arrived together.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) data: View,
    /// CRC32C of `data`, computed when it arrived.
    pub(super) guard: u32,
    /// Sequence number of the write that brought it.
    pub(super) number: u64,
    /// Oldest write that becomes durable only with this piece: overwritten data passes its number on.
    pub(super) since: u64,
    /// Arrival time of the oldest of these writes.
    pub(super) at: Time,
    /// Log record of the piece, kept until no piece needs it.
    pub(super) record_ref: Option<RecordRef>,
    /// Destage write in flight.
    pub(super) destaging: bool,
    /// Refused by the device below.
    pub(super) refused: bool,
    /// Corrupted in memory: unreadable until it is overwritten.
    pub(super) bad: bool,
}

/// Dirty pieces of one volume.
#[derive(Debug)]
pub(super) struct Dirty {
    pieces: BTreeMap<u64, Piece>,
    /// Pairs of `since` and start, one for every piece.
    ages: BTreeSet<(u64, u64)>,
    block_bytes: u64,
    bytes: u64,
    next_number: u64,
    refused: usize,
    refused_bytes: u64,
}

/// Adjacent pieces that are destaged as one write.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) extent: Extent,
    pub(super) parts: Vec<(u64, Piece)>,
}

impl Run {
    /// Splits the run into one run per piece.
    pub(super) fn singles(&self, block_bytes: u32) -> impl Iterator<Item = Self> {
        self.parts.iter().map(move |(start, piece)| {
            let extent = Extent::new(*start, (piece.data.len() / block_bytes as usize) as u64);
            Self { extent, parts: vec![(*start, piece.clone())] }
        })
    }
}

impl Dirty {
    pub(super) fn new(block_bytes: u32) -> Self {
        Self {
            pieces: BTreeMap::new(),
            ages: BTreeSet::new(),
            block_bytes: u64::from(block_bytes),
            bytes: 0,
            next_number: 1,
            refused: 0,
            refused_bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Sequence number of the newest write.
    pub(super) fn newest(&self) -> u64 {
        // Numbers start at 1, so 0 stands for no write.
        self.next_number - 1
    }

    /// Number of pieces refused by the device below.
    pub(super) fn refused(&self) -> usize {
        self.refused
    }

    /// Dirty bytes without refused ones, which must not keep other volumes out of the memory.
    pub(super) fn destageable_bytes(&self) -> u64 {
        assert!(self.refused_bytes <= self.bytes, "what is stuck waits as well");
        self.bytes - self.refused_bytes
    }

    /// Refused, intact pieces that have a log record.
    pub(super) fn refused_with_records(&self) -> Vec<(u64, View)> {
        let refused = self.pieces.iter().filter(|(_, piece)| piece.refused && !piece.bad && piece.record_ref.is_some());
        refused.map(|(&start, piece)| (start, piece.data.clone())).collect()
    }

    fn blocks(&self, bytes: usize) -> u64 {
        bytes as u64 / self.block_bytes
    }

    /// Stores `data` at block `start`; older dirty data of these blocks is dropped.
    pub(super) fn insert(&mut self, start: u64, data: View, guard: u32, at: Time, record_ref: Option<RecordRef>) {
        let whole = !data.is_empty() && (data.len() as u64).is_multiple_of(self.block_bytes);
        assert!(whole, "whole blocks wait");
        let number = self.next_number;
        self.next_number += 1;
        let end = start + self.blocks(data.len());
        let (mut since, mut oldest) = (number, at);
        // Split at both ends, so that overlapping pieces lie completely within the range.
        self.cut(start);
        self.cut(end);
        // Collected, because taking a piece changes the map.
        let over: Vec<u64> = self.pieces.range(start..end).map(|(&at, _)| at).collect();
        for at in over {
            let old = self.take(at).expect("it was found just now");
            // A flush of the overwritten write must now wait for this one.
            since = since.min(old.since);
            // Repeated overwriting must not keep a block from ever being destaged.
            oldest = oldest.min(old.at);
        }
        self.put(
            start,
            Piece { data, guard, number, since, at: oldest, record_ref, destaging: false, refused: false, bad: false },
        );
    }

    /// Splits the piece across block `at`, if there is one.
    fn cut(&mut self, at: u64) {
        let Some((&start, piece)) = self.pieces.range(..at).next_back() else { return };
        if start + self.blocks(piece.data.len()) <= at {
            return;
        }
        let piece = self.take(start).expect("it was found just now");
        let bytes = ((at - start) * self.block_bytes) as usize;
        // Corruption must stay detectable in both halves, so the error of the checksum is carried over.
        let wrong = crc32c(&piece.data) ^ piece.guard;
        for (at, range) in [(start, 0..bytes), (at, bytes..piece.data.len())] {
            let data = piece.data.slice(range);
            let guard = crc32c(&data) ^ wrong;
            self.put(at, Piece { data, guard, record_ref: piece.record_ref.clone(), ..piece.clone() });
        }
    }

    fn put(&mut self, start: u64, piece: Piece) {
        self.bytes += piece.data.len() as u64;
        if piece.refused {
            self.refused += 1;
            self.refused_bytes += piece.data.len() as u64;
        }
        // With the start, because pieces of one write have the same age.
        self.ages.insert((piece.since, start));
        let before = self.pieces.insert(start, piece);
        assert!(before.is_none(), "each block waits once");
    }

    fn take(&mut self, start: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&start)?;
        assert!(self.ages.remove(&(piece.since, start)), "every piece has its age");
        assert!(piece.data.len() as u64 <= self.bytes, "the bytes of all pieces are counted");
        self.bytes -= piece.data.len() as u64;
        if piece.refused {
            assert!(self.refused > 0, "every piece that is stuck is counted");
            self.refused -= 1;
            self.refused_bytes -= piece.data.len() as u64;
        }
        Some(piece)
    }

    /// Pieces that overlap `extent`, each with its start.
    pub(super) fn over(&self, extent: Extent) -> impl Iterator<Item = (u64, &Piece)> {
        // The piece before may reach into the extent; pieces do not overlap, so one at most does.
        let before = self.pieces.range(..extent.start.0).next_back();
        let before = before.filter(move |(start, piece)| **start + self.blocks(piece.data.len()) > extent.start.0);
        let inside = self.pieces.range(extent.start.0..extent.end().0.max(extent.start.0));
        before.into_iter().chain(inside).map(|(&start, piece)| (start, piece))
    }

    /// True when a piece of a write up to `number` overlaps `extent`.
    pub(super) fn overlaps(&self, extent: Extent, number: u64) -> bool {
        // By `since` and not by `number`: a piece that has overwritten older data stands for that, too.
        !extent.is_empty() && self.over(extent).any(|(_, piece)| piece.since <= number)
    }

    /// Oldest write that is not completely below.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.ages.first().map(|&(since, _)| since)
    }

    /// True when every piece came with a write after `number`.
    pub(super) fn is_newer_than(&self, number: u64) -> bool {
        self.pieces.values().all(|piece| piece.number > number)
    }

    /// Arrival time of the oldest piece that is not refused.
    pub(super) fn oldest_at(&self) -> Option<Time> {
        // In the order of the writes, which is that of their arrival.
        self.ages.iter().map(|(_, start)| &self.pieces[start]).find(|piece| !piece.refused).map(|piece| piece.at)
    }

    /// Returns a refused piece if only refused ones remain of the writes up to `number`.
    pub(super) fn refused_up_to(&self, number: u64) -> Option<Extent> {
        let mut waiting = self.ages.range(..=(number, u64::MAX)).map(|&(_, start)| (start, &self.pieces[&start]));
        let (start, first) = waiting.next().filter(|(_, piece)| piece.refused)?;
        let extent = Extent::new(start, self.blocks(first.data.len()));
        // A piece that can still be written keeps the flush waiting; it may yet succeed.
        waiting.all(|(_, piece)| piece.refused).then_some(extent)
    }

    /// Makes every refused piece, except corrupted ones, eligible for a retry.
    pub(super) fn retry_refused(&mut self) {
        // Corrupted pieces stay refused: nothing in memory is correct, and the device still has the older content.
        let again: Vec<u64> =
            self.pieces.iter().filter(|(_, piece)| piece.refused && !piece.bad).map(|(&at, _)| at).collect();
        for start in again {
            let mut piece = self.take(start).expect("it was found just now");
            piece.refused = false;
            self.put(start, piece);
        }
    }

    /// Starts destaging the next run from block `from` on, wrapping around: a piece that `wanted` selects, with all
    /// adjacent ones in its unit of `unit_blocks`.
    pub(super) fn next_run(&mut self, from: u64, unit_blocks: u64, wanted: impl Fn(&Piece) -> bool) -> Option<Run> {
        let free = |piece: &Piece| !piece.destaging && !piece.refused;
        let first = self.pieces.range(from..).chain(self.pieces.range(..from));
        let (&start, _) = first.into_iter().find(|(_, piece)| free(piece) && wanted(piece))?;
        let unit = start / unit_blocks * unit_blocks;
        // Include adjacent pieces before it in the same unit, to make a whole stripe.
        let mut start = start;
        while let Some((&at, piece)) = self.pieces.range(unit..start).next_back() {
            if at + self.blocks(piece.data.len()) != start || !free(piece) {
                break;
            }
            start = at;
        }
        // A piece across the end of the unit is split, so that the run ends with the stripe.
        self.cut(unit + unit_blocks);
        let mut parts = Vec::new();
        let mut end = start;
        // Ends at a gap, or at a piece that is in flight or refused.
        while let Some(piece) = self.pieces.get_mut(&end).filter(|piece| free(piece)) {
            if end >= unit + unit_blocks {
                break;
            }
            // Stays in the map, because readers need it until it is below.
            piece.destaging = true;
            parts.push((end, piece.clone()));
            end += piece.data.len() as u64 / self.block_bytes;
        }
        assert!(start < end && start >= unit, "a run has pieces, of one stripe or unit");
        Some(Run { extent: Extent::new(start, end - start), parts })
    }

    /// Drops the pieces of a run that was written below, unless they were overwritten meanwhile.
    pub(super) fn mark_destaged(&mut self, run: &Run) {
        for start in self.still_of(run) {
            self.take(start);
        }
    }

    /// Ends the destaging of a run that could not be written; its pieces are retried, or if `refused` only after
    /// [`Dirty::retry_refused`].
    pub(super) fn mark_refused(&mut self, run: &Run, refused: bool) {
        self.change(run, |piece| (piece.destaging, piece.refused) = (false, refused));
    }

    /// Marks the pieces of the run as corrupted.
    pub(super) fn mark_corrupted(&mut self, run: &Run) {
        self.change(run, |piece| (piece.destaging, piece.refused, piece.bad) = (false, true, true));
    }

    fn change(&mut self, run: &Run, change: impl Fn(&mut Piece)) {
        for start in self.still_of(run) {
            let mut piece = self.take(start).expect("it was found just now");
            // Out of the map meanwhile: the counts of refused pieces depend on the state that changes.
            change(&mut piece);
            self.put(start, piece);
        }
    }

    /// Starts of the pieces of `run` that are unchanged; some may have been split.
    fn still_of(&self, run: &Run) -> Vec<u64> {
        let same = |start: u64, piece: &Piece| {
            run.parts.iter().any(|(at, part)| {
                let range: Range<u64> = *at..at + self.blocks(part.data.len());
                // Another number means that the block was overwritten while the run was in flight.
                range.contains(&start) && part.number == piece.number
            })
        };
        self.over(run.extent).filter(|&(start, piece)| same(start, piece)).map(|(at, _)| at).collect()
    }

    /// Drops all dirty data.
    pub(super) fn clear(&mut self) {
        let starts: Vec<u64> = self.pieces.keys().copied().collect();
        // One by one, so that ages and counts follow. Each drop may free a batch of the log.
        starts.into_iter().for_each(|start| drop(self.take(start)));
    }

    /// Drops a dirty piece without writing it; for a planted bug only.
    pub(super) fn lose_one(&mut self) -> bool {
        let first = self.pieces.iter().find(|(_, piece)| !piece.destaging).map(|(&start, _)| start);
        first.and_then(|start| self.take(start)).is_some()
    }

    /// Flips a bit of the piece at `block`, as faulty memory would; false when no piece starts there.
    #[cfg(test)]
    pub(super) fn flip_bit(&mut self, block: u64) -> bool {
        let Some(piece) = self.pieces.get_mut(&block) else { return false };
        let mut bytes = block::Buf::copy_of(&piece.data);
        bytes[77] ^= 1;
        piece.data = bytes.freeze();
        true
    }
}
