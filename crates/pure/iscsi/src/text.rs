//! Text format: `key=value` pairs of login and text PDUs, forms of values, and limits.
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

/// Maximum text in one PDU during the login phase in bytes: the default MaxRecvDataSegmentLength.
pub const LOGIN_SEGMENT_BYTES_MAX: usize = 8192;
/// Maximum text of one exchange, and of a whole login, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
