//! RFC 4171, as far as a target that registers itself needs it: requests become bytes, and bytes become answers. Nothing here waits,
//! reads a clock or opens a socket.

mod answer;
mod attribute;
mod pdu;
mod request;

pub use answer::{Answer, Answers, Located, Status};
pub use attribute::{Attributes, Tag};
pub use pdu::{Function, HEADER_BYTES, MESSAGE_BYTES_MAX};
pub use request::{Entity, Portal, Request, Target};

/// The port of iSNS servers. *Source*: RFC 4171 §2.9.
pub const PORT: u16 = 3205;

/// The server has broken a rule; nothing that it says can be believed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The version is one. RFC 4171 §5.1.1.
    #[error("it speaks another version of iSNS")]
    Version,
    /// A message is no longer than this side has room for.
    #[error("its answer is too long")]
    TooLong,
    /// The PDUs of a message follow each other, the first one first. RFC 4171 §5.1.4, §5.1.6.
    #[error("the parts of its answer are out of order")]
    Order,
    /// An answer begins with a status. RFC 4171 §5.7.
    #[error("its answer has no status")]
    StatusMissing,
    /// An attribute lies within its message, and fills whole words. RFC 4171 §5.1.
    #[error("an attribute of its answer is cut short")]
    AttributeCut,
}
