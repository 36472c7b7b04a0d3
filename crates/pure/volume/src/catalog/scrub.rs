//! The scrub of a pool, as its catalog knows it: the one that runs and how far it is, or the last one that finished.

use super::check::ensure;
use super::wire::{Cursor, RECORD_BYTES, put, skippable, truth, wire};
use super::{Catalog, CatalogError, GROUPS_MAX};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_SCRUB: u16 = 9;

/// A scrub. Counts are of stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubRecord {
    /// How it is.
    pub phase: ScrubPhase,
    /// When it started, in seconds since 1970.
    pub started: u64,
    /// When it finished, in seconds since 1970; 0 while it runs.
    pub ended: u64,
    /// True when parity and mirrors that disagree with the data are repaired, too.
    pub repairs: bool,
    /// How far it is.
    pub at: ScrubPosition,
    /// Bytes that were read and compared.
    pub checked_bytes: u64,
    /// Parity or mirrors disagree with the data.
    pub mismatches: u64,
    /// They could not be read whole and not be repaired.
    pub unreadable: u64,
    /// They were repaired.
    pub healed: u64,
}

/// How a scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubPhase {
    /// It has not finished; it continues when the pool is opened.
    Running,
    /// It has read everything.
    Done,
    /// An operator has stopped it.
    Stopped,
    /// It could not continue.
    Failed,
}

/// The first stripe that a scrub has not read: all groups before this one are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubPosition {
    /// The group, by its place in the catalog.
    pub group: u16,
    /// The stripe in the group.
    pub stripe: u64,
    /// Bytes of a stripe of the group then; a group with another layout is read from its first stripe.
    pub stripe_bytes: u64,
}

wire! {
    struct ScrubWire {
        started: U64, ended: U64, stripe: U64, stripe_bytes: U64, checked_bytes: U64, mismatches: U64, unreadable: U64,
        healed: U64, group: U16, phase: u8, repairs: u8, reserved: [u8; 12],
    }
}

impl ScrubRecord {
    /// Bytes of the record.
    pub(super) const EMITTED_BYTES: usize = RECORD_BYTES + size_of::<ScrubWire>();

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let phase = match self.phase {
            ScrubPhase::Running => 0,
            ScrubPhase::Done => 1,
            ScrubPhase::Stopped => 2,
            ScrubPhase::Failed => 3,
        };
        let wire = ScrubWire {
            started: self.started.into(),
            ended: self.ended.into(),
            stripe: self.at.stripe.into(),
            stripe_bytes: self.at.stripe_bytes.into(),
            checked_bytes: self.checked_bytes.into(),
            mismatches: self.mismatches.into(),
            unreadable: self.unreadable.into(),
            healed: self.healed.into(),
            group: self.at.group.into(),
            phase,
            repairs: u8::from(self.repairs),
            reserved: [0; 12],
        };
        // Who does not know of scrubs loses nothing but the place where one continues.
        skippable(out, TYPE_SCRUB, |out| put(out, &wire));
    }

    pub(super) fn parse(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: ScrubWire = payload.read()?;
        let phase = match wire.phase {
            0 => ScrubPhase::Running,
            1 => ScrubPhase::Done,
            2 => ScrubPhase::Stopped,
            3 => ScrubPhase::Failed,
            _ => return Err(CatalogError::Damaged("unknown phase of a scrub")),
        };
        Ok(Self {
            phase,
            started: wire.started.get(),
            ended: wire.ended.get(),
            repairs: truth(wire.repairs).ok_or(CatalogError::Damaged("a scrub neither repairs nor does not"))?,
            at: ScrubPosition {
                group: wire.group.get(),
                stripe: wire.stripe.get(),
                stripe_bytes: wire.stripe_bytes.get(),
            },
            checked_bytes: wire.checked_bytes.get(),
            mismatches: wire.mismatches.get(),
            unreadable: wire.unreadable.get(),
            healed: wire.healed.get(),
        })
    }
}

impl Catalog {
    /// A scrub is in a group that the pool can have.
    pub(super) fn check_scrub(&self) -> Result<(), CatalogError> {
        let group = self.scrub.map_or(0, |scrub| scrub.at.group);
        ensure(usize::from(group) < GROUPS_MAX, "a scrub is in a group that no pool has")
    }
}
