//! What is proven with CHAP at a login, and with which hash functions.

use crate::{Misread, Refusal, Secret, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What holds for the logins of all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthPolicy {
    /// The weakest hash function that is spoken.
    pub weakest: ChapAlgorithm,
    /// What discovery sessions prove, whichever host asks; what their host proves for other sessions when absent.
    pub discovery: Option<Proof>,
}

/// What an initiator proves to us, and what we prove to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// What it proves; it is believed when absent.
    pub own: Option<Chap>,
    /// What we prove. Only together with `own`.
    pub mutual: Option<Chap>,
}

/// A CHAP name and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// CHAP_N.
    pub user: String,
    /// What CHAP_R is computed from.
    pub secret: Secret,
    /// Whether it goes without.
    pub demand: Demand,
}

/// Whether a login goes without a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// No.
    Required,
    /// Yes, when the initiator does not want it; what is claimed has to be proven all the same.
    Offered,
}

/// The hash functions of CHAP, the weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("enum" = ["md5", "sha-1", "sha-256", "sha3-256"]))]
pub enum ChapAlgorithm {
    /// The one that every host speaks.
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
    /// The demand in one word.
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
            let message = format!("a proof cannot be {}", quoted(text));
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
    /// All of them, the weakest first.
    pub const ALL: [Self; 4] = [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha3_256];

    /// How an operator writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
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
            let message = format!("{} is no hash function of CHAP", quoted(text));
            Refusal::new(code::SETTING_INVALID, message, "write md5, sha-1, sha-256 or sha3-256")
        })
    }
}

impl TryFrom<String> for ChapAlgorithm {
    type Error = Misread;
    fn try_from(text: String) -> Result<Self, Misread> {
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
