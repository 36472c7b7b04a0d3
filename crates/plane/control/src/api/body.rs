//! What requests carry, and the sentences for what they should not.

use crate::api::Problem;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use model::{Refusal, code};
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// A JSON body. An empty body counts as `{}`.
pub struct Body<T>(pub T);

/// The name in the path.
pub struct Named<T>(pub T);

/// The query.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let json = is_json(request.headers());
        let bytes = Bytes::from_request(request, state).await.map_err(|error| invalid(&error.body_text()))?;
        if !json && !bytes.is_empty() {
            return Err(invalid("the body is not application/json"));
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Self).map_err(|error| invalid(&error.to_string()))
    }
}

impl<T: FromStr<Err = Refusal>, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|error| invalid(&error.body_text()))?;
        text.parse().map(Self).map_err(Problem)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|error| invalid(&error.body_text()))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn invalid(why: &str) -> Problem {
    Problem(Refusal::new(code::REQUEST_INVALID, format!("the request cannot be understood: {why}"), "correct it"))
}
