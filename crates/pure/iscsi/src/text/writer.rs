//! Text on the send side, split into segments that the peer accepts.

use std::fmt::Display;

/// Pairs that are queued for sending.
#[derive(Clone, Debug, Default)]
pub struct TextWriter {
    text: Vec<u8>,
}

/// Text of one PDU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPart {
    /// Data segment.
    pub text: Vec<u8>,
    /// C bit: more follows once the peer has answered with an empty PDU.
    pub continues: bool,
}

impl TextWriter {
    /// Queues a pair behind the previous ones.
    ///
    /// *Panics*: when the value contains a NUL byte, which would end it early; ours never do.
    pub fn push(&mut self, key: &str, value: impl Display) {
        let value = value.to_string();
        // A NUL byte would let a value inject further pairs.
        assert!(!value.contains('\0'), "a value has no NUL byte");
        assert!(!key.is_empty() && !key.contains(['=', '\0']), "a key ends where its value begins");
        self.text.extend_from_slice(key.as_bytes());
        self.text.push(b'=');
        self.text.extend_from_slice(value.as_bytes());
        self.text.push(0);
    }

    /// Takes the next `bytes_max` bytes at most. A pair may be split anywhere; the peer joins it.
    #[must_use]
    pub fn take(&mut self, bytes_max: usize) -> TextPart {
        assert!(bytes_max > 0, "text leaves in pieces of some length");
        let rest = self.text.split_off(self.text.len().min(bytes_max));
        let text = std::mem::replace(&mut self.text, rest);
        TextPart { text, continues: !self.text.is_empty() }
    }

    /// True when no text is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}
