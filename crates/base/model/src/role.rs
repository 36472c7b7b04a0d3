//! Roles of users and tokens.

use crate::{Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Role of a user or a token. Each role includes the permissions of the preceding ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    // The order of declaration is the order of privilege: permission checks compare roles with `Ord`.
    /// Read access to everything except secrets.
    Viewer,
    /// Management of disks, volumes, snapshots, hosts and presentations.
    Operator,
    /// Full access, including the destruction of pools and the management of users.
    Admin,
}

impl Role {
    /// All roles, least privileged first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Role {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|role| role.word() == text).ok_or_else(|| {
            let message = format!("unknown role {}", quoted(text));
            Refusal::new(code::WORD_UNKNOWN, message, "write viewer, operator or admin")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_said_as_it_is_read_and_each_may_what_those_before_it_may() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse::<Role>().expect("a role"), role);
            assert_eq!(serde_json::to_value(role).expect("json"), role.to_string());
        }
        assert!(Role::ALL.is_sorted());
        assert!("root".parse::<Role>().is_err());
    }
}
