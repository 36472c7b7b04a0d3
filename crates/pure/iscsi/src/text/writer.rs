//! Text on its way out, cut to what the peer takes at once.

use std::fmt::Display;

/// Pairs that wait to be sent.
#[derive(Clone, Debug, Default)]
pub struct TextWriter {
    text: Vec<u8>,
}

/// What goes into one PDU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPart {
    /// The data segment.
    pub text: Vec<u8>,
    /// The C bit: more follows once the peer has answered with an empty PDU.
    pub continues: bool,
}

impl TextWriter {
    /// The pair waits to be sent behind those before.
    ///
    /// *Panics*: when the value has a NUL byte in it, which would end it early; ours never have.
    pub fn push(&mut self, key: &str, value: impl Display) {
        let value = value.to_string();
        assert!(!value.contains('\0'), "a value has no NUL byte");
        assert!(!key.is_empty() && !key.contains(['=', '\0']), "a key ends where its value begins");
        self.text.extend_from_slice(key.as_bytes());
        self.text.push(b'=');
        self.text.extend_from_slice(value.as_bytes());
        self.text.push(0);
    }

    /// The next at most `bytes_max` bytes leave. A pair may be cut anywhere; the peer joins it.
    #[must_use]
    pub fn take(&mut self, bytes_max: usize) -> TextPart {
        assert!(bytes_max > 0, "text leaves in pieces of some length");
        let rest = self.text.split_off(self.text.len().min(bytes_max));
        let text = std::mem::replace(&mut self.text, rest);
        TextPart { text, continues: !self.text.is_empty() }
    }

    /// True when nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}
