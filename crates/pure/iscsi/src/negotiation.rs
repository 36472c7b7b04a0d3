//! Operational parameters: which keys there are, who may send them when, and what comes of an offer.
//!
//! Every key is a row in one table ([`key`]); [`Parley`] plays either role over it.
//!
//! *Source*: RFC 7143 §6.2, §13.

mod key;
mod negotiated;
mod offer;
mod parley;

#[cfg(test)]
mod tests;

pub use key::is_login_key;
pub(crate) use key::{Key, Named, Role};
pub use negotiated::{Identity, Negotiated, SessionType};
pub use offer::{DigestOffer, Offer, OfferError};
pub(crate) use parley::Parley;

/// The answer to a key that is known and cannot be had as offered.
pub(crate) const REJECT: &str = "Reject";
/// The answer to a key that has no meaning here.
pub(crate) const IRRELEVANT: &str = "Irrelevant";
/// The answer to a key that is not known.
pub(crate) const NOT_UNDERSTOOD: &str = "NotUnderstood";
