//! Catalog records of unfinished copies to volumes of the pool: source and progress.
//!
//! A record only lets a copy continue. An unreadable record is therefore skipped, and its volume stays a
//! partial copy that is never continued.

use super::Catalog;
use super::wire::{Cursor, RECORD_BYTES, parse_bool, put, skippable, wire};
use block::Blocks;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_COPY: u16 = 12;

/// Maximum length of a source name in bytes.
pub const SOURCE_BYTES_MAX: usize = 512;

/// Unfinished copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    /// UUID of the source pool.
    pub source_pool: Uuid,
    /// UUID of the snapshot being copied.
    pub snapshot: Uuid,
    /// True when the snapshot was created for the copy and is deleted with it.
    pub made: bool,
    /// Name of the source when the copy started; at most [`SOURCE_BYTES_MAX`].
    pub source: String,
    /// First block of 4096 bytes that is not copied yet.
    pub next: Blocks,
    /// Number of data bytes copied before it.
    pub copied_bytes: u64,
}

wire! {
    struct CopyWire {
        volume: [u8; 16], source_pool: [u8; 16], snapshot: [u8; 16], next: U64, copied_bytes: U64, source_bytes: U16, made: u8,
        reserved: [u8; 5],
    }
}

impl CopyRecord {
    pub(crate) fn emitted_bytes(&self) -> usize {
        // Records are padded to multiples of eight bytes.
        RECORD_BYTES + size_of::<CopyWire>() + self.source.len().next_multiple_of(8)
    }

    pub(super) fn emit(&self, volume: Uuid, out: &mut Vec<u8>) {
        skippable(out, TYPE_COPY, |out| {
            put(
                out,
                &CopyWire {
                    volume: *volume.as_bytes(),
                    source_pool: *self.source_pool.as_bytes(),
                    snapshot: *self.snapshot.as_bytes(),
                    next: self.next.0.into(),
                    copied_bytes: self.copied_bytes.into(),
                    source_bytes: u16::try_from(self.source.len()).expect("at most SOURCE_BYTES_MAX").into(),
                    made: u8::from(self.made),
                    reserved: [0; 5],
                },
            );
            out.extend_from_slice(self.source.as_bytes());
        });
    }

    fn parse(payload: &mut Cursor<'_>) -> Option<(Uuid, Self)> {
        let wire: CopyWire = payload.read().ok()?;
        let bytes = payload.bytes(usize::from(wire.source_bytes.get())).ok()?;
        let source = std::str::from_utf8(bytes).ok().filter(|source| source.len() <= SOURCE_BYTES_MAX)?.to_owned();
        // Bytes behind the name mean that its length is wrong.
        payload.end().ok()?;
        let record = Self {
            source_pool: Uuid::from_bytes(wire.source_pool),
            snapshot: Uuid::from_bytes(wire.snapshot),
            made: parse_bool(wire.made)?,
            source,
            next: Blocks(wire.next.get()),
            copied_bytes: wire.copied_bytes.get(),
        };
        Some((Uuid::from_bytes(wire.volume), record))
    }
}

impl Catalog {
    /// Adds the record of one copy; an invalid one is skipped.
    pub(super) fn parse_copy(&mut self, payload: &mut Cursor<'_>) {
        self.copies.extend(CopyRecord::parse(payload));
    }

    /// Copies whose target volume exists and is still partial.
    pub(crate) fn unfinished_copies(&self) -> impl Iterator<Item = (Uuid, &CopyRecord)> {
        // A complete volume needs no record, and the copy to a deleted one never continues.
        let is_partial =
            |volume: Uuid| self.branch(volume).is_some_and(|(_, branch)| branch.partial && !branch.deleting);
        self.copies.iter().map(|(&volume, copy)| (volume, copy)).filter(move |(volume, _)| is_partial(*volume))
    }

    /// Drops the records of other copies.
    pub(super) fn drop_stray_copies(&mut self) {
        // Called when a catalog is read, so that records of deleted volumes do not accumulate.
        let there: Vec<Uuid> = self.unfinished_copies().map(|(volume, _)| volume).collect();
        self.copies.retain(|volume, _| there.contains(volume));
    }
}
