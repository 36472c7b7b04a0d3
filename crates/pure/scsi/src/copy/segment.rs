//! Segment descriptors of EXTENDED COPY (SPC-4): source, destination and length of each copy.
#![warn(clippy::arithmetic_side_effects)]

use super::list::{TOO_SHORT, field};
use crate::sense::{AdditionalSense, Sense};

/// Block device to block device: length in blocks.
pub(super) const BLOCK_TO_BLOCK: u8 = 0x02;
/// Block device to block device with offset: length and offsets in bytes.
pub(super) const BLOCK_TO_BLOCK_WITH_OFFSET: u8 = 0x0A;
/// Bytes that DESCRIPTOR LENGTH does not count, and the total length of either descriptor.
const UNCOUNTED_BYTES: usize = 4;
const BLOCKS_BYTES: usize = 28;
pub(super) const SEGMENT_BYTES_MAX: usize = 32;

/// Maximum number of segments in one list.
pub(super) const SEGMENTS_MAX: usize = 64;
/// Maximum length of one segment in bytes: 65,535 blocks of 4,096 bytes.
pub(super) const SEGMENT_LENGTH_MAX: u32 = 0xFFFF * 4096;

/// Parsed segment descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub source: SegmentEnd,
    pub destination: SegmentEnd,
    pub length: Length,
}

/// Start of a segment at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentEnd {
    /// CSCD descriptor ID.
    pub id: u16,
    pub lba: u64,
    /// Byte offset from the start of that block.
    pub offset: u16,
}

/// Length of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    SourceBlocks(u16),
    /// DC is one: the count is in blocks of the destination.
    DestinationBlocks(u16),
    Bytes(u32),
}

/// Parses the segment descriptors of a list, the first at offset `at`.
///
/// *Errors*: 1A/00 for a truncated descriptor, 26/08 and 26/09 for too many and unknown ones, 26/00 for a segment that
/// is too long.
pub(super) fn segments_of(mut bytes: &[u8], mut at: usize) -> Result<Vec<Segment>, Sense> {
    let mut segments = Vec::new();
    while let Some(&code) = bytes.first() {
        let len = match code {
            BLOCK_TO_BLOCK => BLOCKS_BYTES,
            BLOCK_TO_BLOCK_WITH_OFFSET => SEGMENT_BYTES_MAX,
            _ => return Err(Sense::illegal(AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE)),
        };
        if segments.len() == SEGMENTS_MAX {
            return Err(Sense::illegal(AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        let (descriptor, rest) = bytes.split_at_checked(len).ok_or(TOO_SHORT)?;
        segments.push(segment_of(code, descriptor, at)?);
        (bytes, at) = (rest, at.saturating_add(len));
    }
    assert!(segments.len() <= SEGMENTS_MAX, "segments are bounded");
    Ok(segments)
}

/// Parses one complete descriptor at offset `at` of the list.
fn segment_of(code: u8, descriptor: &[u8], at: usize) -> Result<Segment, Sense> {
    let number = |at: usize| field(descriptor, at).map(u16::from_be_bytes);
    let lba = |at: usize| field(descriptor, at).map(u64::from_be_bytes);
    // DESCRIPTOR LENGTH must match the type, so that the next descriptor is found.
    if usize::from(number(2)?) != descriptor.len().saturating_sub(UNCOUNTED_BYTES) {
        return Err(TOO_SHORT);
    }
    // CAT is ignored: it concerns the residue of an inexact segment, and such segments are refused.
    let [_, bits] = field(descriptor, 0)?;
    let (length, offsets) = match code {
        // DC selects the unit whose block size counts the length.
        BLOCK_TO_BLOCK if bits & 0x02 != 0 => (Length::DestinationBlocks(number(10)?), [0; 2]),
        BLOCK_TO_BLOCK => (Length::SourceBlocks(number(10)?), [0; 2]),
        _ => (Length::Bytes(field(descriptor, 8).map(u32::from_be_bytes)?), [number(28)?, number(30)?]),
    };
    // A length in blocks needs no check: 16 bits of blocks stay within the limit up to 4,096 bytes per block.
    if matches!(length, Length::Bytes(bytes) if bytes > SEGMENT_LENGTH_MAX) {
        return Err(Sense::parameter(u16::try_from(at.saturating_add(8)).unwrap_or(u16::MAX), None));
    }
    let [source_offset, destination_offset] = offsets;
    Ok(Segment {
        source: SegmentEnd { id: number(4)?, lba: lba(12)?, offset: source_offset },
        destination: SegmentEnd { id: number(6)?, lba: lba(20)?, offset: destination_offset },
        length,
    })
}
