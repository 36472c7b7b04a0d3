//! What is known of a login that failed, for the operator. The initiator itself is told the status alone.

use super::LoginStatus;
use crate::IscsiName;

/// A login that failed, as far as it had come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedLogin {
    /// What the initiator was told; one that never began to log in is told nothing.
    pub status: LoginStatus,
    /// The initiator's iSCSI name, once it has said one that is one.
    pub initiator_name: Option<IscsiName>,
    /// The target that it asked for; none to discover, or where it did not say.
    pub target_name: Option<IscsiName>,
    /// The key that broke a rule, where one did.
    pub key: Option<&'static str>,
    /// The rule that was broken, as a sentence without its end that says what is so instead, and where it stands; where
    /// a rule of the protocol was.
    pub rule: Option<String>,
}

/// A key that does not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongKey {
    pub(super) status: LoginStatus,
    pub(super) key: &'static str,
    /// The rule, as in [`FailedLogin::rule`].
    pub(super) rule: &'static str,
}
