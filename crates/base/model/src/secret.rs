//! Secrets, mainly of CHAP.

use crate::{Refusal, code};
use serde::{Serialize, Serializer};
use std::fmt;
use zeroize::Zeroizing;

/// Minimum length of a CHAP secret in bytes (RFC 7143 §9.2.1 requires 96 bits).
const SECRET_BYTES_MIN: usize = 12;

/// Maximum length of a CHAP secret in bytes; the limits of initiators are far lower.
const SECRET_BYTES_MAX: usize = 255;

/// Secret of arbitrary bytes. Never shown: neither in logs nor in responses. A clone shares the memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(secret::Secret);

impl Secret {
    /// Creates a CHAP secret.
    ///
    /// *Errors*: fewer than 12 bytes or more than 255. The message does not contain them.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Refusal> {
        // The bytes are wiped even if the length is rejected.
        let bytes = Zeroizing::new(bytes);
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(secret::Secret::new(bytes.as_slice())));
        }
        Err(Refusal::new(
            code::SECRET_INVALID,
            format!("a secret of {} bytes is not accepted", bytes.len()),
            "use 12 to 255 bytes (Windows accepts 12 to 16)",
        ))
    }

    /// Creates a secret without a check of its length, such as the password of a mail server.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        Self(secret::Secret::new(bytes))
    }

    /// Returns the bytes, for the computation of a response and for the store.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// Returns true if the memory of every secret so far is locked; false once the system has refused it.
    #[must_use]
    pub fn all_are_locked() -> bool {
        secret::all_are_locked()
    }

    /// Returns the secret as the type of the `secret` crate, for crates that do not use `model`.
    #[must_use]
    pub fn bare(&self) -> secret::Secret {
        self.0.clone()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A fixed placeholder: neither content nor length may appear in a response.
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
}
