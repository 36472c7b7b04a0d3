//! Whether a pool was written since it parted from a member.
//!
//! A pool that was opened without a member announces its first write by a commit, and a member that fails while the pool is open is
//! given up by a commit that counts as such an announcement. So a part of a pool that was only opened is told from one that has
//! data which the other part lacks. The record is skippable: an older version drops it, and its pool counts as written.

use super::wire::{Cursor, RECORD_BYTES, put, skippable, wire};
use super::{Catalog, MemberRecord, MemberState, SINCE_NEXT};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_WRITTEN: u16 = 11;

wire! {
    struct WrittenWire { generation: U64 }
}

/// Bytes of the record.
pub(super) const EMITTED_BYTES: usize = RECORD_BYTES + size_of::<WrittenWire>();

impl Catalog {
    pub(super) fn emit_written(&self, out: &mut Vec<u8>) {
        if let Some(generation) = self.written {
            skippable(out, TYPE_WRITTEN, |out| put(out, &WrittenWire { generation: generation.into() }));
        }
    }

    /// Takes in the record; one that cannot be read says nothing.
    pub(super) fn parse_written(&mut self, payload: &mut Cursor<'_>) {
        let wire: Option<WrittenWire> = payload.read().ok();
        self.written = wire.map(|wire| wire.generation.get()).filter(|generation| *generation < SINCE_NEXT);
    }

    /// True unless nothing was written since the commit of this generation gave up a member.
    pub(crate) fn is_written_since(&self, generation: u64) -> bool {
        self.written.is_none_or(|written| written >= generation)
    }

    /// True while a write is to be announced first: it would be the first since a member was given up.
    pub(crate) fn must_announce(&self) -> bool {
        let mut given_up = self.members().filter(|member| !member.state.takes_part());
        given_up.any(|member| !self.is_written_since(member.since))
    }

    /// True when both have the same content for hosts: the states of members, scrubs, losses and marks of redundancy aside.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
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
