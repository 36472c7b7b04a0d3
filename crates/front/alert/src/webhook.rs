//! Webhook client: delivers a message as an HTTP request.
//!
//! With a secret the request is signed: `Blockyard-Signature: t=<Unix seconds>,v1=<HMAC-SHA256 in hexadecimal>` of the
//! seconds, a full stop and the body. A receiver should also reject old times, so that a request cannot be replayed.

use crate::message::Message;
use crate::receiver::{Receiver, parts};
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use model::{EventSeverity, WebhookForm};
use serde_json::json;
use sha2::Sha256;
use std::time::Duration;

/// Timeout of the connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Limit on the response that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends the message; any 2xx status counts as delivered.
///
/// *Errors*: the reason as text.
pub(crate) async fn send(
    receiver: &Receiver,
    url: &str,
    form: WebhookForm,
    message: &Message,
) -> Result<String, String> {
    let place = parts(url).map_err(|refusal| refusal.to_string())?;
    let trust = receiver.trust();
    let line = trust::connect(&place.host, place.port, place.is_tls.then_some(&trust), CONNECT).await;
    let line = line.map_err(|error| format!("it cannot be reached: {error}"))?;
    let (kind, body) = body(form, message);
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(place.path)
        .header(HOST, place.authority)
        .header(USER_AGENT, concat!("blockyard/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, kind)
        // The same for a repeated delivery, so that the receiver can discard it.
        .header("idempotency-key", &message.id)
        .header("blockyard-message", &message.id);
    if form == WebhookForm::Ntfy {
        let priority = match message.severity {
            EventSeverity::Critical => "urgent",
            EventSeverity::Warning => "high",
            EventSeverity::Info => "default",
        };
        // Header values of ntfy are ASCII; the text has the complete subject.
        let title: String = message.subject().chars().filter(|c| c.is_ascii() && !c.is_control()).collect();
        request = request.header("title", title).header("priority", priority);
    }
    if let Some(proof) = &receiver.credential {
        request = request.header("blockyard-signature", signature(proof.bytes(), message.time.unix(), &body));
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let broke = |error: hyper::Error| format!("connection lost: {error}");
    let response = http_client::send(line, request).await.map_err(broke)?;
    // Bounded: the response is only shown to operators.
    let status = response.status();
    let said = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let said = said.map(|said| String::from_utf8_lossy(&said.to_bytes()).into_owned()).unwrap_or_default();
    let answer = format!("{status} {said}");
    if status.is_success() { Ok(answer) } else { Err(format!("it responded {answer}")) }
}

fn body(form: WebhookForm, message: &Message) -> (&'static str, Vec<u8>) {
    let json = "application/json";
    match form {
        WebhookForm::Generic => (json, serde_json::to_vec(message).unwrap_or_default()),
        WebhookForm::Slack => {
            let text = format!("*{}*\n{}", message.subject(), message.text());
            (json, json!({ "text": text }).to_string().into_bytes())
        }
        WebhookForm::Ntfy => ("text/plain; charset=utf-8", message.text().into_bytes()),
    }
}

/// Signature of a body and its time, for receivers that share the secret.
pub(crate) fn signature(secret: &[u8], time: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    // The time is signed as well, so that receivers can reject a replayed message.
    mac.update(time.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    format!("t={time},v1={}", control::to_hex(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value comes from
    /// `printf '%s' '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 'a secret of ours'`.
    #[test]
    fn signature_is_hmac_sha256_of_time_and_body() {
        let wanted = include_str!("webhook/signature.txt").trim();
        assert_eq!(signature(b"a secret of ours", 1_700_000_000, b"{\"a\":1}"), wanted);
    }
}
