//! Request bodies of the alert API.

use control::request::SecretText;
use model::{EventSeverity, MailTls, Name, Refusal, Span, WebhookForm, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Add an alert receiver: by mail with `to` and `smtp`, or by webhook with `url`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewReceiver {
    /// Name of the receiver.
    pub name: Name,
    /// Settings of the receiver.
    #[serde(default)]
    #[serde(alias = "how")]
    pub settings: SetReceiver,
}

/// Change the settings of an alert receiver. Omitted settings keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetReceiver {
    /// Recipients of the mail.
    pub to: Option<Vec<String>>,
    /// Sender of the mail. Default: `blockyard@` and the node's name.
    pub from: Option<String>,
    /// Mail server, with a port if it is not the default: 587 with STARTTLS, 465 with implicit TLS, 25 without TLS.
    pub smtp: Option<String>,
    /// Encryption of the connection to the mail server. Default: `starttls`.
    pub tls: Option<MailTls>,
    /// User name for the mail server.
    pub user: Option<String>,
    /// Password for the mail server.
    pub password: Option<SecretText>,
    /// URL of the webhook: `https://…`; `http://` only for the node itself.
    pub url: Option<String>,
    /// Format of the webhook request. Default: `generic`.
    #[serde(alias = "form")]
    pub format: Option<WebhookForm>,
    /// Key for the signature of webhook requests.
    pub secret: Option<SecretText>,
    /// File on the node with trusted certificate authorities; empty for those of the system.
    pub ca_file: Option<String>,
    /// Pin of the server's certificate key: trusted whatever the certificate says.
    pub pin: Option<String>,
    /// Minimum severity. Default: `warning`.
    #[serde(alias = "least")]
    pub min_severity: Option<EventSeverity>,
    /// Time for which alerts are gathered into one message. Default: 10 seconds.
    pub gather: Option<Span>,
    /// Interval of reminders while an alert is active. Default: one day; zero disables them.
    pub remind: Option<Span>,
}

/// Silence a code or a subject for a time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSilence {
    /// Event code such as `BY-E302`, or subject such as `pool tank`.
    #[serde(alias = "what")]
    pub matcher: String,
    /// Duration of the silence.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Select a silence.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OldSilence {
    /// Silenced code or subject.
    #[serde(alias = "what")]
    pub matcher: String,
}

/// Number of an alert, in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct AlertNumber(pub u64);

impl FromStr for AlertNumber {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        text.parse().map(Self).map_err(|_| {
            let message = format!("\"{}\" is not an alert number", text.escape_debug());
            Refusal::new(code::IDENTIFIER_INVALID, message, "see blockyard alert active")
        })
    }
}
