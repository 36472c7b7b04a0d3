//! A challenge that we pose, and the judgement of what comes back.

use super::{Algorithm, Credential, Digest, Secret};
use subtle::{Choice, ConstantTimeEq};

/// How many unpredictable bytes a challenge is made from.
pub const CHALLENGE_RANDOM_BYTES: usize = 32;

/// What the peer shall prove its secret with.
#[derive(Clone, Debug)]
pub struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    bytes: Digest,
}

impl Challenge {
    /// A challenge as long as the algorithm's digest: at least 16 bytes.
    ///
    /// *Shape*: `random` is used for nothing else, now or later. The identifier is its last byte: it is sent
    /// in clear like the challenge, and tells an answer to this challenge from one to another.
    #[must_use]
    pub fn new(algorithm: Algorithm, random: &[u8; CHALLENGE_RANDOM_BYTES]) -> Self {
        let bytes: Digest = random.iter().take(algorithm.digest_bytes()).copied().collect();
        assert_eq!(bytes.len(), algorithm.digest_bytes(), "a challenge is as long as what answers it");
        let [.., identifier] = *random;
        Self { algorithm, identifier, bytes }
    }

    /// The hash function that is agreed on.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// CHAP_I.
    #[must_use]
    pub fn identifier(&self) -> u8 {
        self.identifier
    }

    /// CHAP_C.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True when `challenge` is this one, sent back in the hope that we solve it.
    ///
    /// *Source*: RFC 7143 §9.2.1.
    #[must_use]
    pub fn is_reflected_by(&self, challenge: &[u8]) -> bool {
        self.bytes.as_slice() == challenge
    }

    /// The credential of `accepted` that `name` and `response` prove.
    ///
    /// Takes as long for an unknown name as for a wrong response, and looks at every credential.
    #[must_use]
    pub fn verify<'a>(&self, accepted: &'a [Credential], name: &str, response: &[u8]) -> Option<&'a Credential> {
        let mut proven = None;
        let mut tried = false;
        for credential in accepted.iter().filter(|credential| credential.name == name) {
            tried = true;
            if bool::from(self.judge(&credential.secret, response)) {
                proven = Some(credential);
            }
        }
        if !tried {
            // Nobody's secret: the time of one judgement passes, and its result is thrown away.
            let _ = self.judge(&Secret::unknown(), response);
        }
        proven
    }

    fn judge(&self, secret: &Secret, response: &[u8]) -> Choice {
        let expected = self.algorithm.respond(self.identifier, secret, &self.bytes);
        expected.as_slice().ct_eq(response)
    }
}
