//! Blocks of groups whose content could not be restored, until they are written again.
//!
//! The record tells operators what is lost; what a read answers does not depend on it. So older versions pass it over, and one
//! that cannot be read is left out.

use super::wire::{Cursor, RECORD_BYTES, put, skippable, wire};
use super::{Catalog, GroupRole};
use block::Extent;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_LOST: u16 = 10;

/// The most runs of blocks that are named of one group.
pub const LOST_RUNS_MAX: usize = 2048;

/// The lost blocks of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRecord {
    /// In blocks of the group, in ascending order and apart from each other; at most [`LOST_RUNS_MAX`].
    pub runs: Vec<Extent>,
    /// Blocks beside these, which are counted and not named.
    pub more: u64,
}

wire! {
    struct LostWire { more: U64, group: U16, reserved: [u8; 2], runs: U32 }
    struct LostRunWire { start: U64, blocks: U64 }
}

impl LostRecord {
    /// True when nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.more == 0
    }

    /// How many blocks are lost.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| run.len.0).sum::<u64>() + self.more
    }

    /// Names at most `runs` runs; the blocks of the others are counted.
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
        for _ in 0..wire.runs.get() {
            let run: LostRunWire = payload.read().ok()?;
            let run = Extent::checked(run.start.get(), run.blocks.get())?;
            let follows = lost.runs.last().is_none_or(|last| last.end() <= run.start);
            if run.is_empty() || !follows || lost.runs.len() == LOST_RUNS_MAX {
                return None;
            }
            lost.runs.push(run);
        }
        payload.end().ok()?;
        Some((wire.group.get(), lost)).filter(|(_, lost)| !lost.is_empty())
    }
}

impl Catalog {
    /// Takes in the record of one group.
    pub(super) fn parse_lost(&mut self, payload: &mut Cursor<'_>) {
        self.lost.extend(LostRecord::parse(payload));
    }

    /// What is lost of groups that the pool has.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (u16, &LostRecord)> {
        let is_there =
            |group: u16| self.groups.get(usize::from(group)).is_some_and(|record| record.role != GroupRole::Removed);
        self.lost.iter().map(|(&group, lost)| (group, lost)).filter(move |(group, _)| is_there(*group))
    }

    /// What is known of groups that are not there is forgotten.
    pub(super) fn drop_stray_losses(&mut self) {
        let there: Vec<u16> = self.losses().map(|(group, _)| group).collect();
        self.lost.retain(|group, _| there.contains(group));
    }
}
