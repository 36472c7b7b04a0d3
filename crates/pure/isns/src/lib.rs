//! iSNS client codec (RFC 4171) for a target that registers itself: encodes requests and parses answers.
//!
//! The control plane owns the connection. Nothing here may wait, read a clock or open a socket.

mod attribute;
mod pdu;
mod request;
mod response;

pub use attribute::{Attributes, Tag};
pub use pdu::{Function, HEADER_BYTES, MESSAGE_BYTES_MAX};
pub use request::{Entity, Portal, Request, Target};
pub use response::{ReachableTarget, Response, ResponseParser, Status};

/// TCP port of iSNS servers. *Source*: RFC 4171 §2.9.
pub const PORT: u16 = 3205;

/// Protocol violation by the server; nothing it sends can be trusted after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Version other than 1. RFC 4171 §5.1.1.
    #[error("it speaks another version of iSNS")]
    Version,
    /// Message longer than this side accepts.
    #[error("its answer is too long")]
    TooLong,
    /// PDUs of a message out of sequence. RFC 4171 §5.1.4, §5.1.6.
    #[error("the parts of its answer are out of order")]
    Order,
    /// Answer without a status. RFC 4171 §5.7.
    #[error("its answer has no status")]
    StatusMissing,
    /// Attribute that exceeds its message or does not fill whole words. RFC 4171 §5.1.
    #[error("an attribute of its answer is cut short")]
    AttributeCut,
}
