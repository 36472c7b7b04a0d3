//! Sense data of this target (SPC-4, sense data), built here and emitted in fixed or descriptor format.

use smallvec::SmallVec;

/// Sense key (SPC-4, sense key descriptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// NO SENSE: nothing to report.
    NoSense = 0x0,
    /// NOT READY: media access commands are not accepted now.
    NotReady = 0x2,
    /// MEDIUM ERROR: blocks cannot be read or written.
    MediumError = 0x3,
    /// HARDWARE ERROR: the device failed.
    HardwareError = 0x4,
    /// ILLEGAL REQUEST: invalid CDB, parameter list or LUN.
    IllegalRequest = 0x5,
    /// UNIT ATTENTION: a change not yet reported to the nexus.
    UnitAttention = 0x6,
    /// DATA PROTECT: blocks may not be written.
    DataProtect = 0x7,
    /// COPY ABORTED: a third-party copy failed.
    CopyAborted = 0xA,
    /// ABORTED COMMAND: the command was aborted.
    AbortedCommand = 0xB,
    /// MISCOMPARE: stored blocks differ from the data sent.
    Miscompare = 0xE,
}

/// Additional sense code and qualifier, as in "21/00".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdditionalSense(pub u8, pub u8);

#[rustfmt::skip]
impl AdditionalSense {
    pub(crate) const NONE: Self = Self(0x00, 0x00);
    pub(crate) const OPERATION_IN_PROGRESS: Self = Self(0x00, 0x16);
    pub(crate) const BECOMING_READY: Self = Self(0x04, 0x01);
    pub(crate) const INITIALIZING_COMMAND_REQUIRED: Self = Self(0x04, 0x02);
    pub(crate) const MANUAL_INTERVENTION_REQUIRED: Self = Self(0x04, 0x03);
    pub(crate) const ASYMMETRIC_ACCESS_STATE_TRANSITION: Self = Self(0x04, 0x0A);
    pub(crate) const TARGET_PORT_IN_STANDBY_STATE: Self = Self(0x04, 0x0B);
    pub(crate) const TARGET_PORT_IN_UNAVAILABLE_STATE: Self = Self(0x04, 0x0C);
    pub(crate) const LOGICAL_UNIT_OFFLINE: Self = Self(0x04, 0x12);
    pub(crate) const SANITIZE_IN_PROGRESS: Self = Self(0x04, 0x1B);
    pub(crate) const UNREACHABLE_COPY_TARGET: Self = Self(0x08, 0x04);
    pub(crate) const WRITE_ERROR: Self = Self(0x0C, 0x00);
    pub(crate) const THIRD_PARTY_DEVICE_FAILURE: Self = Self(0x0D, 0x01);
    pub(crate) const COPY_TARGET_NOT_REACHABLE: Self = Self(0x0D, 0x02);
    pub(crate) const INCORRECT_COPY_TARGET_TYPE: Self = Self(0x0D, 0x03);
    pub(crate) const INVALID_FIELD_IN_INFORMATION_UNIT: Self = Self(0x0E, 0x03);
    pub(crate) const UNRECOVERED_READ_ERROR: Self = Self(0x11, 0x00);
    pub(crate) const PARAMETER_LIST_LENGTH_ERROR: Self = Self(0x1A, 0x00);
    pub(crate) const MISCOMPARE_DURING_VERIFY: Self = Self(0x1D, 0x00);
    pub(crate) const INVALID_OPERATION_CODE: Self = Self(0x20, 0x00);
    pub(crate) const LBA_OUT_OF_RANGE: Self = Self(0x21, 0x00);
    pub(crate) const UNSUPPORTED_TOKEN_TYPE: Self = Self(0x23, 0x01);
    pub(crate) const TOKEN_UNKNOWN: Self = Self(0x23, 0x04);
    pub(crate) const TOKEN_CORRUPT: Self = Self(0x23, 0x05);
    pub(crate) const TOKEN_EXPIRED: Self = Self(0x23, 0x07);
    pub(crate) const TOKEN_CANCELLED: Self = Self(0x23, 0x08);
    pub(crate) const TOKEN_DELETED: Self = Self(0x23, 0x09);
    pub(crate) const INVALID_TOKEN_LENGTH: Self = Self(0x23, 0x0A);
    pub(crate) const INVALID_FIELD_IN_CDB: Self = Self(0x24, 0x00);
    pub(crate) const LOGICAL_UNIT_NOT_SUPPORTED: Self = Self(0x25, 0x00);
    pub(crate) const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self(0x26, 0x00);
    pub(crate) const INVALID_RELEASE: Self = Self(0x26, 0x04);
    pub(crate) const TOO_MANY_TARGET_DESCRIPTORS: Self = Self(0x26, 0x06);
    pub(crate) const UNSUPPORTED_TARGET_DESCRIPTOR_TYPE: Self = Self(0x26, 0x07);
    pub(crate) const TOO_MANY_SEGMENT_DESCRIPTORS: Self = Self(0x26, 0x08);
    pub(crate) const UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE: Self = Self(0x26, 0x09);
    pub(crate) const UNEXPECTED_INEXACT_SEGMENT: Self = Self(0x26, 0x0A);
    pub(crate) const INLINE_DATA_LENGTH_EXCEEDED: Self = Self(0x26, 0x0B);
    pub(crate) const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    pub(crate) const SOFTWARE_WRITE_PROTECTED: Self = Self(0x27, 0x02);
    pub(crate) const SPACE_ALLOCATION_FAILED: Self = Self(0x27, 0x07);
    pub(crate) const COMMAND_SEQUENCE_ERROR: Self = Self(0x2C, 0x00);
    pub(crate) const COMMANDS_CLEARED_BY_DEVICE_SERVER: Self = Self(0x2F, 0x02);
    pub(crate) const SANITIZE_COMMAND_FAILED: Self = Self(0x31, 0x03);
    pub(crate) const SAVING_PARAMETERS_NOT_SUPPORTED: Self = Self(0x39, 0x00);
    pub(crate) const MEDIUM_NOT_PRESENT: Self = Self(0x3A, 0x00);
    pub(crate) const SELF_TEST_FAILED: Self = Self(0x3E, 0x03);
    pub(crate) const INTERNAL_TARGET_FAILURE: Self = Self(0x44, 0x00);
    pub(crate) const INVALID_MESSAGE: Self = Self(0x49, 0x00);
    pub(crate) const MEDIUM_REMOVAL_PREVENTED: Self = Self(0x53, 0x02);
    pub(crate) const INSUFFICIENT_REGISTRATION_RESOURCES: Self = Self(0x55, 0x04);
    pub(crate) const INSUFFICIENT_RESOURCES_FOR_TOKEN: Self = Self(0x55, 0x0D);
}

/// Field pointer to the invalid field (SPC-4, field pointer sense key specific data).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// True for the CDB, false for the parameter list.
    pub in_cdb: bool,
    /// Offset of the first byte of the field.
    pub byte: u16,
    /// Most significant bit of the field in that byte; `None` when the field begins with the byte.
    pub bit: Option<u8>,
}

/// Sense data in structured form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code and qualifier.
    pub code: AdditionalSense,
    /// INFORMATION: the block, or for a miscompare of COMPARE AND WRITE the byte of the data.
    pub information: Option<u64>,
    /// Field pointer of an illegal request.
    pub field: Option<FieldPointer>,
    /// Progress of the operation that keeps the unit not ready, in 65,536ths.
    pub progress: Option<u16>,
    /// True for descriptor format (D_SENSE of the control mode page), false for fixed format.
    pub descriptor_format: bool,
}

/// Sense data in wire format.
pub type SenseBytes = SmallVec<[u8; 32]>;

impl Sense {
    pub(crate) const fn new(key: SenseKey, code: AdditionalSense) -> Self {
        Self { key, code, information: None, field: None, progress: None, descriptor_format: false }
    }

    /// True for NOT READY of a device that is temporarily away without loss of acknowledged writes.
    pub(crate) fn is_device_away(&self) -> bool {
        (self.key, self.code) == (SenseKey::NotReady, AdditionalSense::BECOMING_READY)
    }

    pub(crate) const fn illegal(code: AdditionalSense) -> Self {
        Self::new(SenseKey::IllegalRequest, code)
    }

    /// Returns 24/00 with a pointer to the field that begins at `bit` of `byte` in the CDB.
    pub(crate) const fn cdb_bit(byte: u16, bit: u8) -> Self {
        assert!(bit < 8, "a byte has eight bits");
        let mut sense = Self::illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        sense.field = Some(FieldPointer { in_cdb: true, byte, bit: Some(bit) });
        sense
    }

    /// Returns 24/00 with a pointer to the field that begins with `byte` of the CDB.
    pub(crate) const fn cdb_byte(byte: u16) -> Self {
        let mut sense = Self::illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        sense.field = Some(FieldPointer { in_cdb: true, byte, bit: None });
        sense
    }

    /// Returns 26/00 with a pointer to `byte` (and `bit`) of the parameter list.
    pub(crate) const fn parameter(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
        sense.field = Some(FieldPointer { in_cdb: false, byte, bit });
        sense
    }

    pub(crate) const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// Emits the wire format that the initiator selected.
    #[must_use]
    pub fn emit(&self) -> SenseBytes {
        if self.descriptor_format { self.emit_descriptor() } else { self.emit_fixed() }
    }

    fn emit_fixed(&self) -> SenseBytes {
        let mut bytes = SenseBytes::from_slice(&[0; 18]);
        let AdditionalSense(code, qualifier) = self.code;
        // INFORMATION has 32 bits in fixed format; a larger value is reported as not valid (VALID is zero).
        let information = self.information.and_then(|information| u32::try_from(information).ok());
        bytes[0] = 0x70 | if information.is_some() { 0x80 } else { 0 };
        bytes[2] = self.key as u8;
        bytes[3..7].copy_from_slice(&information.unwrap_or(0).to_be_bytes());
        // ADDITIONAL SENSE LENGTH: 18 bytes in all.
        bytes[7] = 10;
        bytes[12] = code;
        bytes[13] = qualifier;
        bytes[15..18].copy_from_slice(&self.key_specific());
        bytes
    }

    fn emit_descriptor(&self) -> SenseBytes {
        let AdditionalSense(code, qualifier) = self.code;
        let mut bytes = SenseBytes::from_slice(&[0x72, self.key as u8, code, qualifier, 0, 0, 0, 0]);
        if let Some(information) = self.information {
            // Information sense data descriptor.
            bytes.extend_from_slice(&[0x00, 0x0A, 0x80, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if self.field.is_some() || self.progress.is_some() {
            // Sense key specific sense data descriptor.
            bytes.extend_from_slice(&[0x02, 0x06, 0, 0]);
            bytes.extend_from_slice(&self.key_specific());
            bytes.push(0);
        }
        assert!(bytes.len() <= 252, "descriptors are few (SPC-4: at most 252 bytes)");
        // ADDITIONAL SENSE LENGTH counts the bytes behind the header of eight bytes.
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }

    /// SENSE KEY SPECIFIC: a field pointer or a progress indication, with SKSV set; zeros where there is neither.
    fn key_specific(&self) -> [u8; 3] {
        assert!(self.field.is_none() || self.progress.is_none(), "a sense key has one meaning of its specific bytes");
        if let Some(progress) = self.progress {
            let [high, low] = progress.to_be_bytes();
            // SKSV: the two bytes behind it are valid.
            return [0x80, high, low];
        }
        let Some(FieldPointer { in_cdb, byte, bit }) = self.field else { return [0; 3] };
        let [high, low] = byte.to_be_bytes();
        // C/D and BPV: in the CDB, and bit pointer valid.
        let pointed = 0x80 | if in_cdb { 0x40 } else { 0 };
        [pointed | bit.map_or(0, |bit| 0x08 | (bit & 7)), high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_fixed_format_is_18_bytes_with_field_pointer() {
        let bytes = Sense::cdb_bit(1, 7).emit();
        assert_eq!(bytes[..], [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xCF, 0, 1]);
        assert_eq!(Sense::parameter(0x0104, None).emit()[15..], [0x80, 1, 4]);
    }

    #[test]
    fn sense_information_that_does_not_fit_the_fixed_format_is_not_valid() {
        let sense = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR);
        let fits = sense.with_information(0xFFFF_FFFF).emit();
        assert_eq!((fits[0], &fits[3..7]), (0xF0, &[0xFF; 4][..]));
        let large = sense.with_information(0x1_0000_0000).emit();
        assert_eq!((large[0], &large[3..7]), (0x70, &[0; 4][..]));
    }

    #[test]
    fn sense_tells_progress_in_both_formats() {
        let mut sense = Sense::new(SenseKey::NotReady, AdditionalSense::SANITIZE_IN_PROGRESS);
        sense.progress = Some(0x8001);
        assert_eq!(sense.emit()[15..], [0x80, 0x80, 0x01]);
        sense.descriptor_format = true;
        assert_eq!(sense.emit()[..], [0x72, 2, 4, 0x1B, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 0x80, 0x01, 0]);
    }

    #[test]
    fn sense_descriptor_format_carries_64_bits_and_the_field_pointer() {
        let mut sense = Sense::cdb_byte(2).with_information(0x0102_0304_0506_0708);
        sense.descriptor_format = true;
        let expected: &[u8] =
            &[0x72, 5, 0x24, 0, 0, 0, 0, 20, 0, 10, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 6, 0, 0, 0xC0, 0, 2, 0];
        assert_eq!(&sense.emit()[..], expected);
    }
}
