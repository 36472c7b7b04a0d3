//! Parameter lists of POPULATE TOKEN and WRITE USING TOKEN (SBC-3): block ranges of the unit that executes the command.
#![warn(clippy::arithmetic_side_effects)]

use crate::cdb::Cdb;
use crate::sense::{AdditionalSense, Sense};
use crate::token::{CHANGE_VULNERABLE, INACTIVITY_DEFAULT_S, INACTIVITY_MAX_S, TOKEN_BYTES};
use block::{Extent, Geometry};
use std::time::Duration;

const RANGE_BYTES: usize = 16;
const POPULATE_HEADER_BYTES: usize = 16;
const WRITE_HEADER_BYTES: usize = 536;
/// Size of the length field at the start of a list.
const LENGTH_BYTES: usize = 2;
const TOKEN_AT: usize = 16;

/// Maximum number of ranges in one list, and maximum total length in bytes: a transfer of this size completes within
/// the command timeout of a host.
pub(super) const RANGES_MAX: usize = 64;
pub(super) const TRANSFER_BYTES_MAX: u64 = 256 << 20;

const IMMED: u8 = 0x01;
const RTV: u8 = 0x02;
const DEL_TKN: u8 = 0x02;
/// ROD TYPE values that select the supported type: point in time copy in its generic, change vulnerable and "any"
/// forms.
const POINT_IN_TIME: [u32; 3] = [0x0080_0000, CHANGE_VULNERABLE, 0x0080_FFFF];

const TOO_SHORT: Sense = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// Refuses an impossible parameter list length from the CDB, before any data is solicited.
///
/// *Errors*: 1A/00.
pub(crate) fn check_ranges_length(cdb: Cdb) -> Result<(), Sense> {
    let bytes = u64::from(cdb.u32_at(10));
    // A list with some ranges too many passes here and is refused with its own sense when it is parsed.
    let most = WRITE_HEADER_BYTES.saturating_add(4_usize.saturating_mul(RANGES_MAX).saturating_mul(RANGE_BYTES));
    let possible = POPULATE_HEADER_BYTES as u64..=most as u64;
    if bytes == 0 || possible.contains(&bytes) { Ok(()) } else { Err(TOO_SHORT) }
}

/// Parsed parameter list of POPULATE TOKEN.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Populate {
    pub immediate: bool,
    pub inactivity: Duration,
    pub extents: Vec<Extent>,
}

/// Parsed parameter list of WRITE USING TOKEN.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub immediate: bool,
    pub deletes: bool,
    /// Offset into the token, in blocks of the destination.
    pub offset_blocks: u64,
    pub token: Box<[u8; TOKEN_BYTES]>,
    pub extents: Vec<Extent>,
}

impl Populate {
    /// Parses the list.
    ///
    /// *Errors*: 1A/00 for a truncated list; 26/00 and 26/08 for invalid content; 21/00 for blocks beyond the capacity.
    pub(super) fn parse(list: &[u8], geometry: Geometry) -> Result<Self, Sense> {
        let header: &[u8; POPULATE_HEADER_BYTES] = list.first_chunk().ok_or(TOO_SHORT)?;
        let [_, _, bits, _, t1, t2, t3, t4, r1, r2, r3, r4, _, _, high, low] = *header;
        let (inactivity_s, kind) = (u32::from_be_bytes([t1, t2, t3, t4]), u32::from_be_bytes([r1, r2, r3, r4]));
        if inactivity_s > INACTIVITY_MAX_S {
            return Err(Sense::parameter(4, None));
        }
        // RTV zero lets the copy manager choose the type.
        if bits & RTV != 0 && !POINT_IN_TIME.contains(&kind) {
            return Err(Sense::parameter(8, None));
        }
        let extents = ranges(list, POPULATE_HEADER_BYTES, u16::from_be_bytes([high, low]), geometry)?;
        // Zero selects the default inactivity timeout.
        let inactivity_s = if inactivity_s == 0 { INACTIVITY_DEFAULT_S } else { inactivity_s };
        let inactivity = Duration::from_secs(inactivity_s.into());
        Ok(Self { immediate: bits & IMMED != 0, inactivity, extents })
    }
}

impl Write {
    /// Parses the list.
    ///
    /// *Errors*: as [`Populate::parse`].
    pub(super) fn parse(list: &[u8], geometry: Geometry) -> Result<Self, Sense> {
        let header: &[u8; WRITE_HEADER_BYTES] = list.first_chunk().ok_or(TOO_SHORT)?;
        let [_, _, bits, _, _, _, _, _, o1, o2, o3, o4, o5, o6, o7, o8, ..] = *header;
        let [.., high, low] = *header;
        let token = header.get(TOKEN_AT..).and_then(|rest| rest.first_chunk().copied()).ok_or(TOO_SHORT)?;
        let extents = ranges(list, WRITE_HEADER_BYTES, u16::from_be_bytes([high, low]), geometry)?;
        Ok(Self {
            immediate: bits & IMMED != 0,
            deletes: bits & DEL_TKN != 0,
            offset_blocks: u64::from_be_bytes([o1, o2, o3, o4, o5, o6, o7, o8]),
            token: Box::new(token),
            extents,
        })
    }
}

/// Parses the ranges behind a header whose last field is their length in bytes.
fn ranges(list: &[u8], header_bytes: usize, bytes: u16, geometry: Geometry) -> Result<Vec<Extent>, Sense> {
    let at = |byte: usize| u16::try_from(byte).unwrap_or(u16::MAX);
    let length_at = at(header_bytes.saturating_sub(LENGTH_BYTES));
    let data_length = list.first_chunk().copied().map_or(0, u16::from_be_bytes);
    let bytes = usize::from(bytes);
    // The list must contain at least one range descriptor.
    if usize::from(data_length) < header_bytes.saturating_sub(LENGTH_BYTES).saturating_add(RANGE_BYTES) {
        return Err(Sense::parameter(0, None));
    }
    if bytes < RANGE_BYTES {
        return Err(Sense::parameter(length_at, None));
    }
    // A truncated descriptor is ignored.
    let all = list.get(header_bytes..).unwrap_or_default();
    let (descriptors, _) = all.get(..bytes.min(all.len())).unwrap_or_default().as_chunks::<RANGE_BYTES>();
    if descriptors.len() > RANGES_MAX {
        return Err(Sense::illegal(AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS));
    }
    let (mut extents, mut total): (Vec<Extent>, u64) = (Vec::new(), 0);
    for (nth, descriptor) in descriptors.iter().enumerate() {
        let place = at(header_bytes.saturating_add(nth.saturating_mul(RANGE_BYTES)));
        let [l1, l2, l3, l4, l5, l6, l7, l8, n1, n2, n3, n4, ..] = *descriptor;
        let (lba, blocks) =
            (u64::from_be_bytes([l1, l2, l3, l4, l5, l6, l7, l8]), u32::from_be_bytes([n1, n2, n3, n4]));
        // Ranges of zero blocks are valid and skipped below.
        let extent = Extent::checked(lba, blocks.into()).filter(|&extent| geometry.admit(extent).is_ok());
        let extent = extent.ok_or(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))?;
        // SBC-3: ranges of one list must not overlap.
        // Few ranges, so each is compared with all before it.
        if extents.iter().any(|earlier| earlier.overlaps(extent)) {
            return Err(Sense::parameter(place, None));
        }
        total = total.saturating_add(extent.len.bytes(geometry.block_bytes));
        if total > TRANSFER_BYTES_MAX {
            return Err(Sense::parameter(place.saturating_add(8), None));
        }
        if !extent.is_empty() {
            extents.push(extent);
        }
    }
    assert!(extents.len() <= RANGES_MAX && total <= TRANSFER_BYTES_MAX, "a transfer is bounded");
    Ok(extents)
}
