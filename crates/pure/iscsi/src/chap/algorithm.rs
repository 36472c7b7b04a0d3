//! The hash functions of CHAP, and the response that they make.

use super::Secret;
use smallvec::SmallVec;
use std::fmt;

/// What a hash function gives: 16 to 32 bytes.
pub type Digest = SmallVec<[u8; 32]>;

/// The hash functions, the weakest first.
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
    /// All, the strongest first: the order in which they are offered and chosen.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// The algorithm of a number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|&algorithm| algorithm as u64 == number)
    }

    /// The strongest of the offered ones that is at least `weakest`, wherever it stands in the list.
    #[must_use]
    pub fn choose(offered: impl IntoIterator<Item = Self>, weakest: Self) -> Option<Self> {
        offered.into_iter().filter(|&algorithm| algorithm >= weakest).max()
    }

    /// How many bytes its digests have.
    #[must_use]
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3_256 => 32,
        }
    }

    /// What proves that `secret` is known: the digest of the identifier, the secret and the challenge.
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
