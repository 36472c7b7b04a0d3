//! Request bodies for users, logins, tokens, links and audit queries.

use model::{Name, Role, Scope, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU16;
use zeroize::Zeroizing;

/// Password or one-time code. Never shown, and wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(extend("format" = "password"))]
pub struct Password(pub(crate) Zeroizing<String>);

impl Password {
    /// Creates it from text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<Password> for String {
    fn from(password: Password) -> Self {
        password.0.as_str().to_owned()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// Log in with a name and a password.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    /// Name of the user.
    pub name: Name,
    /// Password of the user.
    pub password: Password,
    /// Code of the authenticator app; required if the user has a second factor.
    #[serde(default)]
    pub code: Option<Password>,
}

/// Set a password with a one-time link.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UseLink {
    /// Secret after `#` in the link.
    pub token: Password,
    /// Name of the new user; absent for an existing user.
    #[serde(default)]
    pub name: Option<Name>,
    /// New password.
    pub password: Password,
}

/// Create a one-time link.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewLink {
    /// User whose password the link sets; absent for a new user.
    pub user: Option<Name>,
    /// Role of a new user [default: admin].
    pub role: Option<Role>,
}

/// Change one's own password.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePassword {
    /// Current password.
    pub old_password: Password,
    /// New password.
    pub password: Password,
}

/// Confirm an operation with one's own password.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prove {
    /// Password of the logged-in user.
    pub password: Password,
}

/// Confirm a second factor.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// Code that the authenticator app shows.
    pub code: Password,
}

/// Add a user.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// Login name.
    pub name: Name,
    /// Role of the user.
    pub role: Role,
    /// Password; without one the user needs a one-time link.
    #[serde(default)]
    pub password: Option<Password>,
}

/// Change a user.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetUser {
    /// New role.
    pub role: Option<Role>,
    /// New password.
    pub password: Option<Password>,
    /// True to remove the second factor.
    pub no_second_factor: bool,
}

/// Create an API token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Name of the token.
    pub name: Name,
    /// Role of the token; at most that of its creator.
    pub role: Role,
    /// Scopes: `destroy` permits destroying data, `access` permits changing access to the array, and nouns such as
    /// `volumes` limit the token to these.
    #[serde(default)]
    pub scopes: Vec<Scope>,
    /// Validity of the token [default: 90d].
    #[serde(default)]
    #[serde(alias = "lasts")]
    pub valid_for: Option<Span>,
}

/// Forward the audit log to a syslog server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetForward {
    /// Destination: `syslog+tls://host:6514`; absent to stop forwarding.
    pub to: Option<String>,
    /// Pinned public key of the server; its certificate is not verified otherwise.
    pub pin: Option<String>,
    /// File on the node with trusted CA certificates, instead of those of the system.
    pub ca_file: Option<String>,
}

/// Selection of log lines.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogQuery {
    /// Number of lines, the latest; all kept lines if absent.
    pub limit: Option<NonZeroU16>,
}

/// Selection of audit records.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditQuery {
    /// Only records with a lower number.
    pub before: Option<u64>,
    /// Number of records [default: 100].
    pub limit: Option<NonZeroU16>,
    /// Only records that contain this text; case is ignored.
    pub search: Option<String>,
}
