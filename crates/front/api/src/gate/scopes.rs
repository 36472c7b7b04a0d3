//! Scopes of API tokens. Logins and the local socket have none; only their role applies.
//!
//! A noun (`volumes`) limits a token to the paths below it. `destroy` and `access` do not limit but permit operations
//! that no token may do without them: a faulty script must not cost data, and the holder of a leaked token must not
//! gain other access.

use super::Caller;
use crate::row::Row;
use axum::body::Bytes;
use axum::extract::Query;
use axum::http::Uri;
use control::request::LockWish;
use model::{Refusal, Role, Scope, SnapshotLock, WritePolicy, code};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Keys of requests that consent to a loss of data or to removing volumes from hosts, when they are true. Each boolean
/// of a request is either here or listed as harmless in this module's tests.
pub(crate) const CONSENTS: [&str; 8] =
    ["force", "confirmed", "prune", "lost", "accept_loss", "accept_log_loss", "allow_disruption", "reuse_luns"];

/// Longest lock of a snapshot that a token may set without `destroy`.
const LOCK_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Nouns to which a token can be limited: the first words of the paths of `table`.
pub(crate) fn nouns(table: &'static [Row]) -> BTreeSet<&'static str> {
    // Files such as `openapi.json` are not nouns.
    let first = |row: &'static Row| row.path.split('/').nth(1).filter(|noun| !noun.contains('.'));
    table.iter().filter_map(first).collect()
}

/// True if a token with these scopes may access `noun`.
pub(crate) fn cover(scopes: &[Scope], noun: &str) -> bool {
    let mut nouns = scopes.iter().filter(|scope| !scope.permits_more()).peekable();
    // Without any noun the token is not limited.
    nouns.peek().is_none() || nouns.any(|scope| scope.as_str() == noun)
}

/// True if `wanted` is one of the scopes.
pub(crate) fn has(scopes: &[Scope], wanted: &str) -> bool {
    scopes.iter().any(|scope| scope.as_str() == wanted)
}

/// Admits a request that the caller's scopes permit.
///
/// *Errors*: a token lacks the scope of the noun, or `destroy` or `access` if the request needs it.
pub(crate) fn admit(caller: &Caller, row: &Row, uri: &Uri, body: &Bytes) -> Result<(), Refusal> {
    let Some(scopes) = caller.scopes() else { return Ok(()) };
    let noun = row.path.trim_start_matches('/').split('/').next().unwrap_or("");
    if !caller.may(Role::Viewer, noun) {
        let message = format!("{} has no scope for {noun}", caller.name);
        return Err(Refusal::new(code::FORBIDDEN, message, format!("create a token with --scope {noun}")));
    }
    // The same path may be harmless or destructive, depending on the request.
    // A plan changes nothing, whatever its request consents to.
    let destroys = || !row.is_read_only() && !row.only_plans && (consents(uri, body) || risks(body));
    // The scope of the row, or `destroy` if the request consents to a loss.
    let Some(wanted) = row.scope.or_else(|| destroys().then_some(Scope::DESTROY)) else { return Ok(()) };
    if has(scopes, wanted) {
        return Ok(());
    }
    let does = if wanted == Scope::ACCESS {
        "changes who may use the array"
    } else {
        "can destroy data or prevent its deletion"
    };
    let message = format!("this request {does}, but {} has no scope {wanted}", caller.name);
    Err(Refusal::new(code::FORBIDDEN, message, format!("create a token with --scope {wanted}")))
}

/// True if the query or the body sets one of [`CONSENTS`]. Parsed like the row does: `force=%74rue` counts as well.
fn consents(uri: &Uri, body: &Bytes) -> bool {
    let says = |key: &str| CONSENTS.contains(&key);
    // A malformed query is refused by its row.
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default();
    if query.iter().any(|(key, value)| says(key) && value == "true") {
        return true;
    }
    let body = serde_json::from_slice::<serde_json::Map<String, Value>>(body).unwrap_or_default();
    body.iter().any(|(key, value)| says(key) && value.as_bool() == Some(true))
}

/// True if the body locks snapshots for longer than [`LOCK_MAX`], which cannot be undone, or sets a volume to volatile
/// write-back, which loses data at a power loss; also inside a document.
fn risks(body: &Bytes) -> bool {
    // A body that cannot be parsed is refused by its row.
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    // The volumes of a document are checked like single ones.
    let volumes = body["document"]["volume"].as_object().into_iter().flat_map(|volumes| volumes.values());
    locks_for_long(&body["lock"]) || std::iter::once(&body).chain(volumes).any(is_volatile)
}

fn locks_for_long(lock: &Value) -> bool {
    let now = control::now();
    match LockWish::deserialize(lock).map(|lock| lock.at(now)) {
        Ok(SnapshotLock::Permanent) => true,
        Ok(SnapshotLock::Until(time)) => time > now.plus(LOCK_MAX.as_secs()),
        Ok(SnapshotLock::Unlocked) | Err(_) => false,
    }
}

fn is_volatile(volume: &Value) -> bool {
    volume["settings"]["write-policy"].as_str().map(str::parse) == Some(Ok(WritePolicy::BackVolatile))
}

#[cfg(test)]
mod tests;
