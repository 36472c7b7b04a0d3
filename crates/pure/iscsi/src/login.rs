//! The login phase of both roles: how a connection becomes part of a session.
//!
//! *Source*: RFC 7143 §6.

mod status;

pub use status::LoginStatus;
