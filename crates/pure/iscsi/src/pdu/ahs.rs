//! Additional header segments: the rest of a long CDB, and the read length of a bidirectional command.

use super::padded;
use crate::Violation;

const EXTENDED_CDB: u8 = 1;
const BIDIRECTIONAL_READ_LENGTH: u8 = 2;
/// Bytes of a segment before those that AHSLength counts.
const PREFIX_BYTES: usize = 3;

/// All additional header segments of one SCSI Command.
///
/// *Source*: RFC 7143 §11.2.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahs<'a> {
    /// CDB bytes beyond the first 16.
    pub extended_cdb: Option<&'a [u8]>,
    /// Expected read length of a bidirectional command in bytes.
    pub expected_read_bytes: Option<u32>,
}

impl<'a> Ahs<'a> {
    /// Parses the segments.
    ///
    /// *Shape*: `bytes` are all additional header segments of one PDU, with their padding.
    ///
    /// *Errors*: [`Violation::AhsLength`], [`Violation::AhsTypeUnknown`], [`Violation::AhsRepeated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Violation> {
        let mut ahs = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (&[high, low, kind], behind) = rest.split_first_chunk::<PREFIX_BYTES>().ok_or(Violation::AhsLength)?;
            let length = usize::from(u16::from_be_bytes([high, low]));
            // The byte behind the type is reserved in both types, and included in AHSLength.
            let (_, content) = behind.get(..length).and_then(<[u8]>::split_first).ok_or(Violation::AhsLength)?;
            // The upper two bits of the type are reserved (RFC 7143 §11.2.2.1).
            ahs.take(kind & 0x3f, content)?;
            // All segments together fill whole words, so the padding of the last one is there, too.
            rest = rest.get(padded(PREFIX_BYTES + length)..).ok_or(Violation::AhsLength)?;
        }
        Ok(ahs)
    }

    fn take(&mut self, kind: u8, content: &'a [u8]) -> Result<(), Violation> {
        let repeated = match kind {
            EXTENDED_CDB => self.extended_cdb.replace(content).is_some(),
            BIDIRECTIONAL_READ_LENGTH => {
                let bytes: [u8; 4] = content.try_into().map_err(|_| Violation::AhsLength)?;
                self.expected_read_bytes.replace(u32::from_be_bytes(bytes)).is_some()
            }
            _ => return Err(Violation::AhsTypeUnknown),
        };
        if repeated { Err(Violation::AhsRepeated) } else { Ok(()) }
    }

    /// Returns the length of the segments on the wire in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let cdb = self.extended_cdb.map_or(0, |cdb| padded(PREFIX_BYTES + 1 + cdb.len()));
        // Prefix, reserved byte and four bytes of length fill two words.
        let read = self.expected_read_bytes.map_or(0, |_| 8);
        cdb + read
    }

    /// Appends the segments to `out`: [`Ahs::bytes`] bytes.
    ///
    /// *Panics*: when the CDB is too long for the length field of a segment.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        if let Some(cdb) = self.extended_cdb {
            segment(out, EXTENDED_CDB, cdb);
        }
        if let Some(bytes) = self.expected_read_bytes {
            segment(out, BIDIRECTIONAL_READ_LENGTH, &bytes.to_be_bytes());
        }
        assert_eq!(out.len() - begin, self.bytes(), "additional headers are as long as was announced");
    }
}

fn segment(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    // AHSLength includes the reserved byte behind the type.
    let length = u16::try_from(content.len() + 1).expect("a CDB of ours is short");
    let end = out.len() + padded(PREFIX_BYTES + 1 + content.len());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(content);
    out.resize(end, 0);
}
