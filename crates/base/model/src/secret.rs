//! CHAP secrets.

use crate::{Refusal, code};
use serde::{Serialize, Serializer};
use std::fmt;
use zeroize::Zeroizing;

/// The shortest secret that is taken (RFC 7143 §12.1.3 asks for 96 bits).
const SECRET_BYTES_MIN: usize = 12;

/// The longest secret that is taken; hosts take far shorter ones.
const SECRET_BYTES_MAX: usize = 255;

/// A secret: any bytes. Shows itself to nobody: not in a log, not in an answer. A clone is no copy.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(secret::Secret);

impl Secret {
    /// A CHAP secret of these bytes.
    ///
    /// *Errors*: fewer than 12 bytes or more than 255. The sentence does not repeat them.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Refusal> {
        let bytes = Zeroizing::new(bytes);
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(secret::Secret::new(bytes.as_slice())));
        }
        Err(Refusal::new(
            code::SECRET_INVALID,
            format!("a secret of {} bytes is not taken", bytes.len()),
            "use 12 to 255 bytes (Windows takes 12 to 16)",
        ))
    }

    /// A secret whose length somebody else has judged, such as the password of a mail server.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        Self(secret::Secret::new(bytes))
    }

    /// The bytes themselves, for the computation of a response and for the store.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// True when each secret so far has its locked pages; false once the system has refused one.
    #[must_use]
    pub fn all_are_locked() -> bool {
        secret::all_are_locked()
    }

    /// The same bytes, for crates that know no operator.
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
