//! CHAP secrets and credentials.

use std::fmt;

/// Minimum length of a secret in bytes: RFC 7143 §9.2.1 requires 96 bits unless IPsec protects the connection.
pub const SECRET_BYTES_MIN: usize = 12;
/// Maximum length of a secret in bytes: the limit of other implementations.
const SECRET_BYTES_MAX: usize = 255;
/// Maximum length of a name in bytes: the limit of a text value (RFC 7143 §6.1).
const NAME_BYTES_MAX: usize = 255;

/// CHAP secret of any bytes. A clone shares the memory instead of copying the secret.
#[derive(Clone)]
pub struct Secret(secret::Secret);

/// Invalid secret, as a sentence for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// RFC 7143 §9.2.1.
    #[error("a CHAP secret has at least 12 bytes; a shorter one can be guessed from one login that somebody records")]
    TooShort,
    /// Limit of this implementation.
    #[error("a CHAP secret has at most 255 bytes")]
    TooLong,
}

/// CHAP name with its secret.
#[derive(Clone, Debug)]
pub struct Credential {
    /// CHAP_N; compared byte by byte.
    pub name: String,
    /// Secret of the name.
    pub secret: Secret,
}

impl Secret {
    /// Creates a secret from `bytes`.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SecretError> {
        secret::Secret::new(bytes).try_into()
    }

    /// Returns a placeholder of usual length for an unknown name.
    pub(super) fn unknown() -> Self {
        // The time of a hash grows with the length of the secret, so an empty one would reveal an unknown name.
        Self(secret::Secret::new([0; 16]))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.expose()
    }

    /// Compares two secrets in constant time.
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
    /// True when the name is valid in a text PDU.
    pub(crate) fn has_name(&self) -> bool {
        (1..=NAME_BYTES_MAX).contains(&self.name.len()) && !self.name.chars().any(char::is_control)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret must not appear in a log.
        f.write_str("Secret(..)")
    }
}
