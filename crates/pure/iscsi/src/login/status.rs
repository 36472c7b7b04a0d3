//! How a login ends, in the words of the standard.

use std::fmt;

/// The status of a Login Response.
///
/// *Source*: RFC 7143 §11.13.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginStatus {
    /// 0000: the step is taken.
    Success,
    /// 0101: the target has moved for a while; the text says where to.
    TargetMovedTemporarily,
    /// 0102: the target has moved for good; the text says where to.
    TargetMovedPermanently,
    /// 0200: something about the initiator is wrong that no other status names.
    InitiatorError,
    /// 0201: the initiator is not who it says, or does not prove it.
    AuthenticationFailure,
    /// 0202: the initiator may not use this target.
    AuthorizationFailure,
    /// 0203: there is no such target here.
    NotFound,
    /// 0204: the target is gone for good.
    TargetRemoved,
    /// 0205: no version is common.
    UnsupportedVersion,
    /// 0206: the session has as many connections as it may.
    TooManyConnections,
    /// 0207: a name or another parameter that is due did not come.
    MissingParameter,
    /// 0208: the session does not go on through this portal.
    CannotIncludeInSession,
    /// 0209: sessions of this type are not held here.
    SessionTypeNotSupported,
    /// 020a: there is no such session.
    SessionDoesNotExist,
    /// 020b: a message came that is not valid in the login.
    InvalidDuringLogin,
    /// 0300: something in the target failed.
    TargetError,
    /// 0301: the target or its portal is not in service.
    ServiceUnavailable,
    /// 0302: the target has no room.
    OutOfResources,
    /// A class and a detail that no standard assigns.
    Other(u8, u8),
}

/// The assigned statuses with their classes and details.
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
    /// The status of a class and a detail.
    #[must_use]
    pub fn parse(class: u8, detail: u8) -> Self {
        let known = CODES.iter().find(|(_, codes, _)| *codes == (class, detail));
        known.map_or(Self::Other(class, detail), |&(status, _, _)| status)
    }

    /// The class and the detail of the status.
    #[must_use]
    pub fn codes(self) -> (u8, u8) {
        match self {
            Self::Other(class, detail) => (class, detail),
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
