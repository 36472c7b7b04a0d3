//! Whom we believe when we are the one who connects, and the connection.
//!
//! The command line that asks an array elsewhere, alerts that are sent and the audit that is forwarded all believe in the same way: a
//! pinned key, a file of authorities, or the system's.

pub mod der;
mod line;
mod whom;

pub use line::{Line, connect, secure};
pub use whom::{Trust, pin, pin_of};
