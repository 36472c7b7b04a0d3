//! iSCSI protocol (RFC 7143) as pure state machines, for target and initiator.
//!
//! Drivers pass in received bytes, answers of the SCSI layer and the time (`handle_*`), and take out events (`poll_*`)
//! and bytes to send (`gather`). Nothing here does I/O, reads a clock or draws random numbers, so a test can drive both
//! roles in one thread and a seed reproduces a run.

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
pub use login::{AuthFailure, FailedLogin, Grant, LoginIdentity, LoginStatus, NoSession};
pub use names::{IscsiName, NAME_BYTES_MAX, NameError};
pub use negotiation::{DigestOffer, Identity, Negotiated, Offer, OfferError, SessionType, is_login_key};
pub use receive::PduProgress;
pub use redact::Redactor;
pub use session::TaskId;
pub use transmit::{SendSlices, shorten};
pub use violation::Violation;
