//! Announcement of writes: tells whether a pool was written since it lost a member.
//!
//! A pool opened without a member announces its first write in a commit; a commit that fails a member of an
//! open pool counts as such an announcement. A part of a pool that was only opened is thereby distinguished
//! from one with data that the other part lacks. The record is skippable: an older version drops it, and its
//! pool counts as written.

use super::wire::{Cursor, RECORD_BYTES, put, skippable, wire};
use super::{Catalog, MemberRecord, MemberState, SINCE_NEXT};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_WRITTEN: u16 = 11;

wire! {
    struct WrittenWire { generation: U64 }
}

/// Size of the record in bytes.
pub(super) const EMITTED_BYTES: usize = RECORD_BYTES + size_of::<WrittenWire>();

impl Catalog {
    pub(super) fn emit_written(&self, out: &mut Vec<u8>) {
        if let Some(generation) = self.written {
            skippable(out, TYPE_WRITTEN, |out| put(out, &WrittenWire { generation: generation.into() }));
        }
    }

    /// Reads the record; an invalid one is ignored.
    pub(super) fn parse_written(&mut self, payload: &mut Cursor<'_>) {
        let wire: Option<WrittenWire> = payload.read().ok();
        // The placeholder of the next commit is never stored; on disk it is damage.
        self.written = wire.map(|wire| wire.generation.get()).filter(|generation| *generation < SINCE_NEXT);
    }

    /// True unless nothing was written since the commit of this generation, which gave up a member.
    pub(crate) fn is_written_since(&self, generation: u64) -> bool {
        // Without the record nothing is known, so the pool counts as written.
        self.written.is_none_or(|written| written >= generation)
    }

    /// True while the next write must be announced, because it would be the first since a member was given up.
    pub(crate) fn must_announce(&self) -> bool {
        let mut given_up = self.members().filter(|member| !member.state.takes_part());
        given_up.any(|member| !self.is_written_since(member.since))
    }

    /// True when both have the same content for hosts; states of members, scrub, losses and clean flags are
    /// ignored.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
        // Compares copies without everything that changes without a host or operator.
        let bare = |catalog: &Self| {
            let mut bare = catalog.clone();
            (bare.scrub, bare.lost, bare.written, bare.owner_epoch) = (None, Default::default(), None, 0);
            for group in &mut bare.groups {
                group.clean = true;
                for MemberRecord { state, since, .. } in &mut group.members {
                    (*state, *since) = (MemberState::InService, 0);
                }
            }
            bare
        };
        bare(self) == bare(other)
    }
}
