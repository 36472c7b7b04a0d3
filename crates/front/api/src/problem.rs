//! A refusal as HTTP says it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{Kind, Refusal, code};

/// A refusal on its way out, as a problem document. *Source*: RFC 9457.
#[derive(Debug)]
pub struct Problem(pub Refusal);

impl Problem {
    /// The status that says it.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        let Self(refusal) = self;
        match refusal.code {
            code::METHOD_UNKNOWN => return StatusCode::METHOD_NOT_ALLOWED,
            code::CHANGED_SINCE => return StatusCode::PRECONDITION_FAILED,
            code::HOST_NAME_UNKNOWN => return StatusCode::MISDIRECTED_REQUEST,
            code::MEDIA_TYPE => return StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code::REQUEST_TOO_LARGE => return StatusCode::PAYLOAD_TOO_LARGE,
            // The array is well: what is away is somebody else's.
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
                let how = HeaderValue::from_static("Bearer realm=\"blockyard\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
            }
            StatusCode::TOO_MANY_REQUESTS => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        // The audit says why.
        response.extensions_mut().insert(remembered);
        response
    }
}

/// A refusal as HTTP says it. *Source*: RFC 9457.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct ProblemDocument {
    /// `urn:blockyard:` and the code.
    pub r#type: String,
    /// What the code means, in general.
    pub title: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// What is wrong, and what would be right, in one sentence.
    pub detail: String,
    /// Which rule, for scripts and for the manual.
    pub code: model::Code,
    /// What is wrong.
    pub message: String,
    /// What would be right. May be empty where nobody can tell.
    pub hint: String,
    /// The sessions that would end or lose access, where that is why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<model::SessionLoss>,
    /// The field of the request (of its body, or of its query where it has no body) that confirms the change when it is true.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub confirm: String,
}
