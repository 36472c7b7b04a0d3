//! Login phase of both roles: from a new connection to full feature phase.
//!
//! The two state machines take parsed headers with their text and return PDUs to send. They have no clock (the
//! connection enforces the login timeout), draw no random numbers, and never allocate by a length that the peer names.
//! Each is split by stage: security, then operational.
//!
//! *Source*: RFC 7143 §6.

mod declarations;
mod dialogue;
mod failed;
mod initiator;
mod question;
mod status;
mod target;
mod unproven;

#[cfg(test)]
mod tests;

pub use failed::FailedLogin;
pub use initiator::{InitiatorAuth, InitiatorConfig, InitiatorLogin, InitiatorStep};
pub use question::{Grant, LoginQuestion, NoSession};
pub use status::LoginStatus;
pub use target::{Fault, TargetConfig, TargetLogin, TargetStep};
pub use unproven::Unproven;
