//! API tokens of programs.

use super::registry::Token;
use super::{Users, digest};
use crate::request::NewToken;
use control::now;
use model::{Name, NewTokenReport, Refusal, Role, Scope, Timestamp, TokenReport, code};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Prefix of every token, by which scanners find published ones.
const PREFIX: &str = "blockyard_";

/// Validity of a token in days: default and maximum.
const LASTS_DAYS: u64 = 90;
const LASTS_DAYS_MAX: u64 = 366;
const DAY: u64 = 24 * 60 * 60;

/// Last use of tokens. Kept in memory only.
pub(crate) type Used = Mutex<BTreeMap<Name, Timestamp>>;

/// An authenticated token.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticatedToken {
    pub name: Name,
    pub role: Role,
    pub scopes: Vec<Scope>,
    pub until: Timestamp,
}

impl Users {
    /// Creates a token for the caller. No token has more rights than its creator.
    ///
    /// *Errors*: the name is taken, the validity or the role is too high, or a scope is unknown.
    pub(crate) fn make_token(
        &self,
        request: NewToken,
        maker: Option<&Name>,
        most: Role,
        nouns: &[&str],
    ) -> Result<NewTokenReport, Refusal> {
        let NewToken { name, role, scopes, valid_for: lasts } = request;
        if role > most {
            let message = format!("a token with role {role} would exceed the role of its creator, {most}");
            return Err(Refusal::new(code::ROLE_TOO_HIGH, message, format!("use {most} or a lower role")));
        }
        // A scope is `destroy`, `access` or a noun of the API.
        if let Some(scope) = scopes.iter().find(|scope| !scope.permits_more() && !nouns.contains(&scope.as_str())) {
            let hint = format!("write {}, {}, or one of {}", Scope::DESTROY, Scope::ACCESS, nouns.join(", "));
            return Err(Refusal::new(code::WORD_UNKNOWN, format!("\"{scope}\" is not a scope"), hint));
        }
        let seconds = lasts.map_or(LASTS_DAYS * DAY, |lasts| lasts.duration().as_secs());
        if !(60..=LASTS_DAYS_MAX * DAY).contains(&seconds) {
            let hint = format!("give 1min to {LASTS_DAYS_MAX} days, such as 30d");
            return Err(Refusal::new(code::TIME_INVALID, "the lifetime of the token is out of range", hint));
        }
        // 256 random bits.
        let secret = format!("{PREFIX}{}", control::to_hex(&control::random::<32>()?));
        let token = Token {
            role,
            scopes,
            maker: maker.cloned(),
            created: now(),
            until: now().plus(seconds),
            hash: control::to_hex(&digest(&secret)),
        };
        let report = self.token_report(&name, &token);
        self.store.change(|registry| registry.add_token(&name, token))?;
        Ok(NewTokenReport { report, secret })
    }

    /// Reports of all tokens.
    pub(crate) fn tokens(&self) -> Vec<TokenReport> {
        self.store.now().tokens.iter().map(|(name, token)| self.token_report(name, token)).collect()
    }

    /// Revokes the token; only one that `maker` created if that is given.
    ///
    /// *Errors*: there is no such token.
    pub(crate) fn revoke_token(&self, name: &Name, maker: Option<&Name>) -> Result<(), Refusal> {
        self.store.change(|registry| {
            // A token of another user counts as unknown, so that its name is not revealed.
            let token = registry.tokens.get(name).filter(|token| maker.is_none() || token.maker.as_ref() == maker);
            if token.is_none() {
                let message = format!("token {name} does not exist");
                return Err(Refusal::new(code::TOKEN_UNKNOWN, message, "see blockyard token list"));
            }
            registry.tokens.remove(name);
            Ok(())
        })
    }

    /// Token with this secret while it is valid.
    pub(crate) fn token_of(&self, secret: &str) -> Option<AuthenticatedToken> {
        // Rejected before anything is hashed.
        if !secret.starts_with(PREFIX) {
            return None;
        }
        let (hash, registry, now) = (control::to_hex(&digest(secret)), self.store.now(), now());
        // Digests are compared, so the duration says nothing about the secret.
        let (name, token) = registry.tokens.iter().find(|(_, token)| token.hash == hash)?;
        let role = registry.role_of(token, now)?;
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), now);
        Some(AuthenticatedToken { name: name.clone(), role, scopes: token.scopes.clone(), until: token.until })
    }

    /// True while the token is valid.
    pub(crate) fn token_lives(&self, name: &Name) -> bool {
        let registry = self.store.now();
        registry.tokens.get(name).is_some_and(|token| registry.role_of(token, now()).is_some())
    }

    fn token_report(&self, name: &Name, token: &Token) -> TokenReport {
        TokenReport {
            name: name.clone(),
            role: token.role,
            scopes: token.scopes.clone(),
            created_by: token.maker.clone(),
            created: token.created,
            until: token.until,
            used: self.used.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied(),
        }
    }
}
