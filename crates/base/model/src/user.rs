//! Users, logins and tokens, as reported by the API.

use crate::{Name, ParseRefusal, Refusal, Role, Timestamp, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// User account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserReport {
    /// Login name.
    pub name: Name,
    /// Role.
    pub role: Role,
    /// True if logins require a one-time code from an authenticator app.
    pub second_factor: bool,
    /// Time of creation.
    pub created: Timestamp,
    /// Time when the password was set; absent until the user has set one with the login link.
    pub password_set: Option<Timestamp>,
    /// Number of active logins.
    pub logins: usize,
}

/// Identity and permissions of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerReport {
    /// Name of the user or the token, or the account that runs the command line at the socket.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Method of authentication.
    pub auth_method: AuthMethod,
    /// Value that a browser must send as `X-CSRF-Token` with every modifying request.
    pub csrf: Option<String>,
    /// Expiration of the login or the token, regardless of activity.
    pub until: Option<Timestamp>,
    /// Idle timeout of the login in seconds.
    pub idle_seconds: Option<u64>,
    /// True if logins require a one-time code from an authenticator app.
    pub second_factor: bool,
}

/// Method of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// Credentials of the process at the socket, from the kernel.
    Socket,
    /// Password of a user, with a second factor if required.
    Session,
    /// API token.
    Token,
}

/// Active login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoginReport {
    /// Identifier for ending the login. Not derived from the cookie.
    pub id: String,
    /// Name of the user.
    pub user: Name,
    /// Address of the client.
    pub address: IpAddr,
    /// User agent of the browser.
    pub agent: String,
    /// Time of the login.
    pub started: Timestamp,
    /// Time of the latest request.
    pub last_seen: Timestamp,
    /// Expiration, regardless of activity.
    pub until: Timestamp,
    /// True for the login of the caller.
    pub own: bool,
}

/// API token of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenReport {
    /// Name of the token.
    pub name: Name,
    /// Role; limited at any time by the role of its creator.
    pub role: Role,
    /// Scopes of the token; empty for everything that its role permits, except for destructive requests.
    pub scopes: Vec<Scope>,
    /// User who created it; absent for root.
    pub created_by: Option<Name>,
    /// Time of creation.
    pub created: Timestamp,
    /// Expiration.
    pub until: Timestamp,
    /// Time of the latest use since the start of the daemon.
    pub used: Option<Timestamp>,
}

/// Newly created token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewTokenReport {
    /// Public part of the token.
    #[serde(flatten)]
    pub report: TokenReport,
    /// Value to send as `Authorization: Bearer …`. Shown only once.
    pub secret: String,
}

/// Scope of a token: `destroy`, `access`, or a noun of the API such as `volumes`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z-]{1,32}$"))]
pub struct Scope(String);

impl Scope {
    /// Scope of requests that destroy data.
    pub const DESTROY: &str = "destroy";
    /// Scope of access management: users, passwords, roles, login links, tokens and logins.
    pub const ACCESS: &str = "access";

    /// Returns true for a scope that extends the permissions; a noun limits the token to that kind of object.
    #[must_use]
    pub fn permits_more(&self) -> bool {
        [Self::DESTROY, Self::ACCESS].contains(&self.as_str())
    }

    /// Returns the scope as a word.
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
        // Syntax only: the nouns belong to the API, which checks that the scope exists.
        if (1..=32).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_lowercase() || c == b'-') {
            return Ok(Self(text.to_owned()));
        }
        let message = format!("{} is not a scope", quoted(text));
        Err(Refusal::new(code::WORD_UNKNOWN, message, "write destroy, access, or a noun of the API such as volumes"))
    }
}

impl TryFrom<String> for Scope {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.0
    }
}

/// Secret of a second factor, for an authenticator app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecondFactorReport {
    /// Secret as text, for manual entry.
    pub secret: String,
    /// Link for a QR code.
    pub link: String,
}
