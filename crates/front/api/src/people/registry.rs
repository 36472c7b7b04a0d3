//! Registry of users and tokens as stored. It lies beside the versions of the state, so that restoring an older
//! configuration does not bring old passwords back.

use super::password::PasswordHash;
use control::Control;
use model::{Name, Refusal, Role, Scope, Secret, Timestamp, code};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Name of the document in the state.
const DOCUMENT: &str = "people";

/// Limits on users and tokens.
const USERS_MAX: usize = 1000;
const TOKENS_MAX: usize = 1000;

/// Users and tokens of the array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Registry {
    pub users: BTreeMap<Name, User>,
    pub tokens: BTreeMap<Name, Token>,
}

/// A user who may log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub role: Role,
    pub created: Timestamp,
    /// Hash of the password; `None` while the user waits for a link.
    pub password: Option<PasswordHash>,
    pub password_set: Option<Timestamp>,
    pub second_factor: Option<SecondFactor>,
}

impl User {
    /// Creates a user without a password.
    pub(crate) fn new(role: Role, created: Timestamp) -> Self {
        Self { role, created, password: None, password_set: None, second_factor: None }
    }
}

/// Secret of the second factor. The control plane encrypts fields named `secret` at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecondFactor {
    #[serde(with = "control::secret_hex")]
    pub secret: Secret,
}

/// API token of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    pub role: Role,
    pub scopes: Vec<Scope>,
    /// User who created it; `None` for root.
    pub maker: Option<Name>,
    pub created: Timestamp,
    pub until: Timestamp,
    /// SHA3-256 of the token in hexadecimal. It has 256 random bits, so a slow hash would gain nothing.
    pub hash: String,
}

/// Present registry, and its place in the state.
pub(crate) struct UserStore {
    control: Arc<Control>,
    current: Mutex<Arc<Registry>>,
}

impl UserStore {
    /// Loads the registry.
    ///
    /// *Errors*: it cannot be read.
    pub(crate) fn open(control: Arc<Control>) -> Result<Self, Refusal> {
        let kept = control.core.document(DOCUMENT)?;
        let registry = kept.map_or_else(|| Ok(Registry::default()), serde_json::from_value).map_err(|error| {
            let message = format!("the stored users cannot be read: {error}");
            Refusal::new(code::STATE_DAMAGED, message, "start the version that wrote them")
        })?;
        Ok(Self { control, current: Mutex::new(Arc::new(registry)) })
    }

    /// Present registry.
    pub(crate) fn now(&self) -> Arc<Registry> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the registry by `edit`, durably.
    ///
    /// *Errors*: those of `edit`, or it could not be stored; nothing is changed then.
    pub(crate) fn change<T>(&self, edit: impl FnOnce(&mut Registry) -> Result<T, Refusal>) -> Result<T, Refusal> {
        // Held while the document is written, so that edits are applied one after the other.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Edited as a copy: a failed edit leaves no trace.
        let mut next = Registry::clone(&current);
        let done = edit(&mut next)?;
        // Nothing is written if nothing has changed.
        if next != **current {
            let value = serde_json::to_value(&next).map_err(|error| {
                tracing::error!(%error, "the users cannot be encoded as JSON");
                Refusal::new(
                    code::INTERNAL,
                    "the users cannot be encoded as JSON",
                    "report this as a bug, with the daemon log",
                )
            })?;
            // Stored before it takes effect: what was answered must survive a restart.
            self.control.core.keep_document(DOCUMENT, value)?;
            *current = Arc::new(next);
        }
        Ok(done)
    }
}

impl Registry {
    /// Returns the user.
    pub(crate) fn user(&self, name: &Name) -> Result<&User, Refusal> {
        self.users.get(name).ok_or_else(|| no_user(name))
    }

    /// Returns the user for a change.
    pub(crate) fn user_mut(&mut self, name: &Name) -> Result<&mut User, Refusal> {
        self.users.get_mut(name).ok_or_else(|| no_user(name))
    }

    /// Adds a user.
    pub(crate) fn add_user(&mut self, name: &Name, user: User) -> Result<(), Refusal> {
        if self.users.contains_key(name) {
            return Err(Refusal::new(code::NAME_TAKEN, format!("user {name} already exists"), "choose another name"));
        }
        if self.users.len() >= USERS_MAX {
            let message = format!("the limit of {USERS_MAX} users is reached");
            return Err(Refusal::new(code::LIMIT_REACHED, message, "remove unused users"));
        }
        self.users.insert(name.clone(), user);
        Ok(())
    }

    /// Removes a user and the tokens that it created.
    pub(crate) fn remove_user(&mut self, name: &Name) -> Result<(), Refusal> {
        self.users.remove(name).ok_or_else(|| no_user(name))?;
        // Tokens must not outlive the user who created them.
        self.tokens.retain(|_, token| token.maker.as_ref() != Some(name));
        Ok(())
    }

    /// Adds a token.
    pub(crate) fn add_token(&mut self, name: &Name, token: Token) -> Result<(), Refusal> {
        if self.tokens.contains_key(name) {
            return Err(Refusal::new(code::NAME_TAKEN, format!("token {name} already exists"), "choose another name"));
        }
        if self.tokens.len() >= TOKENS_MAX {
            let message = format!("the limit of {TOKENS_MAX} tokens is reached");
            return Err(Refusal::new(code::LIMIT_REACHED, message, "revoke unused tokens"));
        }
        self.tokens.insert(name.clone(), token);
        Ok(())
    }

    /// Present role of the token: never higher than that of its creator; `None` once it has expired.
    pub(crate) fn role_of(&self, token: &Token, now: Timestamp) -> Option<Role> {
        let maker = match &token.maker {
            // A token loses its rights with its creator.
            Some(maker) => self.users.get(maker)?.role,
            None => Role::Admin,
        };
        // The lower of both, so that a token follows its creator down.
        (now < token.until).then_some(token.role.min(maker))
    }
}

fn no_user(name: &Name) -> Refusal {
    Refusal::new(code::USER_UNKNOWN, format!("user {name} does not exist"), "see blockyard user list")
}
