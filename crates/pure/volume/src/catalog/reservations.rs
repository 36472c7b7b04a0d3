//! Catalog records of persistent reservations, as bytes that the SCSI layer encodes and the pool only stores.

use super::check::ensure;
use super::wire::{Cursor, RECORD_BYTES, put, record, wire};
use super::{Catalog, CatalogError};
use uuid::Uuid;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_RESERVATIONS: u16 = 8;

/// Maximum size of all reservations of a pool in bytes: about a quarter of a slot.
pub const RESERVATIONS_BYTES_MAX: usize = 1 << 20;

wire! {
    struct ReservationsWire { volume: [u8; 16], bytes: U32, reserved: [u8; 4] }
}

/// Size of the record in bytes.
pub(super) fn emitted_bytes(kept: &[u8]) -> usize {
    RECORD_BYTES + size_of::<ReservationsWire>() + kept.len()
}

pub(super) fn emit(volume: Uuid, kept: &[u8], out: &mut Vec<u8>) {
    record(out, TYPE_RESERVATIONS, |out| {
        let bytes = u32::try_from(kept.len()).expect("bounded by RESERVATIONS_BYTES_MAX").into();
        put(out, &ReservationsWire { volume: *volume.as_bytes(), bytes, reserved: [0; 4] });
        out.extend_from_slice(kept);
    });
}

/// Placeholder for unreadable content: no record version begins so, and the volume does not serve.
const UNREADABLE: u8 = 0xff;

impl Catalog {
    /// Adds the record of one volume. An unreadable or second record of a volume keeps only that volume from
    /// serving; the pool and its other volumes do not depend on it.
    pub(super) fn parse_reservations(&mut self, payload: &mut Cursor<'_>) {
        // Without a UUID there is no volume that could be kept from serving.
        let Ok(wire) = payload.read::<ReservationsWire>() else { return };
        let volume = Uuid::from_bytes(wire.volume);
        // An empty record is never written; one is damage, and so are bytes behind its content.
        let kept =
            payload.bytes(wire.bytes.get() as usize).ok().filter(|kept| !kept.is_empty() && payload.end().is_ok());
        // Of two records neither can be trusted.
        let kept = kept.filter(|_| !self.reservations.contains_key(&volume));
        self.reservations.insert(volume, kept.map_or_else(|| vec![UNREADABLE], <[u8]>::to_vec));
    }

    /// Drops the records of volumes that do not exist.
    pub(super) fn drop_stray_reservations(&mut self) {
        let there: Vec<Uuid> = self.reserved().map(|(volume, _)| volume).collect();
        self.reservations.retain(|volume, _| there.contains(volume));
    }

    /// Reservations of existing volumes.
    pub(crate) fn reserved(&self) -> impl Iterator<Item = (Uuid, &[u8])> {
        let there = |(volume, _): &(&Uuid, &Vec<u8>)| self.has_volume(**volume);
        self.reservations.iter().filter(there).map(|(&volume, kept)| (volume, kept.as_slice()))
    }

    /// True for a volume that exists and is not being deleted.
    pub(crate) fn has_volume(&self, id: Uuid) -> bool {
        self.volume(id).is_some() || self.branch(id).is_some_and(|(_, branch)| !branch.deleting)
    }

    /// Checks the total size.
    pub(super) fn check_reservations(&self) -> Result<(), CatalogError> {
        let bytes: usize = self.reservations.values().map(Vec::len).sum();
        ensure(bytes <= RESERVATIONS_BYTES_MAX, "more is reserved than a pool keeps")
    }
}
