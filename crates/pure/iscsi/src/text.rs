//! Text: the `key=value` pairs of login and text PDUs, their forms and their bounds.
//!
//! *Source*: RFC 7143 §6.1, §6.2.

mod collector;
mod pairs;
mod value;
mod writer;

#[cfg(test)]
mod tests;

pub use collector::TextCollector;
pub use pairs::{PAIRS_MAX, Pairs};
pub use value::{BINARY_BYTES_MAX, base64, binary, boolean, hexadecimal, list, number, range};
pub use writer::{TextPart, TextWriter};

/// The most text that one PDU carries while the login lasts: the default MaxRecvDataSegmentLength.
pub const LOGIN_SEGMENT_BYTES_MAX: usize = 8192;
/// The most text that one exchange carries, and that a whole login does.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
