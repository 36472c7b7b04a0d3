//! Delivery of one message to one receiver.

use crate::message::Message;
use crate::receiver::Receiver;
use crate::{mail, smtp, webhook};
use model::{Name, ReceiverWay};
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of a delivery.
const PATIENCE: Duration = Duration::from_secs(60);
/// Limit on the characters of a response that is shown.
const SAID_CHARS_MAX: usize = 300;

/// Delivers the message and returns the receiver's response.
///
/// *Errors*: the reason as text.
pub(crate) async fn send(name: &Name, receiver: &Receiver, message: &Message) -> Result<String, String> {
    let sent = async {
        match &receiver.delivery {
            ReceiverWay::Webhook { url, format: form } => webhook::send(receiver, url, *form, message).await,
            ReceiverWay::Mail { to, from, smtp, tls, user } => {
                let text = mail::compose(name, from, to, message);
                let proof = receiver.credential.as_ref().map(|proof| proof.bytes());
                let login = user.as_deref().zip(proof);
                let trust = receiver.trust();
                smtp::send(&smtp::Server { server: smtp, tls: *tls, trust: &trust, login }, from, to, &text).await
            }
        }
    };
    // A limit for the whole delivery, in addition to those of its steps.
    let sent = timeout(PATIENCE, sent).await;
    sent.unwrap_or_else(|_| Err(format!("it timed out after {} seconds", PATIENCE.as_secs())))
        .map(|said| sanitize_response(&said))
        .map_err(|why| sanitize_response(&why))
}

/// Shortens a foreign response to one line without control characters.
pub(crate) fn sanitize_response(said: &str) -> String {
    // Shown in logs and tables: one line without control characters.
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|c| !c.is_control()).take(SAID_CHARS_MAX).collect()
}
