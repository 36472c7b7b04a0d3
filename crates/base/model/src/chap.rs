//! CHAP authentication at a login, and its hash functions.

use crate::{ParseRefusal, Refusal, Secret, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Authentication settings that apply to all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthPolicy {
    /// Weakest hash function that is accepted.
    pub weakest: ChapAlgorithm,
    /// Authentication of discovery sessions, for all hosts; `None` means the same as for normal sessions of the host.
    pub discovery: Option<ChapCredentials>,
}

/// CHAP credentials of both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChapCredentials {
    /// Credential that the initiator must present; without it the initiator is not authenticated.
    pub own: Option<Chap>,
    /// Credential that the array presents to the initiator. Only together with `own`.
    pub mutual: Option<Chap>,
}

/// CHAP name and secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// CHAP name (key `CHAP_N`).
    pub user: String,
    /// Secret that the response (key `CHAP_R`) is computed from.
    pub secret: Secret,
    /// Requirement of authentication with this credential.
    pub demand: Demand,
}

/// Requirement of authentication at a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// Logins without authentication are rejected.
    Required,
    /// Logins without authentication are accepted. An initiator that chooses CHAP must still succeed.
    Offered,
}

/// Hash functions of CHAP, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("enum" = ["md5", "sha-1", "sha-256", "sha3-256"]))]
pub enum ChapAlgorithm {
    // The order of declaration is the order of strength, because `Ord` is derived from it.
    /// MD5, which every initiator supports.
    #[default]
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA3-256.
    Sha3_256,
}

impl Demand {
    /// Returns the requirement as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Offered => "offered",
        }
    }
}

impl FromStr for Demand {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        [Self::Required, Self::Offered].into_iter().find(|demand| demand.as_str() == text).ok_or_else(|| {
            let message = format!("CHAP authentication cannot be {}", quoted(text));
            Refusal::new(code::SETTING_INVALID, message, "write required or offered")
        })
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl ChapAlgorithm {
    /// All hash functions, weakest first.
    pub const ALL: [Self; 4] = [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha3_256];

    /// Returns the name that operators write.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            // Names for operators. On the wire CHAP_A carries numbers (RFC 7143 §12.1.3).
            Self::Md5 => "md5",
            Self::Sha1 => "sha-1",
            Self::Sha256 => "sha-256",
            Self::Sha3_256 => "sha3-256",
        }
    }
}

impl FromStr for ChapAlgorithm {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text).ok_or_else(|| {
            let message = format!("{} is not a CHAP hash function", quoted(text));
            Refusal::new(code::SETTING_INVALID, message, "write md5, sha-1, sha-256 or sha3-256")
        })
    }
}

impl TryFrom<String> for ChapAlgorithm {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<ChapAlgorithm> for String {
    fn from(algorithm: ChapAlgorithm) -> Self {
        algorithm.as_str().to_owned()
    }
}

impl fmt::Display for ChapAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chap_algorithms_are_read_as_they_are_written_and_ordered_by_strength() {
        for algorithm in ChapAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!(ChapAlgorithm::ALL.is_sorted());
        assert!("MD4".parse::<ChapAlgorithm>().is_err());
        assert!("always".parse::<Demand>().is_err());
    }
}
