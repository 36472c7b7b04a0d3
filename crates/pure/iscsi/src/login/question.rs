//! What a target's login asks of those who know hosts and targets.

use super::LoginStatus;
use crate::chap::{Auth, Authentication};
use crate::negotiation::SessionType;
use crate::pdu::{Cid, Isid, Tsih};
use crate::{Identity, IscsiName};

/// Who asks to log in to what. Nothing of it is proven yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginQuestion {
    /// The initiator's iSCSI name.
    pub initiator_name: IscsiName,
    /// What the initiator calls itself for people, when it says.
    pub initiator_alias: Option<String>,
    /// What the session shall be for.
    pub session_type: SessionType,
    /// The target; always there for a normal session.
    pub target_name: Option<IscsiName>,
    /// The initiator's part of the session's identifier.
    pub isid: Isid,
    /// The session to join, or zero for a new one.
    pub tsih: Tsih,
    /// The connection's number in its session.
    pub cid: Cid,
}

/// How a login that is not refused at once goes on.
#[derive(Clone, Debug)]
pub struct Grant {
    /// What has to be proven first.
    pub auth: Auth,
    /// The portal group of the portal over which the login came.
    pub portal_group_tag: u16,
    /// What the target is called for people, without control characters; told after the authentication.
    pub target_alias: Option<String>,
}

/// Why there is no session here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSession {
    /// What is asked for is not there, or not for this initiator.
    Refused(LoginStatus),
    /// The target is there for it at another portal, this time: `address:port`, an IPv6 address in brackets.
    ///
    /// *Source*: RFC 7143 §6.3.1 and §11.13.5, class 1 with TargetAddress.
    Elsewhere(String),
}

impl From<LoginStatus> for NoSession {
    fn from(status: LoginStatus) -> Self {
        Self::Refused(status)
    }
}

impl LoginQuestion {
    /// Who logged in, once it is proven and has a session.
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
            joins: self.tsih != Tsih(0),
            cid: self.cid,
            cmd_sn,
        }
    }
}
