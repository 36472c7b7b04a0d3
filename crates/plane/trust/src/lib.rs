//! Trust in TLS servers when this system is the client, and the connections to them.
//!
//! Used by the command line for a remote array, by alerts and by audit forwarding, all with the same options: a pinned
//! key, a file of certificate authorities, or those of the system. Nothing here accepts an unverified server.

mod connection;
pub mod der;
mod trust_anchor;

pub use connection::{Connection, connect, secure};
pub use trust_anchor::{Trust, pin, pin_of};
