//! Encoding of the catalog: a sequence of records with type, length and payload.
//!
//! A record of an unknown type is skipped when its flag says so, and refused otherwise; this is how later kinds
//! of objects are added. Byte layout: `docs/on-disk.md`, *Catalog*.

use super::copies::{CopyRecord, TYPE_COPY};
use super::family_wire::{TYPE_BRANCH, TYPE_FAMILY, TYPE_SNAPSHOT, needed_by_branch, needed_by_family};
use super::log::{LogRecord, TYPE_LOG};
use super::lost::TYPE_LOST;
use super::reservations::{self, TYPE_RESERVATIONS};
use super::scrub::{ScrubRecord, TYPE_SCRUB};
use super::written::{self, TYPE_WRITTEN};
use super::{
    Catalog, Column, FamilyRecord, GROUPS_MAX, GroupRecord, GroupRole, MEMBERS_MAX, MemberRecord, MemberState,
    PoolPhase, SEGMENTS_MAX, SLABS_MAX, SNAPSHOTS_MAX, Segment, SlabSet, VOLUMES_MAX, VolumeRecord,
};
use crate::label::{LOGS, PROTECTED, RESERVATIONS};
use block::Blocks;
use std::collections::BTreeMap;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Reason why bytes are not a valid catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Truncated: the bytes end before what they announce.
    #[error("the catalog is cut short")]
    Short,
    /// Mandatory record of an unknown type.
    #[error("the catalog has a record of type {0}, which this version does not know")]
    UnknownType(u16),
    /// Impossible value of a field.
    #[error("the catalog is damaged: {0}")]
    Damaged(&'static str),
}

const TYPE_POOL: u16 = 1;
const TYPE_GROUP: u16 = 2;
const TYPE_VOLUME: u16 = 3;
/// Flag: a reader that does not know the type skips the record.
const FLAG_SKIPPABLE: u16 = 1;
/// Alignment of records in bytes.
const ALIGN: usize = 8;

/// Maximum overhead of a record in bytes: header and padding.
pub(super) const RECORD_BYTES: usize = size_of::<RecordHeader>() + ALIGN;

const SET_RUNS: u8 = 0;
const SET_WORDS: u8 = 1;

macro_rules! wire {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        struct $name { $($field: $kind),* }
    )*};
}
pub(super) use wire;

wire! {
    struct RecordHeader { kind: U16, flags: U16, payload_bytes: U32 }
    struct PoolWire { pool: [u8; 16], owner_epoch: U64, slab_bytes: U64, phase: u8, name_bytes: u8, reserved: [u8; 6] }
    struct GroupWire {
        id: [u8; 16], level: u8, clean: u8, members: U16, chunk_bytes: U32,
        member_blocks: U64, slab_blocks: U32, slabs: U32, protected: u8, reserved: [u8; 14], role: u8,
    }
    struct MemberWire { disk: [u8; 16], front: U64, since: U64, state: u8, reserved: [u8; 7] }
    struct VolumeWire {
        id: [u8; 16], size_bytes: U64, created_at: U64, block_bytes: U32, stripe_unit_bytes: U32,
        segments: U32, name_bytes: u8, reserved: [u8; 11],
    }
    struct SegmentWire { rows: U32, rounds: U32, columns: U16, set: u8, reserved: u8, items: U32 }
    struct ColumnWire { first_slab: U32, unit_blocks: U32, group: U16, reserved: [u8; 6] }
    struct RunWire { first: U32, slabs: U32 }
}

impl Catalog {
    /// Encodes the catalog as it is stored behind a slot's header.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        record(&mut out, TYPE_POOL, |out| {
            let phase = match self.phase {
                PoolPhase::Forming => 0,
                PoolPhase::Live => 1,
                PoolPhase::Destroyed => 2,
            };
            put(
                out,
                &PoolWire {
                    pool: *self.pool.as_bytes(),
                    owner_epoch: self.owner_epoch.into(),
                    slab_bytes: self.slab_bytes.into(),
                    phase,
                    name_bytes: name_bytes(&self.name),
                    reserved: [0; 6],
                },
            );
            out.extend_from_slice(self.name.as_bytes());
        });
        // The order of the records is fixed, so that equal catalogs are equal bytes.
        for group in &self.groups {
            record(&mut out, TYPE_GROUP, |out| group.emit(out));
        }
        for volume in &self.volumes {
            record(&mut out, TYPE_VOLUME, |out| volume.emit(out));
        }
        self.families.iter().for_each(|family| family.emit(&mut out));
        self.log.iter().for_each(|log| log.emit(&mut out));
        // Only reservations, losses and copies of what still exists are written; the rest disappears with this
        // commit.
        self.reserved().for_each(|(volume, kept)| reservations::emit(volume, kept, &mut out));
        self.scrub.iter().for_each(|scrub| scrub.emit(&mut out));
        self.lost_blocks().for_each(|(group, lost)| lost.emit(group, &mut out));
        self.unfinished_copies().for_each(|(volume, copy)| copy.emit(volume, &mut out));
        self.emit_written(&mut out);
        out
    }

    /// Parses and checks a catalog.
    ///
    /// *Errors*: for any bytes that [`Catalog::emit`] of some version does not produce. Memory is bounded by
    /// the limits of this module whatever the bytes say.
    pub fn parse(bytes: &[u8]) -> Result<Self, CatalogError> {
        let mut rest = Cursor(bytes);
        // The pool record comes first; every other type needs it.
        let mut catalog: Option<Self> = None;
        // Limits are pool-wide and taken off while records are read, before memory is allocated for them.
        let mut room = Limits::of_a_pool();
        while !rest.0.is_empty() {
            let header: RecordHeader = rest.read()?;
            // Each record has its own bytes, so a wrong count in it cannot reach into the next one.
            let mut payload = Cursor(rest.take(header.payload_bytes.get() as usize)?);
            rest.pad(header.payload_bytes.get() as usize)?;
            match (header.kind.get(), &mut catalog) {
                (TYPE_POOL, None) => catalog = Some(Self::parse_pool(&mut payload)?),
                (TYPE_GROUP, Some(catalog)) if catalog.groups.len() < GROUPS_MAX => {
                    catalog.groups.push(GroupRecord::parse(&mut payload)?);
                }
                (TYPE_VOLUME, Some(catalog)) if catalog.volumes.len() < VOLUMES_MAX => {
                    catalog.volumes.push(VolumeRecord::parse(&mut payload, &mut room)?);
                }
                // The guards above failed: a second pool record, a record before it, or too many of one kind.
                (TYPE_POOL | TYPE_GROUP | TYPE_VOLUME, _) => {
                    return Err(CatalogError::Damaged("records are out of order or too many"));
                }
                (kind @ TYPE_FAMILY..=TYPE_SNAPSHOT, Some(catalog)) => {
                    if !catalog.parse_family(kind, &mut payload, &mut room)? {
                        return Err(CatalogError::Damaged("records are out of order or too many"));
                    }
                }
                (TYPE_LOG, Some(catalog)) if catalog.log.is_none() => {
                    catalog.log = Some(LogRecord::parse(&mut payload)?)
                }
                // `continue` skips the check for trailing bytes: an invalid record of these kinds does not make
                // the catalog invalid.
                (TYPE_RESERVATIONS, Some(catalog)) => {
                    catalog.parse_reservations(&mut payload);
                    continue;
                }
                (TYPE_SCRUB, Some(catalog)) if catalog.scrub.is_none() => {
                    catalog.scrub = Some(ScrubRecord::parse(&mut payload)?);
                }
                (TYPE_LOST, Some(catalog)) => {
                    catalog.parse_lost(&mut payload);
                    continue;
                }
                (TYPE_COPY, Some(catalog)) => {
                    catalog.parse_copy(&mut payload);
                    continue;
                }
                (TYPE_WRITTEN, Some(catalog)) => {
                    catalog.parse_written(&mut payload);
                    continue;
                }
                // Known types outside their place are refused above, so only unknown types get here.
                _ if header.flags.get() & FLAG_SKIPPABLE != 0 => continue,
                (kind, _) => return Err(CatalogError::UnknownType(kind)),
            }
            payload.end()?;
        }
        let mut catalog = catalog.ok_or(CatalogError::Short)?;
        catalog.drop_stray_reservations();
        catalog.drop_stray_losses();
        catalog.drop_stray_copies();
        // After the stray records are gone, so that these cannot make a catalog invalid.
        catalog.check()?;
        Ok(catalog)
    }

    /// Upper bound of the bytes that [`Catalog::emit`] produces, however slabs become initialized and members
    /// change.
    ///
    /// Callers refuse a change that would exceed the slot, so that later commits always fit.
    #[must_use]
    pub fn emitted_bytes_max(&self) -> usize {
        let group = |group: &GroupRecord| size_of::<GroupWire>() + group.members.len() * size_of::<MemberWire>();
        let groups: usize = self.groups.iter().map(|record| RECORD_BYTES + group(record)).sum();
        let volumes: usize = self.volumes.iter().map(VolumeRecord::emitted_bytes_max).sum();
        let families: usize = self.families.iter().map(FamilyRecord::emitted_bytes).sum();
        // Reserved as soon as there is a log group, so that volumes can enter the log in a full catalog.
        let log = if self.log_group().is_some() { LogRecord::EMITTED_BYTES_MAX } else { 0 };
        let reserved: usize = self.reserved().map(|(_, kept)| reservations::emitted_bytes(kept)).sum();
        let lost: usize = self.lost_blocks().map(|(_, lost)| lost.emitted_bytes()).sum();
        let copies: usize = self.unfinished_copies().map(|(_, copy)| CopyRecord::emitted_bytes(copy)).sum();
        // Records of a scrub and of an announcement always count, so that a full catalog can still get them.
        RECORD_BYTES
            + size_of::<PoolWire>()
            + self.name.len()
            + groups
            + volumes
            + families
            + log
            + reserved
            + ScrubRecord::EMITTED_BYTES
            + written::EMITTED_BYTES
            + lost
            + copies
    }

    fn parse_pool(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: PoolWire = payload.read()?;
        let phase = match wire.phase {
            0 => PoolPhase::Forming,
            1 => PoolPhase::Live,
            2 => PoolPhase::Destroyed,
            _ => return Err(CatalogError::Damaged("unknown phase of the pool")),
        };
        Ok(Self {
            pool: Uuid::from_bytes(wire.pool),
            name: payload.text(wire.name_bytes)?,
            phase,
            owner_epoch: wire.owner_epoch.get(),
            slab_bytes: wire.slab_bytes.get(),
            groups: Vec::new(),
            volumes: Vec::new(),
            families: Vec::new(),
            log: None,
            reservations: BTreeMap::new(),
            scrub: None,
            lost: BTreeMap::new(),
            copies: BTreeMap::new(),
            written: None,
        })
    }
}

impl GroupWire {
    /// Feature bits required by the group.
    fn needs(&self) -> u64 {
        let protected = if self.protected != 0 { PROTECTED } else { 0 };
        protected | if self.role != 0 { LOGS } else { 0 }
    }
}

impl GroupRecord {
    fn emit(&self, out: &mut Vec<u8>) {
        put(
            out,
            &GroupWire {
                id: *self.id.as_bytes(),
                level: self.level,
                clean: u8::from(self.clean),
                members: u16::try_from(self.members.len()).expect("bounded by MEMBERS_MAX").into(),
                chunk_bytes: self.chunk_bytes.into(),
                member_blocks: self.member_blocks.0.into(),
                slab_blocks: self.slab_blocks.into(),
                slabs: self.slabs.into(),
                protected: u8::from(self.protected),
                reserved: [0; 14],
                role: match self.role {
                    GroupRole::Data => 0,
                    GroupRole::Log => 1,
                    GroupRole::Removed => 2,
                },
            },
        );
        for member in &self.members {
            let (state, front) = match member.state {
                MemberState::InService => (0, 0),
                MemberState::Rebuilding { front } => (1, front.0),
                MemberState::Failed => (2, 0),
                MemberState::Missing => (3, 0),
            };
            let (disk, since) = (*member.disk.as_bytes(), member.since.into());
            put(out, &MemberWire { disk, front: front.into(), since, state, reserved: [0; 7] });
        }
    }

    fn parse(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: GroupWire = payload.read()?;
        let count = usize::from(wire.members.get());
        let role = match wire.role {
            0 => GroupRole::Data,
            1 => GroupRole::Log,
            2 => GroupRole::Removed,
            _ => return Err(CatalogError::Damaged("a group is there for nobody knows what")),
        };
        // A removed group keeps its record without members, so that its index is not reused.
        if (count == 0) != (role == GroupRole::Removed) || count > MEMBERS_MAX {
            return Err(CatalogError::Damaged("a group has no members or too many"));
        }
        let members = (0..count).map(|_| MemberRecord::parse(payload)).collect::<Result<_, _>>()?;
        Ok(Self {
            id: Uuid::from_bytes(wire.id),
            role,
            level: wire.level,
            clean: parse_bool(wire.clean).ok_or(CatalogError::Damaged("a group is neither clean nor dirty"))?,
            protected: parse_bool(wire.protected).ok_or(CatalogError::Damaged("unknown kind of a group"))?,
            chunk_bytes: wire.chunk_bytes.get(),
            member_blocks: Blocks(wire.member_blocks.get()),
            slab_blocks: wire.slab_blocks.get(),
            slabs: wire.slabs.get(),
            members,
        })
    }
}

impl MemberRecord {
    fn parse(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: MemberWire = payload.read()?;
        let state = match wire.state {
            0 => MemberState::InService,
            1 => MemberState::Rebuilding { front: Blocks(wire.front.get()) },
            2 => MemberState::Failed,
            3 => MemberState::Missing,
            _ => return Err(CatalogError::Damaged("unknown state of a member")),
        };
        Ok(Self { disk: Uuid::from_bytes(wire.disk), state, since: wire.since.get() })
    }
}

impl VolumeRecord {
    /// Maximum size of the volume's record in bytes.
    pub(crate) fn emitted_bytes_max(&self) -> usize {
        let segments: usize = self.segments.iter().map(Segment::emitted_bytes_max).sum();
        RECORD_BYTES + size_of::<VolumeWire>() + self.name.len() + segments
    }

    fn emit(&self, out: &mut Vec<u8>) {
        put(
            out,
            &VolumeWire {
                id: *self.id.as_bytes(),
                size_bytes: self.size_bytes.into(),
                created_at: self.created_at.into(),
                block_bytes: self.block_bytes.into(),
                stripe_unit_bytes: self.stripe_unit_bytes.into(),
                segments: u32::try_from(self.segments.len()).expect("bounded by SEGMENTS_MAX").into(),
                name_bytes: name_bytes(&self.name),
                reserved: [0; 11],
            },
        );
        out.extend_from_slice(self.name.as_bytes());
        for segment in &self.segments {
            segment.emit(out);
        }
    }

    fn parse(payload: &mut Cursor<'_>, room: &mut Limits) -> Result<Self, CatalogError> {
        let wire: VolumeWire = payload.read()?;
        let name = payload.text(wire.name_bytes)?;
        let count = wire.segments.get() as usize;
        // Taken off before the segments are collected: the count may be any number in a damaged catalog.
        room.segments = room.segments.checked_sub(count).ok_or(CatalogError::Damaged("there are too many segments"))?;
        let segments = (0..count).map(|_| Segment::parse(payload, room)).collect::<Result<_, _>>()?;
        Ok(Self {
            id: Uuid::from_bytes(wire.id),
            name,
            size_bytes: wire.size_bytes.get(),
            block_bytes: wire.block_bytes.get(),
            stripe_unit_bytes: wire.stripe_unit_bytes.get(),
            created_at: wire.created_at.get(),
            segments,
        })
    }
}

impl Segment {
    /// Size of the segment with its set encoded as words, the longer of the two forms that `emit` chooses from.
    fn emitted_bytes_max(&self) -> usize {
        let fixed = size_of::<SegmentWire>() + self.columns.len() * size_of::<ColumnWire>();
        fixed + size_of_val(self.initialised.words())
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let words = self.initialised.words();
        // Runs are the shorter form of a sequentially written volume, words the bounded form of a scattered
        // one.
        let runs = self.initialised.runs().take(words.len() + 1).count();
        let (set, items) = if runs <= words.len() { (SET_RUNS, runs) } else { (SET_WORDS, words.len()) };
        put(
            out,
            &SegmentWire {
                rows: self.rows.into(),
                rounds: self.rounds.into(),
                columns: u16::try_from(self.columns.len()).expect("bounded by GROUPS_MAX").into(),
                set,
                reserved: 0,
                items: u32::try_from(items).expect("bounded by SLABS_MAX").into(),
            },
        );
        for column in &self.columns {
            let (first_slab, unit_blocks) = (column.first_slab.into(), column.unit_blocks.into());
            put(out, &ColumnWire { first_slab, unit_blocks, group: column.group.into(), reserved: [0; 6] });
        }
        if set == SET_RUNS {
            self.initialised.runs().for_each(|(first, slabs)| {
                put(out, &RunWire { first: first.into(), slabs: slabs.into() });
            });
        } else {
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
    }

    fn parse(payload: &mut Cursor<'_>, room: &mut Limits) -> Result<Self, CatalogError> {
        let wire: SegmentWire = payload.read()?;
        let (rows, count) = (wire.rows.get(), u32::from(wire.columns.get()));
        if count == 0 || count as usize > GROUPS_MAX {
            return Err(CatalogError::Damaged("a segment has no columns or too many"));
        }
        // Memory for the set is allocated only after the pool-wide sum was checked.
        room.take_slabs(rows.saturating_mul(count))?;
        let columns = (0..count).map(|_| Column::parse(payload)).collect::<Result<_, _>>()?;
        // No overflow: the product was within the limits above.
        let set = SlabSet::none(rows * count);
        let initialised = match wire.set {
            SET_RUNS => parse_runs(payload, wire.items.get(), set)?,
            SET_WORDS => parse_words(payload, wire.items.get(), set.len())?,
            _ => return Err(CatalogError::Damaged("unknown form of a set")),
        };
        Ok(Self { rows, rounds: wire.rounds.get(), columns, initialised })
    }
}

impl Column {
    fn parse(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: ColumnWire = payload.read()?;
        Ok(Self { group: wire.group.get(), first_slab: wire.first_slab.get(), unit_blocks: wire.unit_blocks.get() })
    }
}

fn parse_runs(payload: &mut Cursor<'_>, count: u32, mut set: SlabSet) -> Result<SlabSet, CatalogError> {
    let mut free_from = 0;
    for _ in 0..count {
        let run: RunWire = payload.read()?;
        let first = run.first.get();
        let end =
            first.checked_add(run.slabs.get()).filter(|&end| first >= free_from && first < end && end <= set.len());
        // Overlapping or descending runs are damage: `emit` writes none.
        let end = end.ok_or(CatalogError::Damaged("runs of a set are out of order"))?;
        (first..end).for_each(|slab| set.insert(slab));
        free_from = end;
    }
    Ok(set)
}

fn parse_words(payload: &mut Cursor<'_>, count: u32, len: u32) -> Result<SlabSet, CatalogError> {
    // Rows and columns give the number of words; another one contradicts them.
    if count != len.div_ceil(64) {
        return Err(CatalogError::Damaged("a set has the wrong length"));
    }
    let words = (0..count).map(|_| payload.read::<U64>().map(U64::get)).collect::<Result<_, _>>()?;
    SlabSet::of_words(words, len).ok_or(CatalogError::Damaged("a set holds slabs that are not there"))
}

/// Feature bits required by the catalog in `bytes`; see [`crate::label::Features`].
pub(crate) fn needed_by(bytes: &[u8]) -> u64 {
    let (mut rest, mut needed) = (Cursor(bytes), 0);
    while let Ok(header) = rest.read::<RecordHeader>() {
        let bytes = header.payload_bytes.get() as usize;
        // The bytes were encoded by `emit`; a truncated end is left to the parser to report.
        let Ok(payload) = rest.take(bytes) else { break };
        needed |= match header.kind.get() {
            TYPE_FAMILY => needed_by_family(payload),
            TYPE_BRANCH => needed_by_branch(payload),
            // A log or reservation record alone requires the feature, whatever it says.
            TYPE_LOG => LOGS,
            TYPE_RESERVATIONS => RESERVATIONS,
            TYPE_GROUP => GroupWire::ref_from_prefix(payload).map_or(0, |(group, _)| group.needs()),
            _ => 0,
        };
        if rest.pad(bytes).is_err() {
            break;
        }
    }
    needed
}

pub(super) fn parse_bool(byte: u8) -> Option<bool> {
    // Only what `emit` writes: another byte is damage from before the checksum was computed.
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Remaining limits of a pool while its catalog is parsed.
pub(super) struct Limits {
    slabs: u32,
    segments: usize,
    pub(super) branches: usize,
    pub(super) snapshots: usize,
}

impl Limits {
    fn of_a_pool() -> Self {
        Self { slabs: SLABS_MAX, segments: SEGMENTS_MAX, branches: VOLUMES_MAX, snapshots: SNAPSHOTS_MAX }
    }

    pub(super) fn take_slabs(&mut self, slabs: u32) -> Result<(), CatalogError> {
        let rest = self.slabs.checked_sub(slabs);
        self.slabs = rest.ok_or(CatalogError::Damaged("volumes have more slabs than a pool can"))?;
        Ok(())
    }
}

/// Unread bytes.
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], CatalogError> {
        let (head, rest) = self.0.split_at_checked(bytes).ok_or(CatalogError::Short)?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn read<T: FromBytes>(&mut self) -> Result<T, CatalogError> {
        T::read_from_bytes(self.take(size_of::<T>())?).map_err(|_| CatalogError::Short)
    }

    pub(super) fn bytes(&mut self, bytes: usize) -> Result<&'a [u8], CatalogError> {
        self.take(bytes)
    }

    pub(super) fn text(&mut self, bytes: u8) -> Result<String, CatalogError> {
        let text = std::str::from_utf8(self.take(usize::from(bytes))?);
        text.map(str::to_owned).map_err(|_| CatalogError::Damaged("a name is no text"))
    }

    /// Skips the padding of a payload.
    fn pad(&mut self, payload_bytes: usize) -> Result<(), CatalogError> {
        self.take(payload_bytes.next_multiple_of(ALIGN) - payload_bytes).map(drop)
    }

    pub(super) fn end(&self) -> Result<(), CatalogError> {
        if self.0.is_empty() { Ok(()) } else { Err(CatalogError::Damaged("a record is longer than its content")) }
    }
}

pub(super) fn put(out: &mut Vec<u8>, wire: &(impl IntoBytes + Immutable)) {
    out.extend_from_slice(wire.as_bytes());
}

pub(super) fn name_bytes(name: &str) -> u8 {
    u8::try_from(name.len()).expect("bounded by NAME_BYTES_MAX")
}

pub(super) fn record(out: &mut Vec<u8>, kind: u16, payload: impl FnOnce(&mut Vec<u8>)) {
    record_with(out, (kind, 0), payload);
}

/// Encodes a record that readers skip when they do not know its type.
pub(super) fn skippable(out: &mut Vec<u8>, kind: u16, payload: impl FnOnce(&mut Vec<u8>)) {
    record_with(out, (kind, FLAG_SKIPPABLE), payload);
}

fn record_with(out: &mut Vec<u8>, (kind, flags): (u16, u16), payload: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    put(out, &RecordHeader { kind: kind.into(), flags: flags.into(), payload_bytes: 0.into() });
    // The payload length is filled in once the payload has been written.
    let start = out.len();
    payload(out);
    let bytes = u32::try_from(out.len() - start).expect("a catalog is shorter than 4 GiB");
    // The length is the last field of the header, behind kind and flags.
    out[at + 4..at + 8].copy_from_slice(&bytes.to_le_bytes());
    // Padded with zeros, so that equal catalogs are equal bytes.
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

#[cfg(test)]
mod tests;
