//! What the scopes of a token permit. A login and the socket have none: their role alone decides.
//!
//! A noun (`volumes`) limits a token to the paths below it. `destroy` and `access` limit nothing: they permit what no token may without
//! them, so that neither a script gone wrong nor a token that leaks costs data or makes its holder somebody else.

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

/// Keys of requests that consent to a loss of data or to taking volumes from hosts, wherever they are true. Each boolean that a request
/// knows is either here or listed as harmless by this module's tests.
pub(crate) const CONSENTS: [&str; 8] =
    ["force", "confirmed", "prune", "lost", "accept_loss", "accept_log_loss", "allow_disruption", "reuse_luns"];

/// How long a token locks snapshots without `destroy`.
const LOCK_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The nouns that a token can be limited to: the first words of the paths of `table`.
pub(crate) fn nouns(table: &'static [Row]) -> BTreeSet<&'static str> {
    let first = |row: &'static Row| row.path.split('/').nth(1).filter(|noun| !noun.contains('.'));
    table.iter().filter_map(first).collect()
}

/// True when a token with these scopes may ask for `noun` at all.
pub(crate) fn cover(scopes: &[Scope], noun: &str) -> bool {
    let mut nouns = scopes.iter().filter(|scope| !scope.permits_more()).peekable();
    nouns.peek().is_none() || nouns.any(|scope| scope.as_str() == noun)
}

/// True when `wanted` is one of them.
pub(crate) fn has(scopes: &[Scope], wanted: &str) -> bool {
    scopes.iter().any(|scope| scope.as_str() == wanted)
}

/// Admits a request that the caller's scopes permit.
///
/// *Errors*: it is a token without the scope of the noun, or without `destroy` or `access` where the request takes it.
pub(crate) fn admit(caller: &Caller, row: &Row, uri: &Uri, body: &Bytes) -> Result<(), Refusal> {
    let Some(scopes) = caller.scopes() else { return Ok(()) };
    let noun = row.path.trim_start_matches('/').split('/').next().unwrap_or("");
    if !caller.may(Role::Viewer, noun) {
        let message = format!("{} has no scope for {noun}", caller.name);
        return Err(Refusal::new(code::FORBIDDEN, message, format!("create a token with --scope {noun}")));
    }
    let destroys = || !row.looks() && !row.only_plans && (consents(uri, body) || risks(body));
    let Some(wanted) = row.scope.or_else(|| destroys().then_some(Scope::DESTROY)) else { return Ok(()) };
    if has(scopes, wanted) {
        return Ok(());
    }
    let does = if wanted == Scope::ACCESS {
        "decides who may use the array"
    } else {
        "can destroy data or keep it from being deleted"
    };
    let message = format!("this request {does}, and {} has no scope {wanted}", caller.name);
    Err(Refusal::new(code::FORBIDDEN, message, format!("create a token with --scope {wanted}")))
}

/// True when the query or the body says one of [`CONSENTS`]. Read as the row reads it: `force=%74rue` is said, too.
fn consents(uri: &Uri, body: &Bytes) -> bool {
    let says = |key: &str| CONSENTS.contains(&key);
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default();
    if query.iter().any(|(key, value)| says(key) && value == "true") {
        return true;
    }
    let body = serde_json::from_slice::<serde_json::Map<String, Value>>(body).unwrap_or_default();
    body.iter().any(|(key, value)| says(key) && value.as_bool() == Some(true))
}

/// True when the body locks snapshots for longer than [`LOCK_MAX`], which nobody takes back, or has a volume keep what hosts write in
/// memory alone, which a power cut loses; in a document, too.
fn risks(body: &Bytes) -> bool {
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let volumes = body["document"]["volume"].as_object().into_iter().flat_map(|volumes| volumes.values());
    locks_for_long(&body["lock"]) || std::iter::once(&body).chain(volumes).any(is_volatile)
}

fn locks_for_long(lock: &Value) -> bool {
    let now = control::now();
    match LockWish::deserialize(lock).map(|lock| lock.at(now)) {
        Ok(SnapshotLock::ForEver) => true,
        Ok(SnapshotLock::Until(time)) => time > now.plus(LOCK_MAX.as_secs()),
        Ok(SnapshotLock::Open) | Err(_) => false,
    }
}

fn is_volatile(volume: &Value) -> bool {
    volume["settings"]["write-policy"].as_str().map(str::parse) == Some(Ok(WritePolicy::BackVolatile))
}

#[cfg(test)]
mod tests;
