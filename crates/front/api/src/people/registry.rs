//! Users and tokens, as they are kept: beside the state and not in its versions, so that a configuration which is restored brings no
//! old password back.

use super::password::Kept;
use control::Control;
use model::{Name, Refusal, Role, Scope, Secret, Timestamp, code};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Under which name control keeps it.
const DOCUMENT: &str = "people";

/// Enough for everybody who manages an array.
const USERS_MAX: usize = 1000;
const TOKENS_MAX: usize = 1000;

/// Everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Registry {
    pub users: BTreeMap<Name, User>,
    pub tokens: BTreeMap<Name, Token>,
}

/// Somebody who may log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub role: Role,
    pub created: Timestamp,
    /// None while a link is waited for.
    pub password: Option<Kept>,
    pub password_set: Option<Timestamp>,
    pub second_factor: Option<SecondFactor>,
}

impl User {
    /// One who has no password yet.
    pub(crate) fn new(role: Role, created: Timestamp) -> Self {
        Self { role, created, password: None, password_set: None, second_factor: None }
    }
}

/// What the numbers of an app are made of. Control seals what is called `secret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecondFactor {
    #[serde(with = "control::secret_hex")]
    pub secret: Secret,
}

/// What a program proves itself with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    pub role: Role,
    pub scopes: Vec<Scope>,
    /// None for root.
    pub maker: Option<Name>,
    pub created: Timestamp,
    pub until: Timestamp,
    /// SHA3-256 of the secret, in hexadecimal. The secret has 256 bits, which nobody guesses, so that a slow hash would gain nothing.
    pub hash: String,
}

/// The registry as it is now, and where it is kept.
pub(crate) struct Book {
    control: Arc<Control>,
    current: Mutex<Arc<Registry>>,
}

impl Book {
    /// Everybody as they were kept.
    ///
    /// *Errors*: it cannot be read.
    pub(crate) fn open(control: Arc<Control>) -> Result<Self, Refusal> {
        let kept = control.core.document(DOCUMENT)?;
        let registry = kept.map_or_else(|| Ok(Registry::default()), serde_json::from_value).map_err(|error| {
            let message = format!("the users that are kept cannot be read: {error}");
            Refusal::new(code::STATE_DAMAGED, message, "start the version that wrote them")
        })?;
        Ok(Self { control, current: Mutex::new(Arc::new(registry)) })
    }

    /// Everybody as they are now.
    pub(crate) fn now(&self) -> Arc<Registry> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What `edit` makes of it is so, durably.
    ///
    /// *Errors*: what `edit` says, or it could not be written; it is then as it was.
    pub(crate) fn change<T>(&self, edit: impl FnOnce(&mut Registry) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Registry::clone(&current);
        let done = edit(&mut next)?;
        if next != **current {
            let value = serde_json::to_value(&next).map_err(|error| {
                tracing::error!(%error, "users cannot be said in JSON");
                Refusal::new(code::INTERNAL, "users cannot be said in JSON", "report this with the daemon's log")
            })?;
            self.control.core.keep_document(DOCUMENT, value)?;
            *current = Arc::new(next);
        }
        Ok(done)
    }
}

impl Registry {
    /// The user, who is there.
    pub(crate) fn user(&self, name: &Name) -> Result<&User, Refusal> {
        self.users.get(name).ok_or_else(|| no_user(name))
    }

    /// The user, who is there, to be changed.
    pub(crate) fn user_mut(&mut self, name: &Name) -> Result<&mut User, Refusal> {
        self.users.get_mut(name).ok_or_else(|| no_user(name))
    }

    /// A user more.
    pub(crate) fn add_user(&mut self, name: &Name, user: User) -> Result<(), Refusal> {
        if self.users.contains_key(name) {
            return Err(Refusal::new(
                code::NAME_TAKEN,
                format!("there is a user {name} already"),
                "choose another name",
            ));
        }
        if self.users.len() >= USERS_MAX {
            let message = format!("there are {USERS_MAX} users already");
            return Err(Refusal::new(code::LIMIT_REACHED, message, "remove those who have left"));
        }
        self.users.insert(name.clone(), user);
        Ok(())
    }

    /// The user is gone, and the tokens that it made.
    pub(crate) fn remove_user(&mut self, name: &Name) -> Result<(), Refusal> {
        self.users.remove(name).ok_or_else(|| no_user(name))?;
        self.tokens.retain(|_, token| token.maker.as_ref() != Some(name));
        Ok(())
    }

    /// A token more.
    pub(crate) fn add_token(&mut self, name: &Name, token: Token) -> Result<(), Refusal> {
        if self.tokens.contains_key(name) {
            return Err(Refusal::new(
                code::NAME_TAKEN,
                format!("there is a token {name} already"),
                "choose another name",
            ));
        }
        if self.tokens.len() >= TOKENS_MAX {
            let message = format!("there are {TOKENS_MAX} tokens already");
            return Err(Refusal::new(code::LIMIT_REACHED, message, "revoke those that are not used"));
        }
        self.tokens.insert(name.clone(), token);
        Ok(())
    }

    /// What the token may do now: never more than its maker; nothing once it has ended.
    pub(crate) fn role_of(&self, token: &Token, now: Timestamp) -> Option<Role> {
        let maker = match &token.maker {
            Some(maker) => self.users.get(maker)?.role,
            None => Role::Admin,
        };
        (now < token.until).then_some(token.role.min(maker))
    }
}

fn no_user(name: &Name) -> Refusal {
    Refusal::new(code::USER_UNKNOWN, format!("there is no user {name}"), "see blockyard user list")
}
