//! Encoding of family records: one record of the family, then one of each volume, each followed by those of its
//! snapshots.

use super::family::{
    BranchRecord, DEAD_RANGES_MAX, DeadRange, FamilyRecord, META_RUNS_MAX, Parent, SlabRun, SnapshotRecord,
};
use super::wire::{Cursor, Limits, RECORD_BYTES, name_bytes, put, record, wire};
use super::{Catalog, CatalogError};
use crate::crypt::{KeyId, SEALED_BYTES, WrappedKey};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_FAMILY: u16 = 4;
pub(super) const TYPE_BRANCH: u16 = 5;
pub(super) const TYPE_SNAPSHOT: u16 = 6;

/// Cipher code: AES-256 in XTS over blocks of 4096 bytes, with the place as tweak; the key is wrapped by
/// `XChaCha20-Poly1305`.
const CIPHER_XTS: u8 = 1;

const THICK: u8 = 1;
const ZERO_DETECTION: u8 = 2;
const DELETING: u8 = 4;
const CLONE: u8 = 8;
const PARTIAL: u8 = 16;

wire! {
    struct FamilyWire {
        id: [u8; 16], birth: U64, granule_bytes: U32, log_blocks: U32, branches_made: U32, meta_runs: U32,
        data_runs: U32, formatted: u8, encrypted: u8, reserved: [u8; 10],
    }
    struct KeyWire { cipher: u8, reserved: [u8; 7], wrapped_with: [u8; 8], nonce: [u8; 24], sealed: [u8; SEALED_BYTES] }
    struct RunWire { first: U32, slabs: U32, group: U16, reserved: [u8; 2] }
    struct BranchWire {
        id: [u8; 16], size_bytes: U64, created_at: U64, epoch: U64, mapped: U64, parent_epoch: U64,
        parent_branch: U32, number: U32, cleaning: U32, block_bytes: U32, dead_ranges: U16, flags: u8, name_bytes: u8,
        reserved: [u8; 4],
    }
    struct DeadWire { after: U64, last: U64 }
    struct SnapshotWire {
        id: [u8; 16], set: [u8; 16], epoch: U64, size_bytes: U64, mapped: U64, created_at: U64, locked_until: U64,
        name_bytes: u8, reserved: [u8; 7],
    }
}

/// Size of one slab run in a family's record, in bytes.
pub(crate) const RUN_BYTES: usize = size_of::<RunWire>();

impl FamilyRecord {
    /// Size of all records of the family in bytes.
    pub(crate) fn emitted_bytes(&self) -> usize {
        let runs = (self.meta.len() + self.data.len()) * RUN_BYTES;
        let branches: usize = self.branches.iter().map(BranchRecord::emitted_bytes).sum();
        let key = if self.key.is_some() { size_of::<KeyWire>() } else { 0 };
        RECORD_BYTES + size_of::<FamilyWire>() + runs + key + branches
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        record(out, TYPE_FAMILY, |out| {
            let count = |runs: &[SlabRun]| u32::try_from(runs.len()).expect("bounded by SLABS_MAX").into();
            put(
                out,
                &FamilyWire {
                    id: *self.id.as_bytes(),
                    birth: self.birth.into(),
                    granule_bytes: self.granule_bytes.into(),
                    log_blocks: self.log_blocks.into(),
                    branches_made: self.branches_made.into(),
                    meta_runs: count(&self.meta),
                    data_runs: count(&self.data),
                    formatted: u8::from(self.formatted),
                    encrypted: u8::from(self.key.is_some()),
                    reserved: [0; 10],
                },
            );
            for run in self.meta.iter().chain(&self.data) {
                let (first, slabs) = (run.first.into(), run.slabs.into());
                put(out, &RunWire { first, slabs, group: run.group.into(), reserved: [0; 2] });
            }
            self.key.iter().for_each(|key| emit_key(key, out));
        });
        // Behind the record of the family: a reader adds each branch to the last family that it has read.
        self.branches.iter().for_each(|branch| branch.emit(out));
    }

    pub(super) fn parse(payload: &mut Cursor<'_>, room: &mut Limits) -> Result<Self, CatalogError> {
        let wire: FamilyWire = payload.read()?;
        let mut runs = |count: u32, most: usize| -> Result<Vec<SlabRun>, CatalogError> {
            if count as usize > most {
                return Err(CatalogError::Damaged("a family lies in too many pieces"));
            }
            (0..count).map(|_| parse_run(payload, room)).collect()
        };
        Ok(Self {
            id: Uuid::from_bytes(wire.id),
            birth: wire.birth.get(),
            granule_bytes: wire.granule_bytes.get(),
            log_blocks: wire.log_blocks.get(),
            formatted: match wire.formatted {
                0 => false,
                1 => true,
                _ => return Err(CatalogError::Damaged("a family is neither formatted nor not")),
            },
            branches_made: wire.branches_made.get(),
            meta: runs(wire.meta_runs.get(), META_RUNS_MAX)?,
            // The number of slabs bounds the number of runs.
            data: runs(wire.data_runs.get(), usize::MAX)?,
            // Runs of metadata and data come first, then the key: the order of `emit`.
            key: match wire.encrypted {
                0 => None,
                1 => Some(parse_key(payload)?),
                _ => return Err(CatalogError::Damaged("a family is neither encrypted nor not")),
            },
            branches: Vec::new(),
        })
    }
}

fn emit_key(key: &WrappedKey, out: &mut Vec<u8>) {
    let WrappedKey { wrapped_with: KeyId(wrapped_with), nonce, sealed } = *key;
    put(out, &KeyWire { cipher: CIPHER_XTS, reserved: [0; 7], wrapped_with, nonce, sealed });
}

fn parse_key(payload: &mut Cursor<'_>) -> Result<WrappedKey, CatalogError> {
    let wire: KeyWire = payload.read()?;
    if wire.cipher != CIPHER_XTS {
        return Err(CatalogError::Damaged("a family is encrypted by an unknown cipher"));
    }
    Ok(WrappedKey { wrapped_with: KeyId(wire.wrapped_with), nonce: wire.nonce, sealed: wire.sealed })
}

fn parse_run(payload: &mut Cursor<'_>, room: &mut Limits) -> Result<SlabRun, CatalogError> {
    let wire: RunWire = payload.read()?;
    let run = SlabRun { group: wire.group.get(), first: wire.first.get(), slabs: wire.slabs.get() };
    // An empty run counts as one slab, so that damaged counts cannot allocate unlimited memory.
    room.take_slabs(run.slabs.max(1))?;
    Ok(run)
}

impl BranchRecord {
    pub(crate) fn emitted_bytes(&self) -> usize {
        let snapshots: usize = self.snapshots.iter().map(SnapshotRecord::emitted_bytes).sum();
        let dead = self.dead.len() * size_of::<DeadWire>();
        RECORD_BYTES + size_of::<BranchWire>() + self.name.len() + dead + snapshots
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        // A flag tells whether there is an origin; branch 0 and epoch 0 are only filler.
        let parent = self.parent.unwrap_or(Parent { branch: 0, epoch: 0 });
        record(out, TYPE_BRANCH, |out| {
            put(
                out,
                &BranchWire {
                    id: *self.id.as_bytes(),
                    size_bytes: self.size_bytes.into(),
                    created_at: self.created_at.into(),
                    epoch: self.epoch.into(),
                    mapped: self.mapped.into(),
                    parent_epoch: parent.epoch.into(),
                    parent_branch: parent.branch.into(),
                    number: self.number.into(),
                    cleaning: self.cleaning.into(),
                    block_bytes: self.block_bytes.into(),
                    dead_ranges: u16::try_from(self.dead.len()).expect("bounded by DEAD_RANGES_MAX").into(),
                    flags: flag(self.thick, THICK)
                        | flag(self.zero_detection, ZERO_DETECTION)
                        | flag(self.deleting, DELETING)
                        | flag(self.partial, PARTIAL)
                        | flag(self.parent.is_some(), CLONE),
                    name_bytes: name_bytes(&self.name),
                    reserved: [0; 4],
                },
            );
            out.extend_from_slice(self.name.as_bytes());
            for range in &self.dead {
                put(out, &DeadWire { after: range.after.into(), last: range.last.into() });
            }
        });
        self.snapshots.iter().for_each(|snapshot| snapshot.emit(out));
    }

    pub(super) fn parse(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: BranchWire = payload.read()?;
        let name = payload.text(wire.name_bytes)?;
        let flags = wire.flags;
        // Unknown flags are damage: a new one comes with a feature bit that older versions refuse.
        if flags & !(THICK | ZERO_DETECTION | DELETING | CLONE | PARTIAL) != 0 {
            return Err(CatalogError::Damaged("a volume has unknown marks"));
        }
        // Bounded before the ranges are collected.
        let count = usize::from(wire.dead_ranges.get());
        if count > DEAD_RANGES_MAX {
            return Err(CatalogError::Damaged("a volume was rolled back too often"));
        }
        let parent = Parent { branch: wire.parent_branch.get(), epoch: wire.parent_epoch.get() };
        let dead = |payload: &mut Cursor<'_>| {
            let wire: DeadWire = payload.read()?;
            Ok(DeadRange { after: wire.after.get(), last: wire.last.get() })
        };
        Ok(Self {
            id: Uuid::from_bytes(wire.id),
            name,
            number: wire.number.get(),
            size_bytes: wire.size_bytes.get(),
            block_bytes: wire.block_bytes.get(),
            thick: flags & THICK != 0,
            zero_detection: flags & ZERO_DETECTION != 0,
            deleting: flags & DELETING != 0,
            partial: flags & PARTIAL != 0,
            created_at: wire.created_at.get(),
            epoch: wire.epoch.get(),
            mapped: wire.mapped.get(),
            cleaning: wire.cleaning.get(),
            parent: (flags & CLONE != 0).then_some(parent),
            dead: (0..count).map(|_| dead(payload)).collect::<Result<_, _>>()?,
            snapshots: Vec::new(),
        })
    }
}

/// Feature bits required by a family's record.
pub(super) fn needed_by_family(payload: &[u8]) -> u64 {
    // Only the fixed part is read: this runs on bytes that were just encoded.
    let is_encrypted = FamilyWire::ref_from_prefix(payload).is_ok_and(|(family, _)| family.encrypted != 0);
    crate::label::FAMILIES | if is_encrypted { crate::label::ENCRYPTED } else { 0 }
}

/// Feature bits required by a volume's record.
pub(super) fn needed_by_branch(payload: &[u8]) -> u64 {
    // Versions without this feature would serve half a copy.
    let is_partial = BranchWire::ref_from_prefix(payload).is_ok_and(|(branch, _)| branch.flags & PARTIAL != 0);
    if is_partial { crate::label::PARTIAL } else { 0 }
}

impl SnapshotRecord {
    pub(crate) fn emitted_bytes(&self) -> usize {
        RECORD_BYTES + size_of::<SnapshotWire>() + self.name.len()
    }

    fn emit(&self, out: &mut Vec<u8>) {
        record(out, TYPE_SNAPSHOT, |out| {
            put(
                out,
                &SnapshotWire {
                    id: *self.id.as_bytes(),
                    set: *self.set.as_bytes(),
                    epoch: self.epoch.into(),
                    size_bytes: self.size_bytes.into(),
                    mapped: self.mapped.into(),
                    created_at: self.created_at.into(),
                    locked_until: self.locked_until.into(),
                    name_bytes: name_bytes(&self.name),
                    reserved: [0; 7],
                },
            );
            out.extend_from_slice(self.name.as_bytes());
        });
    }

    pub(super) fn parse(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: SnapshotWire = payload.read()?;
        Ok(Self {
            id: Uuid::from_bytes(wire.id),
            name: payload.text(wire.name_bytes)?,
            epoch: wire.epoch.get(),
            size_bytes: wire.size_bytes.get(),
            mapped: wire.mapped.get(),
            created_at: wire.created_at.get(),
            locked_until: wire.locked_until.get(),
            set: Uuid::from_bytes(wire.set),
        })
    }
}

impl Catalog {
    /// Adds a family, branch or snapshot record to the catalog; false for a record out of place.
    pub(super) fn parse_family(
        &mut self,
        kind: u16,
        payload: &mut Cursor<'_>,
        room: &mut Limits,
    ) -> Result<bool, CatalogError> {
        // Branches belong to the last family and snapshots to the last branch, as `emit` wrote them.
        if kind == TYPE_FAMILY && self.families.len() < super::VOLUMES_MAX {
            self.families.push(FamilyRecord::parse(payload, room)?);
            return Ok(true);
        }
        match (kind, self.families.last_mut()) {
            (TYPE_BRANCH, Some(family)) => {
                // Taken off pool-wide: all families share the limit on volumes.
                room.branches =
                    room.branches.checked_sub(1).ok_or(CatalogError::Damaged("there are too many volumes"))?;
                family.branches.push(BranchRecord::parse(payload)?);
            }
            (TYPE_SNAPSHOT, Some(family)) => {
                room.snapshots =
                    room.snapshots.checked_sub(1).ok_or(CatalogError::Damaged("there are too many snapshots"))?;
                // A snapshot before the first volume of its family is out of place.
                let Some(branch) = family.branches.last_mut() else { return Ok(false) };
                branch.snapshots.push(SnapshotRecord::parse(payload)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
