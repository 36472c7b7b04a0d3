//! Fields with lengths: how they are written, and how they are read from bytes that nobody vouches for.

use thiserror::Error;

/// A rule that a message breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The message ends inside its header or inside a field.
    #[error("the message is truncated")]
    Truncated,
    /// The message is longer than any valid one.
    #[error("the message is too long")]
    TooLong,
    /// The first byte is not [`VERSION`](crate::VERSION).
    #[error("version {0} is unknown")]
    Version(u8),
    /// No request has this verb, or no answer this status.
    #[error("verb {0} is unknown")]
    Verb(u8),
    /// A field has a length or a value that its verb does not allow.
    #[error("a field has an invalid value")]
    Field,
    /// Bytes follow the last field.
    #[error("bytes follow the last field")]
    LeftOver,
}

/// Appends a field.
///
/// *Panics*: the field has 65,536 bytes or more.
pub(crate) fn put(out: &mut Vec<u8>, field: &[u8]) {
    let len = u16::try_from(field.len()).expect("a field of ours is shorter than 64 KiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(field);
}

/// The bytes of a message that are not read yet.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next field.
    pub(crate) fn field(&mut self) -> Result<&'a [u8], Violation> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let (field, rest) = self.0.split_at_checked(len).ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(field)
    }

    /// The next field, which has exactly `N` bytes.
    pub(crate) fn exact<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        self.field()?.try_into().map_err(|_| Violation::Field)
    }

    /// The next field, which is one byte, 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, Violation> {
        match self.exact::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Violation::Field),
        }
    }

    /// Nothing is left.
    pub(crate) fn end(&self) -> Result<(), Violation> {
        if self.0.is_empty() { Ok(()) } else { Err(Violation::LeftOver) }
    }
}
