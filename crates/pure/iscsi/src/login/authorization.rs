//! Requests of a target's login to the driver, which knows hosts and targets.

use super::LoginStatus;
use crate::chap::{Auth, Authentication};
use crate::negotiation::SessionType;
use crate::pdu::{Cid, Isid, Tsih};
use crate::{Identity, IscsiName};

/// Login request: initiator, target and session. Nothing in it has been authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginIdentity {
    /// iSCSI name of the initiator.
    pub initiator_name: IscsiName,
    /// Human-readable alias of the initiator, if declared.
    pub initiator_alias: Option<String>,
    /// Requested session type.
    pub session_type: SessionType,
    /// Target name; always present for a normal session.
    pub target_name: Option<IscsiName>,
    /// ISID: initiator part of the session identifier.
    pub isid: Isid,
    /// TSIH of the session to join; zero for a new one.
    pub tsih: Tsih,
    /// Connection identifier in its session.
    pub cid: Cid,
}

/// Permission to continue a login.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Required authentication.
    pub auth: Auth,
    /// Portal group tag of the portal that the login uses.
    pub portal_group_tag: u16,
    /// Human-readable alias of the target, without control characters; sent after authentication.
    pub target_alias: Option<String>,
}

/// Reason for refusing a session at this portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSession {
    /// The target does not exist, or not for this initiator.
    Refused(LoginStatus),
    /// Temporary redirection to another portal: `address:port`, with an IPv6 address in brackets.
    ///
    /// *Source*: RFC 7143 §6.3.1 and §11.13.5, class 1 with TargetAddress.
    Redirected(String),
}

impl From<LoginStatus> for NoSession {
    fn from(status: LoginStatus) -> Self {
        Self::Refused(status)
    }
}

impl LoginIdentity {
    /// Creates the identities of the session after authentication.
    pub(super) fn into_identity(
        self,
        authentication: Option<Authentication>,
        tsih: Tsih,
        cmd_sn: crate::pdu::CmdSn,
    ) -> Identity {
        Identity {
            initiator_name: self.initiator_name,
            initiator_alias: self.initiator_alias,
            authentication,
            session_type: self.session_type,
            target_name: self.target_name,
            isid: self.isid,
            tsih,
            // The requested handle decides, because a new session has been assigned one by now, too.
            joins: self.tsih != Tsih(0),
            cid: self.cid,
            cmd_sn,
        }
    }
}
