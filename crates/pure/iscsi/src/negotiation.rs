//! Negotiation of operational parameters: the table of keys, and the state machine for both roles.
//!
//! Every key is a row in one table ([`key`]); [`Negotiation`] negotiates them in either role.
//!
//! *Source*: RFC 7143 §6.2, §13.

mod key;
mod negotiated;
mod offer;
mod state_machine;

#[cfg(test)]
mod tests;

pub use key::is_login_key;
pub(crate) use key::{Key, Named, Role};
pub use negotiated::{Identity, Negotiated, SessionType};
pub use offer::{DigestOffer, Offer, OfferError};
pub(crate) use state_machine::Negotiation;

/// Answer to a known key with an unacceptable value.
pub(crate) const REJECT: &str = "Reject";
/// Answer to a key that has no meaning in this session.
pub(crate) const IRRELEVANT: &str = "Irrelevant";
/// Answer to an unknown key.
pub(crate) const NOT_UNDERSTOOD: &str = "NotUnderstood";
