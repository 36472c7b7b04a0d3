//! RFC 7143 as pure state machines, for both roles.

pub mod chap;
mod close;
pub mod initiator;
pub mod login;
mod names;
mod negotiation;
pub mod pdu;
mod receive;
mod redact;
mod session;
pub mod target;
pub mod text;
mod timers;
mod transmit;
mod violation;

#[cfg(test)]
mod tests;

pub use close::CloseReason;
pub use login::{FailedLogin, Grant, LoginQuestion, LoginStatus, NoSession, Unproven};
pub use names::{IscsiName, NAME_BYTES_MAX, NameError};
pub use negotiation::{DigestOffer, Identity, Negotiated, Offer, OfferError, SessionType, is_login_key};
pub use receive::UnderWay;
pub use redact::Redactor;
pub use session::TaskId;
pub use transmit::{Gathered, shorten};
pub use violation::Violation;
