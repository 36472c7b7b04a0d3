//! What is asked about people: the bodies of those requests.

use model::{Name, Role, Scope, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU16;
use zeroize::Zeroizing;

/// A password, or a number of a second factor, on its way. It shows itself to nobody and is wiped when dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(extend("format" = "password"))]
pub struct Password(pub(crate) Zeroizing<String>);

impl Password {
    /// This text.
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

/// Log in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    /// The user.
    pub name: Name,
    /// Its password.
    pub password: Password,
    /// What the app shows, where the user has a second factor.
    #[serde(default)]
    pub code: Option<Password>,
}

/// Use a one-time link.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UseLink {
    /// What stands behind `#` in the link.
    pub token: Password,
    /// What a new user is called; absent for one that there is.
    #[serde(default)]
    pub name: Option<Name>,
    /// The password to log in with from now on.
    pub password: Password,
}

/// Make a one-time link.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewLink {
    /// The user whose password it sets; absent for a new user.
    pub user: Option<Name>,
    /// What a new user may do; admin unless told otherwise.
    pub role: Option<Role>,
}

/// Change one's own password.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePassword {
    /// The one that there is.
    pub old_password: Password,
    /// The one from now on.
    pub password: Password,
}

/// Prove that it is oneself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prove {
    /// One's password.
    pub password: Password,
}

/// Confirm a second factor.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// What the app shows.
    pub code: Password,
}

/// Let somebody in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// What to log in as.
    pub name: Name,
    /// What the user may do.
    pub role: Role,
    /// The password; without one a link is needed.
    #[serde(default)]
    pub password: Option<Password>,
}

/// Change somebody.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetUser {
    /// What the user may do.
    pub role: Option<Role>,
    /// Another password.
    pub password: Option<Password>,
    /// True to log in without a second factor from now on.
    pub no_second_factor: bool,
}

/// Let a program in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What to call it.
    pub name: Name,
    /// What it may do; no more than who asks.
    pub role: Role,
    /// `destroy` for what destroys data, and nouns such as `volumes` where it is for these alone.
    #[serde(default)]
    pub scopes: Vec<Scope>,
    /// How long it is good; 90 days unless told otherwise.
    #[serde(default)]
    pub lasts: Option<Span>,
}

/// Forward the audit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetForward {
    /// Where to: `syslog+tls://host:6514`; nowhere when absent.
    pub to: Option<String>,
    /// The key to believe there, whatever its certificate says.
    pub pin: Option<String>,
    /// A file of the node with the authorities to believe, instead of the system's.
    pub ca_file: Option<String>,
}

/// How much of the log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogAsked {
    /// Only so many lines, the latest; all that are kept unless told otherwise.
    pub limit: Option<NonZeroU16>,
}

/// Which records of the audit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditAsked {
    /// Only those with a lower number.
    pub before: Option<u64>,
    /// Only so many; 100 unless told otherwise.
    pub limit: Option<NonZeroU16>,
    /// Only those that have this text, in capitals or not.
    pub search: Option<String>,
}
