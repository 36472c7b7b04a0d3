//! What a question carries, part by part, and the sentences for what it should not.

use super::Row;
use crate::gate::{Caller, Door, From};
use crate::openapi::Schemas;
use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Query, RawPathParams, Request};
use axum::http::{Extensions, HeaderMap, Uri, header};
use model::{Misread, Refusal, code};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request as rows read it.
#[derive(Debug)]
pub(crate) struct Question {
    name: String,
    /// Pairs of the query that no part has taken yet, as they came.
    pairs: Vec<String>,
    headers: HeaderMap,
    body: Bytes,
    extensions: Extensions,
}

/// A part of a question that a row takes.
pub(crate) trait Part: Sized + Send + 'static {
    /// The part.
    ///
    /// *Errors*: it cannot be understood.
    fn take(question: &mut Question) -> Result<Self, Refusal>;

    /// What it is.
    fn describe(taken: &mut Taken, schemas: &mut Schemas);
}

/// What a row takes, for the description.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The schema of the name in the path.
    pub name: Option<Value>,
    /// Name, schema and whether it must be there, for each key of the query.
    pub query: Vec<(String, Value, bool)>,
    /// The schema of the body.
    pub body: Option<Value>,
}

/// A JSON body. An empty body counts as `{}`.
pub(crate) struct Body<T>(pub T);

/// Whether the body of a request was taken as what its row asks for: then it has the keys of that, and no others, and it is
/// known which of them are secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Understood(Arc<AtomicBool>);

impl Understood {
    /// True when it was.
    #[must_use]
    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The name in the path.
pub(crate) struct Named<T>(pub T);

/// The query.
pub(crate) struct Asked<T>(pub T);

/// Whoever asks. Only for rows that are not open to strangers.
pub(crate) struct Who(pub Caller);

/// What stands behind the gate.
pub(crate) struct Behind(pub Arc<Door>);

impl Question {
    /// The request, with a body that is not too long.
    ///
    /// *Errors*: the body is too long or broke off.
    pub(crate) async fn of(request: Request) -> Result<Self, Refusal> {
        let (mut parts, body) = request.with_limited_body().into_parts();
        let names = RawPathParams::from_request_parts(&mut parts, &()).await;
        let names = names.map_err(|error| unclear(&error.body_text()))?;
        let name = names.iter().next().map(|(_, name)| name.to_owned()).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
        let body = axum::body::to_bytes(body, usize::MAX).await.map_err(|error| {
            let hint = "send less at once";
            Refusal::new(code::REQUEST_TOO_LARGE, format!("the request cannot be read: {error}"), hint)
        })?;
        Ok(Self { name, pairs, headers: parts.headers, body, extensions: parts.extensions })
    }

    /// Its headers.
    #[must_use]
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The name in its path; empty where there is none.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What stands behind the gate that it has passed.
    #[must_use]
    pub(crate) fn door(&self) -> Option<Arc<Door>> {
        self.extensions.get().cloned()
    }

    /// What tells it from another request of any row.
    #[must_use]
    pub(crate) fn fingerprint(&self, row: &Row) -> [u8; 32] {
        let mut digest = Sha256::new();
        let head = format!("{} {}\0{}\0{}\0", row.method, row.path, self.name, self.pairs.join("&"));
        digest.update(head);
        digest.update(&self.body);
        digest.finalize().into()
    }

    /// A question about the same name, and nothing more.
    #[must_use]
    pub(crate) fn of_same_name(&self) -> Self {
        Self {
            name: self.name.clone(),
            pairs: Vec::new(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            extensions: self.extensions.clone(),
        }
    }

    /// Takes the pairs of the query with these keys, as a query.
    pub(super) fn pairs_of(&mut self, keys: &[&str]) -> Uri {
        let has = |pair: &str| keys.contains(&pair.split('=').next().unwrap_or(pair));
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pairs).into_iter().partition(|pair| has(pair));
        self.pairs = left;
        query_of(&taken)
    }

    /// Admits a question of which every part was taken.
    pub(super) fn admit_nothing_else(&self) -> Result<(), Refusal> {
        let Some(pair) = self.pairs.first() else { return Ok(()) };
        let key = pair.split('=').next().unwrap_or(pair);
        Err(unclear(&format!("it has no parameter {}", key.escape_debug())))
    }
}

fn query_of(pairs: &[String]) -> Uri {
    // The pairs came in a URI.
    format!("/?{}", pairs.join("&")).parse().unwrap_or_default()
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Part for Body<T> {
    fn take(question: &mut Question) -> Result<Self, Refusal> {
        if !is_json(&question.headers) && !question.body.is_empty() {
            let hint = "send it with Content-Type: application/json";
            return Err(Refusal::new(code::MEDIA_TYPE, "the body is not application/json", hint));
        }
        let text: &[u8] = if question.body.is_empty() { b"{}" } else { &question.body };
        // Fields without their names are taken for a struct by serde, and by nobody else.
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(invalid("the body is no object"));
        }
        let body = serde_json::from_slice(text).map(Self).map_err(|error| invalid(&error.to_string()))?;
        if let Some(understood) = question.extensions.get::<Understood>() {
            understood.0.store(true, Ordering::Relaxed);
        }
        Ok(body)
    }

    fn describe(taken: &mut Taken, schemas: &mut Schemas) {
        taken.body = Some(schemas.asked::<T>());
    }
}

impl<T: FromStr<Err = Refusal> + JsonSchema + Send + 'static> Part for Named<T> {
    fn take(question: &mut Question) -> Result<Self, Refusal> {
        question.name.parse().map(Self)
    }

    fn describe(taken: &mut Taken, schemas: &mut Schemas) {
        taken.name = Some(schemas.asked::<T>());
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Part for Asked<T> {
    fn take(question: &mut Question) -> Result<Self, Refusal> {
        let uri = query_of(&std::mem::take(&mut question.pairs));
        Query::try_from_uri(&uri).map(|Query(asked)| Self(asked)).map_err(|error| unclear(&error.body_text()))
    }

    fn describe(taken: &mut Taken, schemas: &mut Schemas) {
        taken.query.extend(schemas.asked_fields::<T>());
    }
}

impl<A: Part, B: Part> Part for (A, B) {
    fn take(question: &mut Question) -> Result<Self, Refusal> {
        Ok((A::take(question)?, B::take(question)?))
    }

    fn describe(taken: &mut Taken, schemas: &mut Schemas) {
        A::describe(taken, schemas);
        B::describe(taken, schemas);
    }
}

impl Question {
    /// What the gate has left for the row.
    fn left<T: Clone + Send + Sync + 'static>(&self) -> Result<T, Refusal> {
        self.extensions.get().cloned().ok_or_else(|| {
            tracing::error!("a request has passed no gate");
            Refusal::new(code::INTERNAL, "the request has passed no gate", "report this with the daemon's log")
        })
    }
}

impl Part for Who {
    fn take(question: &mut Question) -> Result<Self, Refusal> {
        question.left().map(Self)
    }

    fn describe(_: &mut Taken, _: &mut Schemas) {}
}

impl Part for Behind {
    fn take(question: &mut Question) -> Result<Self, Refusal> {
        question.left().map(Self)
    }

    fn describe(_: &mut Taken, _: &mut Schemas) {}
}

impl Part for From {
    fn take(question: &mut Question) -> Result<Self, Refusal> {
        question.left()
    }

    fn describe(_: &mut Taken, _: &mut Schemas) {}
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// A body that cannot be understood, and why: the refusal of one of its values, where that is why.
fn invalid(why: &str) -> Refusal {
    Misread::in_error(why).unwrap_or_else(|| {
        let why = bounded::excerpt(why);
        Refusal::new(
            code::REQUEST_INVALID,
            format!("the body of the request cannot be understood: {why}"),
            "correct it",
        )
    })
}

/// A path or a query that cannot be understood, and why: the refusal of one of its values, where that is why.
pub(super) fn unclear(why: &str) -> Refusal {
    let why = why.strip_prefix("Failed to deserialize query string: ").unwrap_or(why);
    Misread::in_error(why).unwrap_or_else(|| {
        let message = format!("the query of the request cannot be understood: {}", bounded::excerpt(why));
        Refusal::new(code::QUERY_INVALID, message, "correct it")
    })
}
