//! Stored answers for repeated requests: a POST with an idempotency key is carried out once.

use super::{Changed, REPLAYED};
use crate::Problem;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use model::{Refusal, code};
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that an answer is kept.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Limits on stored answers and on their bytes; the oldest are dropped first.
const KEPT_MAX: usize = 1024;
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Longest answer that is stored, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Idempotency key together with its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    caller: String,
    key: String,
}

/// Fingerprint of a request, which detects another request with the same key.
pub(crate) type Fingerprint = [u8; 32];

/// Stored answers.
#[derive(Default)]
pub(crate) struct IdempotencyStore {
    kept: Mutex<StoredAnswers>,
}

#[derive(Default)]
struct StoredAnswers {
    entries: HashMap<Key, Arc<Entry>>,
    /// Keys by age, the oldest first.
    order: VecDeque<(Instant, Key)>,
}

struct Entry {
    print: Fingerprint,
    /// Locked while the first request is in flight; `None` if its answer is not stored.
    answer: Arc<tokio::sync::Mutex<Option<Answer>>>,
}

#[derive(Clone)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// The refusal and the changed values, for the audit log.
    refusal: Option<Refusal>,
    changed: Option<Changed>,
}

impl Key {
    /// Parses the key of a request.
    ///
    /// *Errors*: it is empty, too long, or not printable ASCII.
    pub(crate) fn of(caller: &str, value: &HeaderValue) -> Result<Self, Refusal> {
        // `to_str` admits visible ASCII only, so the key can be printed in a message.
        let key = value.to_str().ok().filter(|key| (1..=255).contains(&key.len()));
        key.map(|key| Self { caller: caller.to_owned(), key: key.to_owned() }).ok_or_else(|| {
            let hint = "use 1 to 255 printable characters, such as a UUID";
            Refusal::new(code::HEADER_INVALID, "the Idempotency-Key is invalid", hint)
        })
    }
}

impl IdempotencyStore {
    /// Runs `change`, or returns the answer that the same request had before. The change runs to its end even if the
    /// client disconnects.
    ///
    /// *Errors*: the key was used with another request.
    pub(crate) async fn once(
        self: &Arc<Self>,
        key: Key,
        print: Fingerprint,
        change: impl Future<Output = Result<Response, Refusal>> + Send + 'static,
    ) -> Result<Response, Refusal> {
        let entry = self.entry(&key, print, Instant::now());
        if entry.print != print {
            let message = format!("the Idempotency-Key {} was used for another request", key.key.escape_debug());
            return Err(Refusal::new(code::KEY_REUSED, message, "use a new key for a new request"));
        }
        // A repetition waits here until the first request is answered.
        let mut answer = entry.answer.clone().lock_owned().await;
        if let Some(answer) = answer.clone() {
            // The audit log has the changed values with the first request; the repetition has changed nothing.
            let changed = answer.changed.is_some().then(|| Changed(Value::Object(Map::new())));
            let mut response = Answer { changed, ..answer }.said();
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            return Ok(response);
        }
        let replays = self.clone();
        // The task owns the lock, so the answer is stored even if the client disconnects.
        let told = tokio::spawn(async move {
            // A refusal is an answer, too, and repeated like any other.
            let response = change.await.unwrap_or_else(|refusal| Problem(refusal).into_response());
            let told = Answer::of(response).await;
            match told.is_to_keep() {
                true => *answer = Some(told.clone()),
                false => replays.forget(&key),
            }
            told
        });
        told.await.map(Answer::said).map_err(|error| {
            tracing::error!(%error, "a change failed unexpectedly");
            Refusal::new(code::INTERNAL, "the change failed unexpectedly", "report this as a bug, with the daemon log")
        })
    }

    fn entry(&self, key: &Key, print: Fingerprint, now: Instant) -> Arc<Entry> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Room is made first, so that a new key does not exceed the limits.
        kept.make_room(now);
        if let Some(entry) = kept.entries.get(key) {
            return entry.clone();
        }
        let entry = Arc::new(Entry { print, answer: Arc::default() });
        // Before the change starts, so that a repetition finds the entry and waits for it.
        kept.entries.insert(key.clone(), entry.clone());
        kept.order.push_back((now, key.clone()));
        entry
    }

    fn forget(&self, key: &Key) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entries.remove(key);
        kept.order.retain(|(_, other)| other != key);
    }
}

impl StoredAnswers {
    /// Drops answers that are too old, and the oldest beyond the limits.
    fn make_room(&mut self, now: Instant) {
        let mut bytes: usize = self.entries.values().map(|entry| entry.bytes()).sum();
        // The order of insertion is the order of age.
        while let Some((since, oldest)) = self.order.front() {
            let is_old = now.saturating_duration_since(*since) >= KEPT_FOR;
            if !is_old && self.order.len() < KEPT_MAX && bytes <= KEPT_BYTES_MAX {
                return;
            }
            // An answer may have been stored since the sum was taken, so the difference is bounded.
            bytes -= self.entries.remove(oldest).map_or(0, |entry| entry.bytes()).min(bytes);
            self.order.pop_front();
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        // An answer that is still being made has no size yet.
        self.answer.try_lock().map_or(0, |answer| answer.as_ref().map_or(0, |answer| answer.body.len()))
    }
}

impl Answer {
    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        // Rows answer from memory, so this cannot fail.
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        // Extensions are no part of the bytes that are sent, but the audit log reads them from the response.
        let refusal = parts.extensions.get().cloned();
        let changed = parts.extensions.get().cloned();
        Self { status: parts.status, headers: parts.headers, body, refusal, changed }
    }

    /// True for an answer that is stored. Server errors may pass, so a repetition tries again.
    fn is_to_keep(&self) -> bool {
        !self.status.is_server_error() && self.body.len() <= ANSWER_BYTES_MAX
    }

    fn said(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        // All of them: the type of the body, and the entity tag of the object.
        *response.headers_mut() = self.headers;
        let extensions = response.extensions_mut();
        self.refusal.and_then(|refusal| extensions.insert(refusal));
        self.changed.and_then(|changed| extensions.insert(changed));
        response
    }
}

#[cfg(test)]
mod tests;
