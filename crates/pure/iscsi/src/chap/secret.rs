//! Secrets, and who has them.

use std::fmt;

/// The fewest bytes of a secret: RFC 7143 §9.2.1 asks for 96 bits where IPsec does not protect the connection.
pub const SECRET_BYTES_MIN: usize = 12;
/// The most bytes of a secret: what other implementations take.
const SECRET_BYTES_MAX: usize = 255;
/// The most bytes of a name: the bound of a text value (RFC 7143 §6.1).
const NAME_BYTES_MAX: usize = 255;

/// A CHAP secret: any bytes. A clone is no copy.
#[derive(Clone)]
pub struct Secret(secret::Secret);

/// Why something is no secret, as a sentence for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// RFC 7143 §9.2.1.
    #[error("a CHAP secret has at least 12 bytes; a shorter one can be guessed from one login that somebody records")]
    TooShort,
    /// A bound of ours.
    #[error("a CHAP secret has at most 255 bytes")]
    TooLong,
}

/// A CHAP name with its secret.
#[derive(Clone, Debug)]
pub struct Credential {
    /// CHAP_N; compared byte by byte.
    pub name: String,
    /// What proves the name.
    pub secret: Secret,
}

impl Secret {
    /// The secret that `bytes` are.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SecretError> {
        secret::Secret::new(bytes).try_into()
    }

    /// A stand-in of usual length where no secret is known.
    pub(super) fn unknown() -> Self {
        Self(secret::Secret::new([0; 16]))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.expose()
    }

    /// True when both are the same bytes; takes the same time wherever they differ.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl TryFrom<secret::Secret> for Secret {
    type Error = SecretError;

    fn try_from(bytes: secret::Secret) -> Result<Self, SecretError> {
        match bytes.expose().len() {
            0..SECRET_BYTES_MIN => Err(SecretError::TooShort),
            SECRET_BYTES_MIN..=SECRET_BYTES_MAX => Ok(Self(bytes)),
            _ => Err(SecretError::TooLong),
        }
    }
}

impl Credential {
    /// True when the name can be sent.
    pub(crate) fn has_name(&self) -> bool {
        (1..=NAME_BYTES_MAX).contains(&self.name.len()) && !self.name.chars().any(char::is_control)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
