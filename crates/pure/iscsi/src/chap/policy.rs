//! Who must prove what to whom.

use super::{Algorithm, Credential};

/// How an initiator gets in.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// Anybody who has the right name; CHAP is not spoken.
    #[default]
    None,
    /// With CHAP, as the policy says.
    Chap(Box<ChapPolicy>),
}

/// What CHAP has to prove.
#[derive(Clone, Debug)]
pub struct ChapPolicy {
    required: bool,
    accepted: Vec<Credential>,
    mutual: Mutual,
    weakest: Algorithm,
}

/// Whether we prove ourselves to the peer, too.
#[derive(Clone, Debug, Default)]
pub enum Mutual {
    /// Never: a peer that asks for it is refused, for it would not trust us.
    #[default]
    Never,
    /// To a peer that asks for it.
    Offered(Credential),
    /// Always: a peer that does not ask for it is refused.
    Required(Credential),
}

/// Why a policy cannot be, as a sentence for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// RFC 7143 §9.2.1.
    #[error("the secrets of the two directions are equal; whoever learns to answer one way could answer the other")]
    EqualSecrets,
    /// Nobody could log in.
    #[error("CHAP is wanted, but no name and secret is accepted")]
    NobodyAccepted,
    /// RFC 7143 §6.1, §12.1.3.
    #[error("a CHAP name has 1 to 255 bytes and no control characters")]
    NameMalformed,
}

impl ChapPolicy {
    /// A policy under which an initiator proves one of `accepted`, and we prove `mutual`.
    ///
    /// With `required`, nobody gets in without a proof. Without it, an initiator that offers to go without
    /// may; one that speaks CHAP must still prove what it says. Algorithms below `weakest` are not spoken.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn new(
        required: bool,
        accepted: Vec<Credential>,
        mutual: Mutual,
        weakest: Algorithm,
    ) -> Result<Self, PolicyError> {
        if accepted.is_empty() {
            return Err(PolicyError::NobodyAccepted);
        }
        if accepted.iter().chain(mutual.credential()).any(|credential| !credential.has_name()) {
            return Err(PolicyError::NameMalformed);
        }
        if let Some(own) = mutual.credential()
            && accepted.iter().any(|credential| credential.secret.equals(&own.secret))
        {
            return Err(PolicyError::EqualSecrets);
        }
        Ok(Self { required, accepted, mutual, weakest })
    }

    /// True when nobody gets in without a proof.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Whom a proof may name.
    #[must_use]
    pub fn accepted(&self) -> &[Credential] {
        &self.accepted
    }

    /// What we prove.
    #[must_use]
    pub fn mutual(&self) -> &Mutual {
        &self.mutual
    }

    /// The weakest algorithm that is spoken.
    #[must_use]
    pub fn weakest(&self) -> Algorithm {
        self.weakest
    }
}

impl Auth {
    /// The policy, where CHAP may be spoken.
    #[must_use]
    pub fn chap(&self) -> Option<&ChapPolicy> {
        match self {
            Self::None => None,
            Self::Chap(policy) => Some(policy),
        }
    }

    /// True when nobody gets in without a proof.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.chap().is_some_and(ChapPolicy::is_required)
    }
}

impl Mutual {
    /// What we prove ourselves with, when we do.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        match self {
            Self::Never => None,
            Self::Offered(credential) | Self::Required(credential) => Some(credential),
        }
    }
}
