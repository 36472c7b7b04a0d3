//! Refusals as HTTP problem documents.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{Kind, Refusal, code};

/// A refusal as the answer of a request. *Source*: RFC 9457.
#[derive(Debug)]
pub struct Problem(pub Refusal);

impl Problem {
    /// HTTP status of the refusal.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        let Self(refusal) = self;
        match refusal.code {
            code::METHOD_UNKNOWN => return StatusCode::METHOD_NOT_ALLOWED,
            code::CHANGED_SINCE => return StatusCode::PRECONDITION_FAILED,
            // The request was meant for another server (RFC 9110 §15.5.20).
            code::HOST_NAME_UNKNOWN => return StatusCode::MISDIRECTED_REQUEST,
            code::MEDIA_TYPE => return StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code::REQUEST_TOO_LARGE => return StatusCode::PAYLOAD_TOO_LARGE,
            // The array works; the receiver of alerts is unavailable.
            code::RECEIVER_AWAY => return StatusCode::CONFLICT,
            _ => {}
        }
        match refusal.kind() {
            Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Refused => StatusCode::CONFLICT,
            Kind::Unproven => StatusCode::UNAUTHORIZED,
            Kind::TooOften => StatusCode::TOO_MANY_REQUESTS,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let Self(refusal) = self;
        let remembered = refusal.clone();
        let document = ProblemDocument {
            r#type: format!("urn:blockyard:{}", refusal.code),
            title: refusal.code.title(),
            status: status.as_u16(),
            detail: refusal.to_string(),
            code: refusal.code,
            message: refusal.message,
            hint: refusal.hint,
            sessions: refusal.sessions,
            confirm: refusal.confirm,
        };
        let text = serde_json::to_string(&document).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], text).into_response();
        match status {
            StatusCode::UNAUTHORIZED => {
                // Required with this status (RFC 9110 §11.6.1).
                let how = HeaderValue::from_static("Bearer realm=\"blockyard\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
            }
            StatusCode::TOO_MANY_REQUESTS => {
                // The rate limits refill within a second.
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        // For the audit log, which records the code.
        response.extensions_mut().insert(remembered);
        response
    }
}

/// Problem document of a refused request. *Source*: RFC 9457.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct ProblemDocument {
    /// Type URN: `urn:blockyard:` and the code.
    pub r#type: String,
    /// General meaning of the code.
    pub title: &'static str,
    /// HTTP status of the answer.
    pub status: u16,
    /// Description of the problem and its remedy in one sentence.
    pub detail: String,
    /// Error code, for scripts and for the manual.
    pub code: model::Code,
    /// Description of the problem.
    pub message: String,
    /// Remedy; empty if none is known.
    pub hint: String,
    /// Sessions that would end or lose access, if that is the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<model::SessionLoss>,
    /// Field of the request (of its body, or of its query if it has no body) that confirms the change when set to true.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub confirm: String,
}
