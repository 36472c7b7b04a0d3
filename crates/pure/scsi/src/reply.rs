//! Builder of parameter data in big-endian byte order. Only bytes written here are returned to initiators.

use block::{Buf, Rope};

/// Parameter data under construction.
#[derive(Debug, Default)]
pub(crate) struct Reply(Vec<u8>);

impl Reply {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends ASCII in a field of `width` bytes, truncated or padded with blanks; characters that are not printable
    /// become blanks.
    pub(crate) fn text(&mut self, text: &str, width: usize) -> &mut Self {
        let printable = text.bytes().map(|byte| if (0x20..=0x7E).contains(&byte) { byte } else { b' ' });
        self.0.extend(printable.chain(std::iter::repeat(b' ')).take(width));
        self
    }

    /// Appends zeros up to a length of `len` bytes.
    pub(crate) fn pad_to(&mut self, len: usize) -> &mut Self {
        assert!(self.0.len() <= len, "what was written ends before the next field begins");
        self.0.resize(len, 0);
        self
    }

    /// Sets the 16-bit length field at `at` to the number of bytes that follow it.
    pub(crate) fn set_length16(&mut self, at: usize) -> &mut Self {
        assert!(self.0.len() >= at + 2, "a length stands in what was written");
        let follow = self.0.len() - at - 2;
        let length = u16::try_from(follow).expect("an answer of our own making is short");
        self.0[at..at + 2].copy_from_slice(&length.to_be_bytes());
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the data, truncated to the allocation length.
    pub(crate) fn cut(&self, allocation: u64) -> Rope {
        let len = usize::try_from(allocation).unwrap_or(usize::MAX).min(self.0.len());
        if len == 0 { Rope::new() } else { Buf::copy_of(&self.0[..len]).into() }
    }
}
