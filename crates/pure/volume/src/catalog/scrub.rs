//! Catalog record of a scrub: the running one with its progress, or the last one.

use super::check::ensure;
use super::wire::{Cursor, RECORD_BYTES, parse_bool, put, skippable, wire};
use super::{Catalog, CatalogError, GROUPS_MAX};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_SCRUB: u16 = 9;

/// Scrub of a pool. Counts are of stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Phase of the scrub.
    pub phase: ScrubPhase,
    /// Start time in seconds since 1970.
    pub started: u64,
    /// End time in seconds since 1970; 0 while it runs.
    pub ended: u64,
    /// True when parity and mirrors that disagree with the data are repaired.
    pub repairs: bool,
    /// Progress.
    pub at: ScrubPosition,
    /// Number of bytes read and compared.
    pub checked_bytes: u64,
    /// Stripes with parity or mirrors that disagree with the data.
    pub mismatches: u64,
    /// Stripes that could be neither read completely nor repaired.
    pub unreadable: u64,
    /// Stripes repaired.
    pub healed: u64,
}

/// Phase of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubPhase {
    /// Not finished; it continues when the pool is opened.
    Running,
    /// Finished.
    Done,
    /// Stopped by an operator.
    Stopped,
    /// Failed: it could not continue.
    Failed,
}

/// Progress of a scrub: the first stripe not read; all groups before this one are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubPosition {
    /// Index of the group in the catalog.
    pub group: u16,
    /// Stripe in the group.
    pub stripe: u64,
    /// Stripe size of the group in bytes at that time; a group with another layout is read from its first
    /// stripe.
    pub stripe_bytes: u64,
}

wire! {
    struct ScrubWire {
        started: U64, ended: U64, stripe: U64, stripe_bytes: U64, checked_bytes: U64, mismatches: U64, unreadable: U64,
        healed: U64, group: U16, phase: u8, repairs: u8, reserved: [u8; 12],
    }
}

impl ScrubRecord {
    /// Size of the record in bytes.
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
        // Skippable: a version that does not know scrubs loses only the position.
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
            repairs: parse_bool(wire.repairs).ok_or(CatalogError::Damaged("a scrub neither repairs nor does not"))?,
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
    /// Checks that the scrub is in a possible group.
    pub(super) fn check_scrub(&self) -> Result<(), CatalogError> {
        // Only the limit is checked: the group may have been removed since.
        let group = self.scrub.map_or(0, |scrub| scrub.at.group);
        ensure(usize::from(group) < GROUPS_MAX, "a scrub is in a group that no pool has")
    }
}
