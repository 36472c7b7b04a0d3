//! Conditional and idempotent changes: `If-Match` makes a change only if nothing has changed since, `Idempotency-Key`
//! makes it only once. Also records for the audit log what a change has changed.

mod author;
mod replay;
mod tag;

pub(crate) use tag::{Changed, ObjectSettings, Tagged, tag_of};

use crate::row::{Row, RowRequest};
use axum::http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use control::Control;
use model::{Refusal, code};
use replay::IdempotencyStore;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::RwLock;

/// Header with the idempotency key of a POST.
pub(crate) const KEY: &str = "idempotency-key";

/// Header of a repeated answer.
pub(crate) const REPLAYED: &str = "idempotent-replayed";

/// Wrapper around the control plane that keeps clients from overwriting each other's changes unnoticed.
#[derive(Clone)]
pub(crate) struct ConditionalRequests {
    control: Arc<Control>,
    table: &'static [Row],
    /// Held exclusively by conditional changes, shared by all others.
    changes: Arc<RwLock<()>>,
    replays: Arc<IdempotencyStore>,
}

impl ConditionalRequests {
    /// Creates it without stored answers.
    pub(crate) fn new(control: Arc<Control>, table: &'static [Row]) -> Self {
        Self { control, table, changes: Arc::default(), replays: Arc::default() }
    }

    /// Answers a request that was routed to `row`; `caller` separates the idempotency keys of callers.
    ///
    /// *Errors*: the request cannot be parsed, or the refusal of the control plane.
    pub(crate) async fn answer(
        &self,
        row: &'static Row,
        question: RowRequest,
        caller: &str,
    ) -> Result<Response, Refusal> {
        if row.is_read_only() {
            let none_match = listed(question.headers(), IF_NONE_MATCH.as_str());
            let response = row.answer(self.control.clone(), question).await?;
            return Ok(unless_known(response, &none_match));
        }
        let key = question.headers().get(KEY).cloned();
        // Requests with other methods can be repeated without a key.
        match key.filter(|_| row.method == Method::POST) {
            None => self.clone().change(row, question).await,
            // The answer would have to be stored to be repeated, and secrets are not stored.
            Some(_) if row.is_secret => {
                let message = "the response contains a secret and is not stored for repetition";
                Err(Refusal::new(code::KEY_REUSED, message, "repeat without an Idempotency-Key"))
            }
            Some(key) => {
                let key = replay::Key::of(caller, &key)?;
                let print = question.fingerprint(row);
                let keeping = self.clone();
                self.replays.once(key, print, async move { keeping.change(row, question).await }).await
            }
        }
    }

    async fn change(self, row: &'static Row, question: RowRequest) -> Result<Response, Refusal> {
        let wanted = listed(question.headers(), IF_MATCH.as_str());
        if wanted.is_empty() {
            // Shared, because such changes exclude conditional ones and not each other.
            let _together = self.changes.read().await;
            return self.make(row, question).await;
        }
        // Alone, so that the comparison and the change see the same state.
        let _alone = self.changes.write().await;
        self.admit_as_seen(row, &question, &wanted).await?;
        self.make(row, question).await
    }

    /// Makes the change and attaches the changed values to its answer, if the object at its path can be read.
    async fn make(&self, row: &'static Row, question: RowRequest) -> Result<Response, Refusal> {
        // The object is read before and after the change, for the audit log.
        let look = row_of_path(self.table, row.path).filter(|look| look.is_tagged);
        let Some(look) = look else { return row.answer(self.control.clone(), question).await };
        let same = question.of_same_name();
        // An object that cannot be read does not exist, or is repaired by the change.
        let before = self.as_set(look, same.of_same_name()).await;
        let mut response = row.answer(self.control.clone(), question).await?;
        // Many answers contain the object after the change already; reading it again is not needed then.
        let after = match response.extensions().get::<ObjectSettings>() {
            Some(ObjectSettings(set)) => Some(set.clone()),
            None => self.as_set(look, same).await,
        };
        let gone = || Value::Object(Map::new());
        if before.is_some() || after.is_some() {
            let changed = tag::changed(&before.unwrap_or_else(gone), &after.unwrap_or_else(gone));
            response.extensions_mut().insert(Changed(changed));
        }
        Ok(response)
    }

    async fn as_set(&self, look: &Row, question: RowRequest) -> Option<Value> {
        let answer = look.answer(self.control.clone(), question).await.ok()?;
        answer.extensions().get::<ObjectSettings>().map(|ObjectSettings(set)| set.clone())
    }

    /// Admits a change of an object that has one of these tags.
    async fn admit_as_seen(&self, row: &Row, question: &RowRequest, wanted: &[String]) -> Result<(), Refusal> {
        let look = look_of(self.table, row).ok_or_else(|| {
            let message = format!("{} {} does not support If-Match", row.method, row.path);
            Refusal::new(code::CHANGED_SINCE, message, "repeat without If-Match")
        })?;
        let now = look.answer(self.control.clone(), question.of_same_name()).await?;
        let tag = now.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
        // `*` matches any state (RFC 9110 §13.1.1).
        // Tags are compared strongly here, so a weak one never matches.
        if wanted.iter().any(|wanted| wanted == "*" || wanted == tag) {
            return Ok(());
        }
        // The author of the last change tells the operator whom to ask.
        let by = author::of_last_change(question, look.path).await.map(|by| format!(": {by}")).unwrap_or_default();
        let message = format!("it has changed since it was read{by}");
        Err(Refusal::new(code::CHANGED_SINCE, message, "read it again, then repeat the change"))
    }
}

/// Row that shows the tag of the object that `row` changes: the one at its path, or at the nearest path above. `POST
/// /disks/{name}/fail` changes the disk that `GET /disks/{name}` shows.
pub(crate) fn look_of(table: &'static [Row], row: &Row) -> Option<&'static Row> {
    let mut path = row.path;
    loop {
        let look = row_of_path(table, path).filter(|look| look.is_tagged);
        if look.is_some() {
            return look;
        }
        // A path without a name is not an object of which something could be a part.
        path = path.rsplit_once('/').map(|(above, _)| above).filter(|above| above.contains('{'))?;
    }
}

/// Row of `table` that reads the object at this path template.
fn row_of_path(table: &'static [Row], path: &str) -> Option<&'static Row> {
    table.iter().find(|row| row.method == Method::GET && row.path == path)
}

/// Replaces the answer by 304 if the client has it already.
fn unless_known(response: Response, none_match: &[String]) -> Response {
    let tag = response.headers().get(ETAG).cloned();
    let known = tag.as_ref().and_then(|tag| tag.to_str().ok());
    // `If-None-Match` uses the weak comparison (RFC 9110 §13.1.2).
    let is_known =
        known.is_some_and(|tag| none_match.iter().any(|known| known == "*" || known.trim_start_matches("W/") == tag));
    match tag {
        Some(tag) if is_known => (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response(),
        _ => response,
    }
}

/// Values of a header with a list of tags. *Source*: RFC 9110 §13.1.
fn listed(headers: &HeaderMap, name: &str) -> Vec<String> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect()
}
