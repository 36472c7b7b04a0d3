//! What is asked about alerts: the bodies of those requests.

use control::request::SecretText;
use model::{EventSeverity, MailTls, Name, Refusal, Span, WebhookForm, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Tell somebody of alerts: by mail where `to` and `smtp` are given, by an HTTP request where `url` is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewReceiver {
    /// What to call it.
    pub name: Name,
    /// How it is told.
    #[serde(default)]
    pub how: SetReceiver,
}

/// Change how somebody is told of alerts. What is absent stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetReceiver {
    /// To whom mail goes.
    pub to: Option<Vec<String>>,
    /// From whom; `blockyard@` and the node's name unless told otherwise.
    pub from: Option<String>,
    /// The server that takes the mail, with its port where it is not the usual one: 587, 465 under TLS from the start, 25 in the clear.
    pub smtp: Option<String>,
    /// How the connection to it is kept from others; `starttls` unless told otherwise.
    pub tls: Option<MailTls>,
    /// As whom to log in there.
    pub user: Option<String>,
    /// The password of that user.
    pub password: Option<SecretText>,
    /// Where a webhook is: `https://…`; `http://` only on the node itself.
    pub url: Option<String>,
    /// In which form it is told; `generic` unless told otherwise.
    pub form: Option<WebhookForm>,
    /// What its messages are signed with.
    pub secret: Option<SecretText>,
    /// A file of the node with the authorities to believe; empty for the system's.
    pub ca_file: Option<String>,
    /// The key to believe, whatever its certificate says.
    pub pin: Option<String>,
    /// It is told of what is as bad or worse; `warning` unless told otherwise.
    pub least: Option<EventSeverity>,
    /// For how long what happens together is gathered; 10 seconds unless told otherwise.
    pub gather: Option<Span>,
    /// After how long it is told again of what is still so; a day unless told otherwise, never when zero.
    pub remind: Option<Span>,
}

/// Tell nobody of something for a while.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSilence {
    /// A code such as `BY-E302`, or a subject such as `pool tank`.
    pub what: String,
    /// For how long.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Which silence.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OldSilence {
    /// What it is about.
    pub what: String,
}

/// The number of an alert, as its path has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct AlertNumber(pub u64);

impl FromStr for AlertNumber {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        text.parse().map(Self).map_err(|_| {
            let message = format!("\"{}\" is no number of an alert", text.escape_debug());
            Refusal::new(code::IDENTIFIER_INVALID, message, "see blockyard alert active")
        })
    }
}
