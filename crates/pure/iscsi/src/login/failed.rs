//! Facts about a failed login, for the operator. The initiator receives the status alone.

use super::LoginStatus;
use crate::IscsiName;

/// Failed login, as far as it had progressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedLogin {
    /// Status sent to the initiator; nothing is sent on a connection that never started a login.
    pub status: LoginStatus,
    /// iSCSI name of the initiator, once it has declared a valid one.
    pub initiator_name: Option<IscsiName>,
    /// Requested target; `None` for discovery, or when none was declared.
    pub target_name: Option<IscsiName>,
    /// Key that violated a rule, if one did.
    pub key: Option<&'static str>,
    /// Violated rule, as a clause that states the violation and its section, if a rule of the protocol was violated.
    pub rule: Option<String>,
}

/// Invalid key of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongKey {
    pub(super) status: LoginStatus,
    pub(super) key: &'static str,
    /// Violated rule, as in [`FailedLogin::rule`].
    pub(super) rule: &'static str,
}
