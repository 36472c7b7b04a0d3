//! Parameter lists of EXTENDED COPY (LID1) and (LID4) (SPC-4, EXTENDED COPY parameter data).
#![warn(clippy::arithmetic_side_effects)]

use super::segment::{SEGMENT_BYTES_MAX, SEGMENTS_MAX, Segment, segments_of};
use super::status::ListId;
use crate::cdb::Cdb;
use crate::sense::{AdditionalSense, Sense};

const HEADER_BYTES: usize = 16;
const LONG_HEADER_BYTES: usize = 48;
/// PARAMETER LIST FORMAT of EXTENDED COPY (LID4), and the constants in its header.
const LONG_FORMAT: u8 = 0x01;
const LONG_DESCRIPTOR_BYTES: u16 = 0x20;
const LONG_DESCRIPTOR: u8 = 0xFF;
const IMMED: u8 = 0x01;
const G_SENSE: u8 = 0x02;
const CSCD_BYTES: usize = 32;

/// Maximum number of CSCD descriptors in one list.
pub(super) const CSCDS_MAX: usize = 16;
/// Maximum length of all descriptor lists in bytes.
pub(super) const DESCRIPTOR_BYTES_MAX: usize = CSCDS_MAX * CSCD_BYTES + SEGMENTS_MAX * SEGMENT_BYTES_MAX;

/// Type code of the identification descriptor CSCD descriptor.
pub(super) const IDENTIFICATION: u8 = 0xE4;
/// CSCD descriptor ID of the unit that executes the command.
pub(super) const SELF: u16 = 0xFFFF;

pub(super) const TOO_SHORT: Sense = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// Refuses an impossible parameter list length from the CDB, before any data is solicited.
///
/// *Errors*: 1A/00.
pub(crate) fn check_list_length(cdb: Cdb) -> Result<(), Sense> {
    let bytes = u64::from(cdb.u32_at(10));
    // A list with some descriptors too many passes here and is refused with its own sense when it is parsed.
    let most = 4_usize.saturating_mul(DESCRIPTOR_BYTES_MAX) as u64;
    // A length of zero is valid and copies nothing (SPC-4).
    if bytes == 0 || (HEADER_BYTES as u64..=most).contains(&bytes) { Ok(()) } else { Err(TOO_SHORT) }
}

/// Parsed parameter list; its units have not been resolved yet.
#[derive(Debug)]
pub(super) struct List {
    pub id: ListId,
    /// IMMED: the status of the command does not depend on the result of the copy.
    pub immediate: bool,
    pub cscds: Vec<Cscd>,
    pub segments: Vec<Segment>,
}

/// CSCD descriptor: copy source or copy destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cscd {
    /// Null descriptor (NUL bit), which the initiator knows to be absent.
    Null,
    /// Unit with this designator; `block_bytes` of zero is unspecified.
    Unit { kind: u8, designator: Vec<u8>, block_bytes: u32 },
}

impl List {
    /// Parses the LID1 list.
    ///
    /// *Errors*: 1A/00 for a truncated or too long list; 26/00, 26/06 to 26/09 and 26/0B for invalid content.
    pub(super) fn parse(list: &[u8]) -> Result<Self, Sense> {
        let header: &[u8; HEADER_BYTES] = list.first_chunk().ok_or(TOO_SHORT)?;
        let [number, usage, cscd_high, cscd_low, _, _, _, _, lengths @ ..] = *header;
        let [segments, inline] = [u32::from_be_bytes(field(&lengths, 0)?), u32::from_be_bytes(field(&lengths, 4)?)];
        let cscd_bytes = usize::from(u16::from_be_bytes([cscd_high, cscd_low]));
        let segment_bytes = usize::try_from(segments).map_err(|_| TOO_SHORT)?;
        // Inline data belongs to segment types that are not supported.
        if inline != 0 {
            return Err(Sense::illegal(AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED));
        }
        let id = id_of(usage, number.into())?;
        let (cscds, segments) = descriptors_of(list, HEADER_BYTES, cscd_bytes, segment_bytes)?;
        Ok(Self { id, immediate: false, cscds, segments })
    }

    /// Parses the LID4 list, as [`List::parse`].
    ///
    /// *Errors*: also 26/00 for G_SENSE, which is not supported, and for another format.
    pub(super) fn parse_long(list: &[u8]) -> Result<Self, Sense> {
        let header: &[u8; LONG_HEADER_BYTES] = list.first_chunk().ok_or(TOO_SHORT)?;
        let [format, usage, d_high, d_low, ..] = *header;
        let [.., c_high, c_low, s_high, s_low, i_high, i_low] = *header;
        let (bits, descriptor) = (header[15], header[16]);
        if format != LONG_FORMAT {
            return Err(Sense::parameter(0, None));
        }
        if u16::from_be_bytes([d_high, d_low]) != LONG_DESCRIPTOR_BYTES {
            return Err(Sense::parameter(2, None));
        }
        // G_SENSE requests sense data with GOOD, and no response of the unit carries both.
        if bits & G_SENSE != 0 {
            return Err(Sense::parameter(15, Some(1)));
        }
        if descriptor != LONG_DESCRIPTOR {
            return Err(Sense::parameter(16, None));
        }
        if [i_high, i_low] != [0; 2] {
            return Err(Sense::illegal(AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED));
        }
        let id = id_of(usage, u32::from_be_bytes(field(header, 20)?))?;
        let [cscd_bytes, segment_bytes] =
            [[c_high, c_low], [s_high, s_low]].map(|bytes| u16::from_be_bytes(bytes).into());
        let (cscds, segments) = descriptors_of(list, LONG_HEADER_BYTES, cscd_bytes, segment_bytes)?;
        Ok(Self { id, immediate: bits & IMMED != 0, cscds, segments })
    }
}

/// Parses LIST ID USAGE.
fn id_of(usage: u8, number: u32) -> Result<ListId, Sense> {
    // STR and PRIORITY, in the other bits, are hints to the copy manager and ignored.
    match usage >> 3 & 0x03 {
        0b00 | 0b10 => Ok(ListId::Retained(number)),
        // LIST ID USAGE 11b requires a list identifier of zero (SPC-4).
        0b11 if number == 0 => Ok(ListId::None),
        _ => Err(Sense::parameter(1, Some(4))),
    }
}

/// Parses the descriptors behind a header.
fn descriptors_of(
    list: &[u8],
    header_bytes: usize,
    cscd_bytes: usize,
    segment_bytes: usize,
) -> Result<(Vec<Cscd>, Vec<Segment>), Sense> {
    let all = cscd_bytes.saturating_add(segment_bytes);
    // Bounded before anything is parsed, because the lengths come from the initiator.
    if all > DESCRIPTOR_BYTES_MAX || !cscd_bytes.is_multiple_of(CSCD_BYTES) {
        return Err(TOO_SHORT);
    }
    let descriptors = list.get(header_bytes..).and_then(|rest| rest.get(..all)).ok_or(TOO_SHORT)?;
    let (cscds, segments) = descriptors.split_at_checked(cscd_bytes).ok_or(TOO_SHORT)?;
    Ok((cscds_of(cscds, header_bytes)?, segments_of(segments, header_bytes.saturating_add(cscd_bytes))?))
}

fn cscds_of(bytes: &[u8], header_bytes: usize) -> Result<Vec<Cscd>, Sense> {
    let (descriptors, _) = bytes.as_chunks::<CSCD_BYTES>();
    if descriptors.len() > CSCDS_MAX {
        return Err(Sense::illegal(AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS));
    }
    let place = |nth: usize| header_bytes.saturating_add(nth.saturating_mul(CSCD_BYTES));
    descriptors.iter().enumerate().map(|(nth, descriptor)| cscd_of(descriptor, place(nth))).collect()
}

/// Parses the identification descriptor CSCD descriptor at offset `at`.
fn cscd_of(descriptor: &[u8; CSCD_BYTES], at: usize) -> Result<Cscd, Sense> {
    let [code, bits, _, _, _, kind, _, length, rest @ ..] = *descriptor;
    let wrong =
        |byte: usize, bit| Err(Sense::parameter(u16::try_from(at.saturating_add(byte)).unwrap_or(u16::MAX), bit));
    if code != IDENTIFICATION {
        return Err(Sense::illegal(AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE));
    }
    // Only block devices (peripheral device type 0). LU ID TYPE is ignored where a designator names the unit.
    if bits & 0x1F != 0 {
        return wrong(1, Some(4));
    }
    // A null descriptor keeps the numbering of the others.
    if bits & 0x20 != 0 {
        return Ok(Cscd::Null);
    }
    // ASSOCIATION must be the logical unit.
    if kind & 0x30 != 0 {
        return wrong(5, Some(5));
    }
    // DESIGNATOR LENGTH comes from the initiator, and its field has 20 bytes.
    let Some(designator) = rest.get(..20).and_then(|field| field.get(..usize::from(length))) else {
        return wrong(7, None);
    };
    // The last three bytes are DISK BLOCK LENGTH (SPC-4).
    let [_, a, b, c] = field(&rest, 20)?;
    let block_bytes = u32::from_be_bytes([0, a, b, c]);
    Ok(Cscd::Unit { kind: kind & 0x0F, designator: designator.to_vec(), block_bytes })
}

/// Returns the bytes of a field.
///
/// *Errors*: 1A/00 where the list ends before the field does.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Sense> {
    bytes.get(at..).and_then(|rest| rest.first_chunk().copied()).ok_or(TOO_SHORT)
}
