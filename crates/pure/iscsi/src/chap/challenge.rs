//! Challenges that this side issues, and verification of the responses.

use super::{Algorithm, Credential, Digest, Secret};
use subtle::{Choice, ConstantTimeEq};

/// Number of random bytes for a challenge.
pub const CHALLENGE_RANDOM_BYTES: usize = 32;

/// CHAP challenge that the peer must answer.
#[derive(Clone, Debug)]
pub struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    bytes: Digest,
}

impl Challenge {
    /// Creates a challenge of the algorithm's digest length, at least 16 bytes.
    ///
    /// *Shape*: `random` must not be used for anything else, now or later. Its last byte is the identifier, which is
    /// sent in clear like the challenge, and distinguishes responses to different challenges.
    #[must_use]
    pub fn new(algorithm: Algorithm, random: &[u8; CHALLENGE_RANDOM_BYTES]) -> Self {
        let bytes: Digest = random.iter().take(algorithm.digest_bytes()).copied().collect();
        // No digest is longer than the random bytes, so the challenge is never short.
        assert_eq!(bytes.len(), algorithm.digest_bytes(), "a challenge is as long as what answers it");
        // The last byte is not part of the challenge unless the digest has 32 bytes; both are public anyway.
        let [.., identifier] = *random;
        Self { algorithm, identifier, bytes }
    }

    /// Returns the negotiated hash algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns CHAP_I.
    #[must_use]
    pub fn identifier(&self) -> u8 {
        self.identifier
    }

    /// Returns CHAP_C.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True when `challenge` is a reflection of this one, sent to obtain its response from us.
    ///
    /// *Source*: RFC 7143 §9.2.1.
    #[must_use]
    pub fn is_reflected_by(&self, challenge: &[u8]) -> bool {
        // Not in constant time: challenges are sent in clear.
        self.bytes.as_slice() == challenge
    }

    /// Returns the credential of `accepted` that `name` and `response` match.
    ///
    /// Takes the same time for an unknown name as for a wrong response, and checks every credential.
    #[must_use]
    pub fn verify<'a>(&self, accepted: &'a [Credential], name: &str, response: &[u8]) -> Option<&'a Credential> {
        let mut proven = None;
        let mut tried = false;
        for credential in accepted.iter().filter(|credential| credential.name == name) {
            tried = true;
            if bool::from(self.judge(&credential.secret, response)) {
                // No early exit: the time must not depend on which credential matches.
                proven = Some(credential);
            }
        }
        if !tried {
            // Unknown name: one verification is computed and discarded, so that its time does not reveal which names
            // exist.
            let _ = self.judge(&Secret::unknown(), response);
        }
        proven
    }

    fn judge(&self, secret: &Secret, response: &[u8]) -> Choice {
        let expected = self.algorithm.respond(self.identifier, secret, &self.bytes);
        // Constant-time comparison, so that timing reveals no prefix of the response.
        expected.as_slice().ct_eq(response)
    }
}
