//! CHAP secrets.

use crate::{Refusal, code};
use serde::{Serialize, Serializer};
use std::fmt;
use zeroize::Zeroizing;

/// The shortest secret that is taken (RFC 7143 §12.1.3 asks for 96 bits).
const SECRET_BYTES_MIN: usize = 12;

/// The longest secret that is taken; hosts take far shorter ones.
const SECRET_BYTES_MAX: usize = 255;

/// A CHAP secret: any bytes. Shows itself to nobody: not in a log, not in an answer; wiped when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// A secret of these bytes.
    ///
    /// *Errors*: fewer than 12 bytes or more than 255. The sentence does not repeat them.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Refusal> {
        let bytes = Zeroizing::new(bytes);
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        Err(Refusal::new(
            code::SECRET_INVALID,
            format!("a secret of {} bytes is not taken", bytes.len()),
            "use 12 to 255 bytes (Windows takes 12 to 16)",
        ))
    }

    /// The bytes themselves, for the computation of a response and for the store.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Secret {
    /// Compares every byte, whatever the first difference.
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(other.0.iter()).fold(0, |seen, (a, b)| seen | (a ^ b));
        self.0.len() == other.0.len() && differing == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_never_shows_itself() {
        let secret = Secret::new(b"correct horse battery".to_vec()).expect("long enough");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(serde_json::to_string(&secret).expect("json"), "\"…\"");
    }

    #[test]
    fn secret_takes_any_bytes_but_not_few() {
        assert!(Secret::new(vec![0; 12]).is_ok());
        assert!(Secret::new(b"# \"'\0\xff\n 0x42 ".to_vec()).is_ok());
        let refusal = Secret::new(b"hunter2".to_vec()).expect_err("short");
        assert_eq!(refusal.code, code::SECRET_INVALID);
        assert!(!refusal.to_string().contains("hunter2"));
    }

    #[test]
    fn secret_equality_sees_length_and_bytes() {
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec()).expect("long enough");
        assert_eq!(secret("abcdefghijkl"), secret("abcdefghijkl"));
        assert_ne!(secret("abcdefghijkl"), secret("abcdefghijkm"));
        assert_ne!(secret("abcdefghijkl"), secret("abcdefghijklm"));
    }
}
