//! Segment descriptors of EXTENDED COPY (SPC-4): which blocks are copied where.
#![warn(clippy::arithmetic_side_effects)]

use super::list::{TOO_SHORT, field};
use crate::sense::{AdditionalSense, Sense};

/// Block device to block device: its length is in blocks.
pub(super) const BLOCK_TO_BLOCK: u8 = 0x02;
/// Block device to block device with offset: its length and where it begins are in bytes.
pub(super) const BLOCK_TO_BLOCK_WITH_OFFSET: u8 = 0x0A;
/// The bytes of a descriptor that DESCRIPTOR LENGTH does not count, and all of either kind.
const UNCOUNTED_BYTES: usize = 4;
const BLOCKS_BYTES: usize = 28;
pub(super) const SEGMENT_BYTES_MAX: usize = 32;

/// The most segments of one list.
pub(super) const SEGMENTS_MAX: usize = 64;
/// One segment has at most so many bytes: 65,535 blocks of 4096.
pub(super) const SEGMENT_LENGTH_MAX: u32 = 0xFFFF * 4096;

/// Blocks to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub source: Place,
    pub destination: Place,
    pub length: Length,
}

/// Where a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The CSCD descriptor ID.
    pub id: u16,
    pub lba: u64,
    /// So many bytes behind the beginning of that block.
    pub offset: u16,
}

/// How much is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    SourceBlocks(u16),
    /// DC: the blocks are counted in those of the destination.
    DestinationBlocks(u16),
    Bytes(u32),
}

/// The segments of a list, whose descriptors stand at `at` of it.
///
/// *Errors*: 1A/00 for one that is cut short, 26/08 and 26/09 for too many and unknown ones, 26/00 for one that is too long.
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

/// The segment whose whole descriptor stands at `at` of the list.
fn segment_of(code: u8, descriptor: &[u8], at: usize) -> Result<Segment, Sense> {
    let number = |at: usize| field(descriptor, at).map(u16::from_be_bytes);
    let lba = |at: usize| field(descriptor, at).map(u64::from_be_bytes);
    if usize::from(number(2)?) != descriptor.len().saturating_sub(UNCOUNTED_BYTES) {
        return Err(TOO_SHORT);
    }
    let [_, bits] = field(descriptor, 0)?;
    let (length, offsets) = match code {
        BLOCK_TO_BLOCK if bits & 0x02 != 0 => (Length::DestinationBlocks(number(10)?), [0; 2]),
        BLOCK_TO_BLOCK => (Length::SourceBlocks(number(10)?), [0; 2]),
        _ => (Length::Bytes(field(descriptor, 8).map(u32::from_be_bytes)?), [number(28)?, number(30)?]),
    };
    if matches!(length, Length::Bytes(bytes) if bytes > SEGMENT_LENGTH_MAX) {
        return Err(Sense::parameter(u16::try_from(at.saturating_add(8)).unwrap_or(u16::MAX), None));
    }
    let [source_offset, destination_offset] = offsets;
    Ok(Segment {
        source: Place { id: number(4)?, lba: lba(12)?, offset: source_offset },
        destination: Place { id: number(6)?, lba: lba(20)?, offset: destination_offset },
        length,
    })
}
