//! Check for other users of a unit by its persistent reservations.

use super::iscsi::Session;
use ::iscsi::initiator::DataIn;
use anyhow::{Result, bail};
use block::Buf;
use shard::World;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const RESERVATION_CONFLICT: u8 = 0x18;
const ILLEGAL_REQUEST: u8 = 5;
/// Service actions of PERSISTENT RESERVE IN.
const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
/// Allocation length of a page; the header counts all keys, even those beyond it.
const PAGE_BYTES: u16 = 4096;

/// Returns how another host uses the unit of `session`; none without registrations and reservations.
///
/// *Errors*: the session broke, or the response is invalid.
///
/// *Source*: SPC-4 PERSISTENT RESERVE IN (6.15), which is permitted under every persistent reservation, and conflicts
/// with RESERVE.
pub(super) async fn owners<W: World>(session: &mut Session<W>, world: &W) -> Result<Option<String>> {
    // The keys first: members of a cluster are registered even while none of them holds a reservation.
    let page = match ask(session, world, READ_KEYS).await? {
        ReservationResponse::Page(page) => page,
        ReservationResponse::Nothing => return Ok(None),
        ReservationResponse::Conflict => return Ok(Some("is reserved by another host (RESERVE)".to_owned())),
    };
    let (count, first) = keys(&page);
    let Some(first) = first else { return Ok(None) };
    let keys = if count == 1 { "key, " } else { "keys, the first of them " };
    let registered = format!("has {count} registered {keys}{first:#018x}");
    Ok(Some(match ask(session, world, READ_RESERVATION).await? {
        ReservationResponse::Page(page) => match holder(&page) {
            // Key zero: all registrants hold the reservation (SPC-4, types 7h and 8h).
            Some((0, kind)) => format!("{registered}, and is reserved for them ({})", name(kind)),
            Some((key, kind)) => format!("{registered}, and is reserved for {key:#018x} ({})", name(kind)),
            None => registered,
        },
        ReservationResponse::Nothing | ReservationResponse::Conflict => registered,
    }))
}

/// Response of a unit.
enum ReservationResponse {
    Page(Vec<u8>),
    /// The unit does not support reservations.
    Nothing,
    Conflict,
}

async fn ask<W: World>(session: &mut Session<W>, world: &W, action: u8) -> Result<ReservationResponse> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x5e, action);
    cdb[7..9].copy_from_slice(&PAGE_BYTES.to_be_bytes());
    let done = session.execute(world, cdb, DataIn::Into(Buf::zeroed(PAGE_BYTES.into()))).await?;
    let key = scsi::ParsedSense::parse(&done.sense).map(|sensed| sensed.key);
    Ok(match (done.status, key) {
        (GOOD, _) => ReservationResponse::Page(done.data_in.map(|data| data.to_vec()).unwrap_or_default()),
        // INVALID COMMAND OPERATION CODE or a field error: the unit has no persistent reservations.
        (CHECK_CONDITION, Some(ILLEGAL_REQUEST)) => ReservationResponse::Nothing,
        (RESERVATION_CONFLICT, _) => ReservationResponse::Conflict,
        (status, _) => bail!("PERSISTENT RESERVE IN ended with status {status:#04x}, sense {:02x?}", done.sense),
    })
}

/// Returns the number of keys of a READ KEYS page, and the first key.
fn keys(page: &[u8]) -> (u32, Option<u64>) {
    // ADDITIONAL LENGTH counts the bytes of all keys, eight each.
    let bytes = page.get(4..8).and_then(|bytes| bytes.first_chunk()).copied().map_or(0, u32::from_be_bytes);
    let first = page.get(8..).and_then(|keys| keys.first_chunk()).copied().map(u64::from_be_bytes);
    (bytes / 8, first.filter(|_| bytes >= 8))
}

/// Returns key and type of a READ RESERVATION page; none without a holder.
fn holder(page: &[u8]) -> Option<(u64, u8)> {
    let bytes = page.get(4..8)?.first_chunk().copied().map(u32::from_be_bytes)?;
    let key = page.get(8..)?.first_chunk().copied().map(u64::from_be_bytes)?;
    // Byte 21 has SCOPE in its upper half and TYPE in its lower half (SPC-4 READ RESERVATION).
    (bytes >= 16).then_some((key, page.get(21)? & 0x0f))
}

/// Returns the name of a persistent reservation type.
fn name(kind: u8) -> String {
    let name = match kind {
        1 => "Write Exclusive",
        3 => "Exclusive Access",
        5 => "Write Exclusive, Registrants Only",
        6 => "Exclusive Access, Registrants Only",
        7 => "Write Exclusive, All Registrants",
        8 => "Exclusive Access, All Registrants",
        other => return format!("type {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_as_far_as_they_go() {
        let mut page = vec![0, 0, 0, 9, 0, 0, 0, 16];
        page.extend_from_slice(&0x1234_u64.to_be_bytes());
        page.extend_from_slice(&[0xff; 8]);
        assert_eq!(keys(&page), (2, Some(0x1234)));
        assert_eq!((keys(&page[..12]), keys(&[0; 8]), keys(&[])), ((2, None), (0, None), (0, None)));
        let mut held = page[..16].to_vec();
        held.extend_from_slice(&[0, 0, 0, 0, 0, 0x15, 0, 0]);
        assert_eq!(holder(&held), Some((0x1234, 5)));
        assert_eq!((holder(&[0, 0, 0, 9, 0, 0, 0, 0]), holder(&held[..20])), (None, None));
        assert_eq!((name(5).as_str(), name(2).as_str()), ("Write Exclusive, Registrants Only", "type 2"));
    }
}
