//! The login phase of both roles: how a connection becomes part of a session.
//!
//! The two machines take parsed headers with their text and give back what to send. They keep no clock (the
//! connection gives a login its deadline), draw no random number and allocate nothing by a length that the
//! peer names. Each is split by stage: security, then operational.
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
