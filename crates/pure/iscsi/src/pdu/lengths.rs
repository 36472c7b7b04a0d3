//! Lengths of the segments behind a header: additional header segments and data.

use super::{Bhs, Opcode, field};
use crate::Violation;

/// Maximum length of a data segment in bytes: its length field has 24 bits.
pub(super) const DATA_SEGMENT_BYTES_MAX: usize = 0x00ff_ffff;

/// Lengths of the segments behind a basic header segment, without digests and without padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentLengths {
    /// Bytes of all additional header segments together: a multiple of four, at most 1,020.
    pub ahs_bytes: usize,
    /// Bytes of the data segment, below 2^24.
    pub data_bytes: usize,
}

impl SegmentLengths {
    /// No segment follows the header.
    pub const NONE: Self = Self { ahs_bytes: 0, data_bytes: 0 };

    /// Lengths of a PDU with a data segment of `data_bytes` only.
    #[must_use]
    pub const fn data(data_bytes: usize) -> Self {
        Self { ahs_bytes: 0, data_bytes }
    }

    /// Reads the lengths from a header; they have not been validated.
    #[inline]
    #[must_use]
    pub fn parse(header: &Bhs) -> Self {
        let word = field::u32_at::<4>(header);
        // TotalAHSLength counts words of four bytes (RFC 7143 §11.2.1.5).
        Self { ahs_bytes: (word >> 24) as usize * 4, data_bytes: (word & 0x00ff_ffff) as usize }
    }

    /// Length of the data segment on the wire: padded to a multiple of four.
    #[inline]
    #[must_use]
    pub const fn padded_data_bytes(self) -> usize {
        padded(self.data_bytes)
    }

    /// Encodes TotalAHSLength and DataSegmentLength, the second word of a header.
    ///
    /// *Panics*: when a length does not fit its field; we never build such a PDU.
    #[inline]
    fn word(self) -> [u8; 4] {
        assert!(
            self.ahs_bytes <= 1020 && self.ahs_bytes.is_multiple_of(4),
            "additional headers fill whole words, at most 255"
        );
        assert!(self.data_bytes <= DATA_SEGMENT_BYTES_MAX, "a data segment is shorter than 16 MiB");
        ((self.ahs_bytes as u32 / 4) << 24 | self.data_bytes as u32).to_be_bytes()
    }
}

/// Rounds `bytes` up to a multiple of four, the padding of every segment.
///
/// *Source*: RFC 7143 §11.1.
#[inline]
#[must_use]
pub const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

/// Clears the header and writes its first two bytes and its lengths.
#[inline]
pub(super) fn begin(header: &mut Bhs, opcode: Opcode, immediate: bool, flags: u8, lengths: SegmentLengths) {
    // Reserved fields are zero, and no caller writes them.
    *header = [0; super::BHS_BYTES];
    field::put::<0, 2>(header, [opcode as u8 | field::bit(immediate, super::opcode::IMMEDIATE), flags]);
    field::put::<4, 4>(header, lengths.word());
}

/// Checks that the PDU has no additional header segment.
#[inline]
pub(super) fn refuse_ahs(header: &Bhs) -> Result<(), Violation> {
    if field::u8_at::<4>(header) == 0 { Ok(()) } else { Err(Violation::AhsOutsideScsiCommand) }
}
