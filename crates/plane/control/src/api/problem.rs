//! A refusal as HTTP says it.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{Kind, Refusal};
use serde_json::json;

/// A refusal on its way out, as a problem document. *Source*: RFC 9457.
#[derive(Debug)]
pub struct Problem(pub Refusal);

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(refusal) = self;
        let status = match refusal.kind() {
            Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Refused => StatusCode::CONFLICT,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let document = json!({
            "type": format!("urn:blockyard:{}", refusal.code),
            "title": refusal.code.title(),
            "status": status.as_u16(),
            "detail": refusal.to_string(),
            "code": refusal.code,
            "message": refusal.message,
            "hint": refusal.hint,
        });
        (status, [(header::CONTENT_TYPE, "application/problem+json")], document.to_string()).into_response()
    }
}
