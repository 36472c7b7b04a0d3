//! Parts of a request that rows take, and the refusals for malformed ones.

use super::Row;
use crate::gate::{Caller, ClientInfo, Gate};
use crate::openapi::Schemas;
use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Query, RawPathParams, Request};
use axum::http::{Extensions, HeaderMap, Uri, header};
use model::{ParseRefusal, Refusal, code};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request in the form that rows read.
#[derive(Debug)]
pub(crate) struct RowRequest {
    name: String,
    /// Query parameters that no part has taken yet, as received.
    pairs: Vec<String>,
    headers: HeaderMap,
    body: Bytes,
    extensions: Extensions,
}

/// A part of a request that a row takes.
pub(crate) trait Part: Sized + Send + 'static {
    /// Takes the part from the request.
    ///
    /// *Errors*: it cannot be parsed.
    fn take(question: &mut RowRequest) -> Result<Self, Refusal>;

    /// Describes the part for the OpenAPI document.
    fn describe(taken: &mut RowInput, schemas: &mut Schemas);
}

/// Input of a row, for the OpenAPI document.
#[derive(Debug, Default)]
pub(crate) struct RowInput {
    /// Schema of the name in the path.
    pub name: Option<Value>,
    /// Name, schema and whether it is required, for each query parameter.
    pub query: Vec<(String, Value, bool)>,
    /// Schema of the body.
    pub body: Option<Value>,
}

/// JSON body. An empty body counts as `{}`.
pub(crate) struct Body<T>(pub T);

/// Flag that the body was parsed as the type of its row: it then has only known keys, so it is known which of them are
/// secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyParsed(Arc<AtomicBool>);

impl BodyParsed {
    /// True if the body was parsed.
    #[must_use]
    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Name in the path.
pub(crate) struct PathName<T>(pub T);

/// Query parameters.
pub(crate) struct QueryParams<T>(pub T);

/// Authenticated caller. Only for rows that require authentication.
pub(crate) struct Authenticated(pub Caller);

/// Services behind the gate.
pub(crate) struct Services(pub Arc<Gate>);

impl RowRequest {
    /// Reads a request with its body.
    ///
    /// *Errors*: the body is too long or was cut off.
    pub(crate) async fn of(request: Request) -> Result<Self, Refusal> {
        // The limit of the row applies here.
        let (mut parts, body) = request.with_limited_body().into_parts();
        let names = RawPathParams::from_request_parts(&mut parts, &()).await;
        let names = names.map_err(|error| unclear(&error.body_text()))?;
        // Rows have at most one name in their path.
        let name = names.iter().next().map(|(_, name)| name.to_owned()).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        // Kept as text: each part parses the parameters that it knows.
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
        // Limited above, by the row.
        let body = axum::body::to_bytes(body, usize::MAX).await.map_err(|error| {
            let hint = "send a smaller request";
            Refusal::new(code::REQUEST_TOO_LARGE, format!("the request cannot be read: {error}"), hint)
        })?;
        Ok(Self { name, pairs, headers: parts.headers, body, extensions: parts.extensions })
    }

    /// Headers of the request.
    #[must_use]
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Name in the path; empty if there is none.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Services behind the gate, if the request came through it.
    #[must_use]
    pub(crate) fn gate(&self) -> Option<Arc<Gate>> {
        self.extensions.get().cloned()
    }

    /// Fingerprint of the request: row, name, query and body. Detects another request with the same idempotency key.
    #[must_use]
    pub(crate) fn fingerprint(&self, row: &Row) -> [u8; 32] {
        let mut digest = Sha256::new();
        // NUL separates the fields.
        let head = format!("{} {}\0{}\0{}\0", row.method, row.path, self.name, self.pairs.join("&"));
        digest.update(head);
        digest.update(&self.body);
        digest.finalize().into()
    }

    /// Request for the same name without query and body.
    #[must_use]
    pub(crate) fn of_same_name(&self) -> Self {
        Self {
            name: self.name.clone(),
            pairs: Vec::new(),
            // Without conditional headers, which would be evaluated a second time.
            headers: HeaderMap::new(),
            body: Bytes::new(),
            extensions: self.extensions.clone(),
        }
    }

    /// Takes the query parameters with these keys.
    pub(super) fn pairs_of(&mut self, keys: &[&str]) -> Uri {
        let has = |pair: &str| keys.contains(&pair.split('=').next().unwrap_or(pair));
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pairs).into_iter().partition(|pair| has(pair));
        self.pairs = left;
        query_of(&taken)
    }

    /// Admits a request of which every query parameter was taken.
    pub(super) fn admit_nothing_else(&self) -> Result<(), Refusal> {
        let Some(pair) = self.pairs.first() else { return Ok(()) };
        let key = pair.split('=').next().unwrap_or(pair);
        Err(unclear(&format!("unknown parameter {}", key.escape_debug())))
    }
}

fn query_of(pairs: &[String]) -> Uri {
    // The pairs came from a valid URI, so this cannot fail.
    format!("/?{}", pairs.join("&")).parse().unwrap_or_default()
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Part for Body<T> {
    fn take(question: &mut RowRequest) -> Result<Self, Refusal> {
        if !is_json(&question.headers) && !question.body.is_empty() {
            let hint = "send it with Content-Type: application/json";
            return Err(Refusal::new(code::MEDIA_TYPE, "the body is not application/json", hint));
        }
        // An empty body stands for an object without fields.
        let text: &[u8] = if question.body.is_empty() { b"{}" } else { &question.body };
        // Serde accepts an array as a struct without field names; the API must not.
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(invalid("the body is not a JSON object"));
        }
        let body = serde_json::from_slice(text).map(Self).map_err(|error| invalid(&error.to_string()))?;
        // The gate records the body only if its type is known.
        if let Some(understood) = question.extensions.get::<BodyParsed>() {
            // Relaxed, because the gate reads it in the same task, after the answer.
            understood.0.store(true, Ordering::Relaxed);
        }
        Ok(body)
    }

    fn describe(taken: &mut RowInput, schemas: &mut Schemas) {
        taken.body = Some(schemas.request_schema::<T>());
    }
}

impl<T: FromStr<Err = Refusal> + JsonSchema + Send + 'static> Part for PathName<T> {
    fn take(question: &mut RowRequest) -> Result<Self, Refusal> {
        question.name.parse().map(Self)
    }

    fn describe(taken: &mut RowInput, schemas: &mut Schemas) {
        taken.name = Some(schemas.request_schema::<T>());
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Part for QueryParams<T> {
    fn take(question: &mut RowRequest) -> Result<Self, Refusal> {
        // All that is left, so that the type refuses unknown parameters.
        let uri = query_of(&std::mem::take(&mut question.pairs));
        Query::try_from_uri(&uri).map(|Query(asked)| Self(asked)).map_err(|error| unclear(&error.body_text()))
    }

    fn describe(taken: &mut RowInput, schemas: &mut Schemas) {
        taken.query.extend(schemas.query_parameters::<T>());
    }
}

impl<A: Part, B: Part> Part for (A, B) {
    fn take(question: &mut RowRequest) -> Result<Self, Refusal> {
        Ok((A::take(question)?, B::take(question)?))
    }

    fn describe(taken: &mut RowInput, schemas: &mut Schemas) {
        A::describe(taken, schemas);
        B::describe(taken, schemas);
    }
}

impl RowRequest {
    /// State that the gate has attached to the request.
    fn left<T: Clone + Send + Sync + 'static>(&self) -> Result<T, Refusal> {
        self.extensions.get().cloned().ok_or_else(|| {
            tracing::error!("a request was not authorized");
            Refusal::new(code::INTERNAL, "the request was not authorized", "report this as a bug, with the daemon log")
        })
    }
}

impl Part for Authenticated {
    fn take(question: &mut RowRequest) -> Result<Self, Refusal> {
        question.left().map(Self)
    }

    fn describe(_: &mut RowInput, _: &mut Schemas) {}
}

impl Part for Services {
    fn take(question: &mut RowRequest) -> Result<Self, Refusal> {
        question.left().map(Self)
    }

    fn describe(_: &mut RowInput, _: &mut Schemas) {}
}

impl Part for ClientInfo {
    fn take(question: &mut RowRequest) -> Result<Self, Refusal> {
        question.left()
    }

    fn describe(_: &mut RowInput, _: &mut Schemas) {}
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    // Parameters such as `charset` are ignored.
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Refusal of a body that cannot be parsed. If one of its values was refused, returns that refusal.
fn invalid(why: &str) -> Refusal {
    ParseRefusal::from_error_text(why).unwrap_or_else(|| {
        let why = bounded::excerpt(why);
        Refusal::new(code::REQUEST_INVALID, format!("the request body is invalid: {why}"), "correct the request")
    })
}

/// Refusal of a path or query that cannot be parsed. If one of its values was refused, returns that refusal.
pub(super) fn unclear(why: &str) -> Refusal {
    // Without the prefix of axum a refusal of a value is recognized in the text.
    let why = why.strip_prefix("Failed to deserialize query string: ").unwrap_or(why);
    ParseRefusal::from_error_text(why).unwrap_or_else(|| {
        let message = format!("the query string is invalid: {}", bounded::excerpt(why));
        Refusal::new(code::QUERY_INVALID, message, "correct the request")
    })
}
