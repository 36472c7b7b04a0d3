//! Encoding of length-prefixed fields, and their parsing from untrusted bytes.

use thiserror::Error;

/// Protocol violation in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// Truncated header or field.
    #[error("the message is truncated")]
    Truncated,
    /// Message longer than any valid one.
    #[error("the message is too long")]
    TooLong,
    /// Version other than [`VERSION`](crate::VERSION).
    #[error("version {0} is unknown")]
    Version(u8),
    /// Unknown verb of a request or status of an answer.
    #[error("verb {0} is unknown")]
    Verb(u8),
    /// Field with a length or value that its verb does not permit.
    #[error("a field has an invalid value")]
    Field,
    /// Bytes after the last field.
    #[error("bytes follow the last field")]
    LeftOver,
}

/// Appends a field.
///
/// *Panics*: when the field has 65,536 bytes or more.
pub(crate) fn put(out: &mut Vec<u8>, field: &[u8]) {
    // The longest field is a path of 4,095 bytes.
    let len = u16::try_from(field.len()).expect("a field of ours is shorter than 64 KiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(field);
}

/// Unread bytes of a message.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        // No indexing: the bytes come from the other process and may end anywhere.
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads the next field.
    pub(crate) fn field(&mut self) -> Result<&'a [u8], Violation> {
        // 16 bits of length, little-endian.
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let (field, rest) = self.0.split_at_checked(len).ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(field)
    }

    /// Reads the next field, which must have exactly `N` bytes.
    pub(crate) fn exact<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        self.field()?.try_into().map_err(|_| Violation::Field)
    }

    /// Reads the next field as a flag: one byte, 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, Violation> {
        // One encoding for each meaning: any other byte shows that the two sides disagree.
        match self.exact::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Violation::Field),
        }
    }

    /// Verifies that no bytes are left.
    pub(crate) fn end(&self) -> Result<(), Violation> {
        // Trailing bytes would mean that both sides disagree about the fields.
        if self.0.is_empty() { Ok(()) } else { Err(Violation::LeftOver) }
    }
}
