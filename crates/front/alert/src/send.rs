//! One message to one receiver.

use crate::message::Message;
use crate::receiver::Receiver;
use crate::{mail, smtp, webhook};
use model::{Name, ReceiverWay};
use std::time::Duration;
use tokio::time::timeout;

/// How long the whole of it may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest answer that is repeated.
const SAID_CHARS_MAX: usize = 300;

/// The receiver has taken the message; these are its words.
///
/// *Errors*: why it has not, in words.
pub(crate) async fn send(name: &Name, receiver: &Receiver, message: &Message) -> Result<String, String> {
    let sent = async {
        match &receiver.way {
            ReceiverWay::Webhook { url, form } => webhook::send(receiver, url, *form, message).await,
            ReceiverWay::Mail { to, from, smtp, tls, user } => {
                let text = mail::compose(name, from, to, message);
                let proof = receiver.proof.as_ref().map(|proof| proof.bytes());
                let login = user.as_deref().zip(proof);
                let trust = receiver.trust();
                smtp::send(&smtp::Server { server: smtp, tls: *tls, trust: &trust, login }, from, to, &text).await
            }
        }
    };
    let sent = timeout(PATIENCE, sent).await;
    sent.unwrap_or_else(|_| Err(format!("it was not done within {} seconds", PATIENCE.as_secs())))
        .map(|said| tame(&said))
        .map_err(|why| tame(&why))
}

/// What others say, on one line that is not long.
pub(crate) fn tame(said: &str) -> String {
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|c| !c.is_control()).take(SAID_CHARS_MAX).collect()
}
