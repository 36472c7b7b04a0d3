//! Login status codes of the standard.

use std::fmt;

/// Status of a Login Response: class and detail.
///
/// *Source*: RFC 7143 §11.13.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginStatus {
    /// 0000: the login continues or has succeeded.
    Success,
    /// 0101: target moved temporarily; the text has the new address.
    TargetMovedTemporarily,
    /// 0102: target moved permanently; the text has the new address.
    TargetMovedPermanently,
    /// 0200: initiator error that no other status describes.
    InitiatorError,
    /// 0201: authentication failed.
    AuthenticationFailure,
    /// 0202: the initiator is not authorized for this target.
    AuthorizationFailure,
    /// 0203: target not found.
    NotFound,
    /// 0204: target removed permanently.
    TargetRemoved,
    /// 0205: no common protocol version.
    UnsupportedVersion,
    /// 0206: the session has the maximum number of connections.
    TooManyConnections,
    /// 0207: a required name or parameter is missing.
    MissingParameter,
    /// 0208: the session cannot continue through this portal.
    CannotIncludeInSession,
    /// 0209: session type not supported.
    SessionTypeNotSupported,
    /// 020a: session does not exist.
    SessionDoesNotExist,
    /// 020b: PDU not valid during login.
    InvalidDuringLogin,
    /// 0300: internal error of the target.
    TargetError,
    /// 0301: the target or portal is out of service.
    ServiceUnavailable,
    /// 0302: the target is out of resources.
    OutOfResources,
    /// Class and detail that no standard assigns.
    Other(u8, u8),
}

/// Assigned statuses with class, detail and name.
const CODES: [(LoginStatus, (u8, u8), &str); 18] = [
    (LoginStatus::Success, (0, 0), "success"),
    (LoginStatus::TargetMovedTemporarily, (1, 1), "target moved temporarily"),
    (LoginStatus::TargetMovedPermanently, (1, 2), "target moved permanently"),
    (LoginStatus::InitiatorError, (2, 0), "initiator error"),
    (LoginStatus::AuthenticationFailure, (2, 1), "authentication failure"),
    (LoginStatus::AuthorizationFailure, (2, 2), "authorization failure"),
    (LoginStatus::NotFound, (2, 3), "target not found"),
    (LoginStatus::TargetRemoved, (2, 4), "target removed"),
    (LoginStatus::UnsupportedVersion, (2, 5), "unsupported version"),
    (LoginStatus::TooManyConnections, (2, 6), "too many connections"),
    (LoginStatus::MissingParameter, (2, 7), "missing parameter"),
    (LoginStatus::CannotIncludeInSession, (2, 8), "cannot be included in the session"),
    (LoginStatus::SessionTypeNotSupported, (2, 9), "session type not supported"),
    (LoginStatus::SessionDoesNotExist, (2, 10), "session does not exist"),
    (LoginStatus::InvalidDuringLogin, (2, 11), "invalid during login"),
    (LoginStatus::TargetError, (3, 0), "target error"),
    (LoginStatus::ServiceUnavailable, (3, 1), "service unavailable"),
    (LoginStatus::OutOfResources, (3, 2), "out of resources"),
];

impl LoginStatus {
    /// Returns the status for a class and detail.
    #[must_use]
    pub fn parse(class: u8, detail: u8) -> Self {
        let known = CODES.iter().find(|(_, codes, _)| *codes == (class, detail));
        known.map_or(Self::Other(class, detail), |&(status, _, _)| status)
    }

    /// Returns class and detail of the status.
    #[must_use]
    pub fn codes(self) -> (u8, u8) {
        match self {
            Self::Other(class, detail) => (class, detail),
            // All assigned statuses are in the table, so the fallback is never used.
            known => CODES.iter().find(|(status, _, _)| *status == known).map_or((3, 0), |&(_, codes, _)| codes),
        }
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, detail) = self.codes();
        let name = CODES.iter().find(|(status, _, _)| status == self).map_or("unassigned status", |&(_, _, name)| name);
        write!(f, "{name} ({class:02x}{detail:02x})")
    }
}
