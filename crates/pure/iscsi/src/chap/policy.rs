//! Authentication policies: which side must authenticate, and with which credentials.

use super::{Algorithm, Credential};

/// Authentication policy for an initiator.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// No authentication beyond the initiator name; CHAP is not offered.
    #[default]
    None,
    /// CHAP according to the policy.
    Chap(Box<ChapPolicy>),
}

/// CHAP requirements.
#[derive(Clone, Debug)]
pub struct ChapPolicy {
    required: bool,
    accepted: Vec<Credential>,
    mutual: Mutual,
    weakest: Algorithm,
}

/// Mutual CHAP: authentication of this side to the peer.
#[derive(Clone, Debug, Default)]
pub enum Mutual {
    /// Never: a peer that challenges us is refused, because it could not authenticate us.
    #[default]
    Never,
    /// On request of the peer.
    Offered(Credential),
    /// Required: a peer that does not challenge us is refused.
    Required(Credential),
}

/// Invalid policy, as a sentence for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// RFC 7143 §9.2.1.
    #[error("the secrets of the two directions are equal; whoever learns to answer one way could answer the other")]
    EqualSecrets,
    /// No login could succeed.
    #[error("CHAP is wanted, but no name and secret is accepted")]
    NobodyAccepted,
    /// RFC 7143 §6.1, §12.1.3.
    #[error("a CHAP name has 1 to 255 bytes and no control characters")]
    NameMalformed,
}

impl ChapPolicy {
    /// Creates a policy: an initiator authenticates with one of `accepted`, and we with `mutual`.
    ///
    /// With `required`, an initiator without CHAP is refused. Otherwise an initiator may log in without CHAP, but one
    /// that uses it must still authenticate correctly. Algorithms weaker than `weakest` are not used.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn new(
        required: bool,
        accepted: Vec<Credential>,
        mutual: Mutual,
        weakest: Algorithm,
    ) -> Result<Self, PolicyError> {
        // Also where CHAP is optional: an initiator that uses it must be able to succeed.
        if accepted.is_empty() {
            return Err(PolicyError::NobodyAccepted);
        }
        if accepted.iter().chain(mutual.credential()).any(|credential| !credential.has_name()) {
            return Err(PolicyError::NameMalformed);
        }
        // RFC 7143 §9.2.1: with equal secrets, a response of one direction would be valid in the other.
        if let Some(own) = mutual.credential()
            && accepted.iter().any(|credential| credential.secret.equals(&own.secret))
        {
            return Err(PolicyError::EqualSecrets);
        }
        Ok(Self { required, accepted, mutual, weakest })
    }

    /// True when an initiator without CHAP is refused.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Returns the accepted credentials.
    #[must_use]
    pub fn accepted(&self) -> &[Credential] {
        &self.accepted
    }

    /// Returns the mutual CHAP setting.
    #[must_use]
    pub fn mutual(&self) -> &Mutual {
        &self.mutual
    }

    /// Returns the weakest permitted algorithm.
    #[must_use]
    pub fn weakest(&self) -> Algorithm {
        self.weakest
    }
}

impl Auth {
    /// Returns the CHAP policy, if CHAP is offered.
    #[must_use]
    pub fn chap(&self) -> Option<&ChapPolicy> {
        match self {
            Self::None => None,
            Self::Chap(policy) => Some(policy),
        }
    }

    /// True when an initiator without CHAP is refused.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.chap().is_some_and(ChapPolicy::is_required)
    }
}

impl Mutual {
    /// Returns our own credential, if we can authenticate.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        match self {
            Self::Never => None,
            Self::Offered(credential) | Self::Required(credential) => Some(credential),
        }
    }
}
