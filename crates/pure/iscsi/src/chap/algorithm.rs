//! CHAP hash algorithms, and the computation of a response.

use super::Secret;
use smallvec::SmallVec;
use std::fmt;

/// Digest of a hash algorithm: 16 to 32 bytes.
pub type Digest = SmallVec<[u8; 32]>;

/// Hash algorithms with their CHAP_A numbers, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standards'")]
pub enum Algorithm {
    Md5 = 5,
    Sha1 = 6,
    Sha256 = 7,
    Sha3_256 = 8,
}

impl Algorithm {
    /// All algorithms, the strongest first: the order in which they are offered and chosen.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// Returns the algorithm with this CHAP_A number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|&algorithm| algorithm as u64 == number)
    }

    /// Chooses the strongest offered algorithm that is not weaker than `weakest`, regardless of its position in the
    /// list.
    #[must_use]
    pub fn choose(offered: impl IntoIterator<Item = Self>, weakest: Self) -> Option<Self> {
        // The position in the list is ignored: an initiator must not be able to force a weak algorithm.
        offered.into_iter().filter(|&algorithm| algorithm >= weakest).max()
    }

    /// Returns the digest length in bytes.
    #[must_use]
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3_256 => 32,
        }
    }

    /// Computes the response to a challenge: the digest of identifier, secret and challenge.
    ///
    /// *Source*: RFC 1994 §4.1.
    #[must_use]
    pub fn respond(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Digest {
        let parts = [&[identifier][..], secret.bytes(), challenge];
        match self {
            Self::Md5 => hash::<md5::Md5>(parts),
            Self::Sha1 => hash::<sha1::Sha1>(parts),
            Self::Sha256 => hash::<sha2::Sha256>(parts),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(parts),
        }
    }
}

fn hash<H: sha2::Digest>(parts: [&[u8]; 3]) -> Digest {
    let mut hash = H::new();
    for part in parts {
        hash.update(part);
    }
    Digest::from_slice(&hash.finalize())
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha3_256 => "SHA3-256",
        })
    }
}
