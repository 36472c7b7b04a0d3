//! Catalog records of unrecoverable blocks of groups, kept until the blocks are rewritten.
//!
//! The records inform operators; reads do not depend on them. Older versions therefore skip them, and
//! unreadable ones are dropped.

use super::wire::{Cursor, RECORD_BYTES, put, skippable, wire};
use super::{Catalog, GroupRole};
use block::Extent;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_LOST: u16 = 10;

/// Maximum number of runs listed for one group.
pub const LOST_RUNS_MAX: usize = 2048;

/// Unrecoverable blocks of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRecord {
    /// Runs in blocks of the group, ascending and disjoint; at most [`LOST_RUNS_MAX`].
    pub runs: Vec<Extent>,
    /// Number of further blocks that are counted but not listed.
    pub more: u64,
}

wire! {
    struct LostWire { more: U64, group: U16, reserved: [u8; 2], runs: U32 }
    struct LostRunWire { start: U64, blocks: U64 }
}

impl LostRecord {
    /// True when no block is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.more == 0
    }

    /// Number of lost blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        // `more` comes from the disk, and a valid checksum does not bound it. The runs are disjoint, so their sum fits.
        self.runs.iter().map(|run| run.len.0).sum::<u64>().saturating_add(self.more)
    }

    /// Keeps `runs` listed runs at most; the blocks of the others are only counted.
    pub(crate) fn shorten(&mut self, runs: usize) {
        let cut: u64 = self.runs.iter().skip(runs).map(|run| run.len.0).sum();
        self.runs.truncate(runs);
        self.more = self.more.saturating_add(cut);
    }

    pub(super) fn emitted_bytes(&self) -> usize {
        RECORD_BYTES + size_of::<LostWire>() + self.runs.len() * size_of::<LostRunWire>()
    }

    pub(super) fn emit(&self, group: u16, out: &mut Vec<u8>) {
        skippable(out, TYPE_LOST, |out| {
            let runs = u32::try_from(self.runs.len()).expect("bounded by LOST_RUNS_MAX").into();
            put(out, &LostWire { more: self.more.into(), group: group.into(), reserved: [0; 2], runs });
            for run in &self.runs {
                put(out, &LostRunWire { start: run.start.0.into(), blocks: run.len.0.into() });
            }
        });
    }

    fn parse(payload: &mut Cursor<'_>) -> Option<(u16, Self)> {
        let wire: LostWire = payload.read().ok()?;
        let mut lost = Self { runs: Vec::new(), more: wire.more.get() };
        // The count is not trusted: the loop ends with the payload or at the limit.
        for _ in 0..wire.runs.get() {
            let run: LostRunWire = payload.read().ok()?;
            let run = Extent::checked(run.start.get(), run.blocks.get())?;
            // Runs must be ascending and disjoint, as `emit` writes them.
            let follows = lost.runs.last().is_none_or(|last| last.end() <= run.start);
            if run.is_empty() || !follows || lost.runs.len() == LOST_RUNS_MAX {
                return None;
            }
            lost.runs.push(run);
        }
        // Bytes behind the runs mean that the count is wrong.
        payload.end().ok()?;
        Some((wire.group.get(), lost)).filter(|(_, lost)| !lost.is_empty())
    }
}

impl Catalog {
    /// Adds the record of one group; an invalid one is skipped.
    pub(super) fn parse_lost(&mut self, payload: &mut Cursor<'_>) {
        self.lost.extend(LostRecord::parse(payload));
    }

    /// Lost blocks of existing groups.
    pub(crate) fn lost_blocks(&self) -> impl Iterator<Item = (u16, &LostRecord)> {
        let is_there =
            |group: u16| self.groups.get(usize::from(group)).is_some_and(|record| record.role != GroupRole::Removed);
        self.lost.iter().map(|(&group, lost)| (group, lost)).filter(move |(group, _)| is_there(*group))
    }

    /// Drops the records of groups that do not exist.
    pub(super) fn drop_stray_losses(&mut self) {
        let there: Vec<u16> = self.lost_blocks().map(|(group, _)| group).collect();
        self.lost.retain(|group, _| there.contains(group));
    }
}
