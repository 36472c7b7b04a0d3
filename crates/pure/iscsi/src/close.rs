//! Reasons for the end of a connection, with the texts for logs and events.

use crate::Violation;
use crate::login::{AuthFailure, LoginStatus};
use std::fmt;

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The initiator logged out.
    LoggedOut,
    /// The peer closed the TCP connection without a logout.
    PeerClosed,
    /// The peer violated the protocol.
    Violation(Violation),
    /// The login was refused.
    LoginRefused(LoginStatus),
    /// The login was refused with [`LoginStatus::AuthenticationFailure`].
    AuthenticationFailed(AuthFailure),
    /// The login timeout expired.
    LoginTimeout,
    /// The peer did not answer a ping within the timeout.
    PeerSilent,
    /// The peer did not read: queued output did not move within the timeout.
    OutputStuck,
    /// The initiator did not log out within the requested time.
    LogoutOverdue,
    /// Connection reinstatement: another connection with the same CID replaced it (RFC 7143 §6.3.4).
    Reinstated,
    /// The connection was removed for recovery; its tasks may be reassigned (RFC 7143 §11.14.5).
    Removed,
    /// TARGET COLD RESET by an initiator (RFC 7143 §11.5.1).
    ColdReset,
    /// The driver ended it.
    Dropped,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoggedOut => f.write_str("the initiator logged out"),
            Self::PeerClosed => f.write_str("the peer closed the connection"),
            Self::Violation(violation) => write!(f, "the peer broke the protocol: {violation}"),
            Self::LoginRefused(status) => write!(f, "the login was refused: {status}"),
            Self::AuthenticationFailed(why) => {
                write!(f, "the login was refused: {}; {why}", LoginStatus::AuthenticationFailure)
            }
            Self::LoginTimeout => f.write_str("the login took too long"),
            Self::PeerSilent => f.write_str("the peer did not answer a ping"),
            Self::OutputStuck => f.write_str("the peer did not read"),
            Self::LogoutOverdue => f.write_str("the initiator was asked to log out and did not"),
            Self::Reinstated => f.write_str("the initiator logged in anew in its place"),
            Self::Removed => f.write_str("the initiator removed it for recovery"),
            Self::ColdReset => f.write_str("the initiator reset the target"),
            Self::Dropped => f.write_str("the connection was dropped"),
        }
    }
}
