//! Login phase of both roles: from a new connection to full feature phase.
//!
//! The two state machines take parsed headers with their text and return PDUs to send. They have no clock (the
//! connection enforces the login timeout), draw no random numbers, and never allocate by a length that the peer names.
//! Each is split by stage: security, then operational.
//!
//! *Source*: RFC 7143 §6.

mod auth_failure;
mod authorization;
mod declarations;
mod failed;
mod initiator;
mod status;
mod target;
mod text_exchange;

#[cfg(test)]
mod tests;

pub use auth_failure::AuthFailure;
pub use authorization::{Grant, LoginIdentity, NoSession};
pub use failed::FailedLogin;
pub use initiator::{InitiatorAuth, InitiatorConfig, InitiatorLogin, InitiatorStep};
pub use status::LoginStatus;
pub use target::{Fault, TargetConfig, TargetLogin, TargetStep};
