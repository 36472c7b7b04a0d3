//! Who may use the array, as others see it.

use crate::{Misread, Name, Refusal, Role, Timestamp, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Somebody who may log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserReport {
    /// What to log in as.
    pub name: Name,
    /// What the user may do.
    pub role: Role,
    /// True when a login also takes a number from an app.
    pub second_factor: bool,
    /// Since when there is this user.
    pub created: Timestamp,
    /// When the password was set; none while there is none and a link is waited for.
    pub password_set: Option<Timestamp>,
    /// How many logins of this user are open.
    pub logins: usize,
}

/// Whoever asks, as it sees itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerReport {
    /// The user, the token's name, or who runs the command line at the socket.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// How it has proven who it is.
    pub how: How,
    /// What a browser sends as `X-CSRF-Token` with everything that changes something.
    pub csrf: Option<String>,
    /// When its login or token ends whatever it does.
    pub until: Option<Timestamp>,
    /// After so many seconds without a request its login ends.
    pub idle_seconds: Option<u64>,
    /// True when a login also takes a number from an app.
    pub second_factor: bool,
}

/// How somebody has proven who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The kernel says whose process is at the socket.
    Socket,
    /// A user's password, and what else was wanted.
    Session,
    /// A token.
    Token,
}

/// A login that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoginReport {
    /// Its name, for ending it. It says nothing about the cookie.
    pub id: String,
    /// Who has logged in.
    pub user: Name,
    /// From where.
    pub address: IpAddr,
    /// What the browser says that it is.
    pub agent: String,
    /// Since when.
    pub begun: Timestamp,
    /// When it last asked for something.
    pub seen: Timestamp,
    /// When it ends whatever happens.
    pub until: Timestamp,
    /// True for the login of whoever asks this.
    pub own: bool,
}

/// What a program proves itself with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenReport {
    /// What it is called.
    pub name: Name,
    /// What it may do: never more than its maker may at that time.
    pub role: Role,
    /// What it is for; empty for everything that its role may, but for what destroys.
    pub scopes: Vec<Scope>,
    /// The user that made it; none for root.
    pub maker: Option<Name>,
    /// Since when there is this token.
    pub created: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// When it was used last since the daemon has started.
    pub used: Option<Timestamp>,
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewTokenReport {
    /// What others see of it.
    #[serde(flatten)]
    pub report: TokenReport,
    /// What to send as `Authorization: Bearer …`. It is shown this once.
    pub secret: String,
}

/// What a token is for: `destroy`, `access`, or a noun of the API such as `volumes`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z-]{1,32}$"))]
pub struct Scope(String);

impl Scope {
    /// The scope of requests that destroy data.
    pub const DESTROY: &str = "destroy";
    /// The scope of requests that decide who may use the array: users, passwords, roles, login links, tokens and logins.
    pub const ACCESS: &str = "access";

    /// True for a scope that permits more, where a noun limits the token to itself.
    #[must_use]
    pub fn permits_more(&self) -> bool {
        [Self::DESTROY, Self::ACCESS].contains(&self.as_str())
    }

    /// The word itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Scope {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        if (1..=32).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_lowercase() || c == b'-') {
            return Ok(Self(text.to_owned()));
        }
        let message = format!("{} is not a scope", quoted(text));
        Err(Refusal::new(code::WORD_UNKNOWN, message, "write destroy, access, or a noun of the API such as volumes"))
    }
}

impl TryFrom<String> for Scope {
    type Error = Misread;
    fn try_from(text: String) -> Result<Self, Misread> {
        Ok(text.parse()?)
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.0
    }
}

/// What an app needs for the numbers of a second factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecondFactorReport {
    /// For people who type it.
    pub secret: String,
    /// For a picture that an app reads.
    pub link: String,
}
