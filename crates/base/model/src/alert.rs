//! Alerts, receivers of alerts and audit forwarding, as the API reports them.

use crate::{EventCode, EventSeverity, Name, Refusal, Span, Subject, Timestamp, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Active or recent alert. Repetitions of the same event count for one alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertReport {
    /// Description of the alert.
    #[serde(flatten)]
    pub facts: AlertFacts,
    /// Receivers that have been notified.
    pub notified: Vec<Name>,
    /// End of the silence that suppresses notifications of this alert, if there is one.
    pub silenced: Option<Timestamp>,
}

/// Description of an alert: identical in the API and in notifications.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertFacts {
    /// Number of the alert, constant from the time it is raised until it ends.
    pub number: u64,
    /// Code of the event that raised it.
    pub code: EventCode,
    /// Severity.
    pub severity: EventSeverity,
    /// Object that is affected.
    pub subject: Subject,
    /// Description of the condition: one sentence without a full stop.
    pub message: String,
    /// Recommended action; empty if none is required.
    pub action: String,
    /// Further facts that help to locate the cause, such as disks with serial number and slot.
    pub details: Vec<String>,
    /// Time of the first occurrence.
    pub since: Timestamp,
    /// Time of the latest occurrence.
    pub last: Timestamp,
    /// Number of occurrences.
    pub count: u64,
    /// True if the alert stays until an operator acknowledges it, unless something else ends it before.
    #[serde(default)]
    pub requires_acknowledgment: bool,
}

/// Receiver of alerts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverReport {
    /// Name of the receiver.
    pub name: Name,
    /// Delivery method.
    pub delivery: ReceiverWay,
    /// Trust anchor for the TLS connection to the receiver.
    pub trust: ReceiverTrust,
    /// Lowest severity that is reported to this receiver.
    pub min_severity: EventSeverity,
    /// Time for which alerts are collected before one notification is sent.
    pub gather: Span,
    /// Interval after which alerts that still exist are reported again; zero means never.
    pub remind: Span,
    /// True if Blockyard authenticates to the receiver, with a password or a signature.
    pub has_secret: bool,
    /// Time of the last successful delivery.
    pub last_success: Option<Timestamp>,
    /// Time of the last failed delivery.
    pub last_failure: Option<Timestamp>,
    /// Error of the last failed delivery.
    pub error: Option<String>,
    /// True while a notification could not be delivered.
    pub is_failing: bool,
}

/// Delivery method of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReceiverWay {
    /// Electronic mail.
    Mail {
        /// Recipient addresses.
        to: Vec<String>,
        /// Sender address.
        from: String,
        /// Mail server: a name or address, and a port.
        smtp: String,
        /// Encryption of the connection.
        tls: MailTls,
        /// User name for the login at the mail server.
        user: Option<String>,
    },
    /// HTTP request.
    Webhook {
        /// URL that the request is sent to.
        url: String,
        /// Format of the request.
        #[serde(alias = "form")]
        format: WebhookForm,
    },
}

/// Trust anchor for TLS connections of the array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReceiverTrust {
    /// Certificate authorities of the operating system.
    #[default]
    System,
    /// Certificate authorities in a file on the node.
    CaFile {
        /// Path of the file.
        path: String,
    },
    /// Pinned public key: only a server with this key is accepted.
    Pin {
        /// `sha256:` and 64 hexadecimal digits.
        pin: String,
    },
}

/// Encryption of the connection to a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailTls {
    /// STARTTLS: begins unencrypted and requires the upgrade to TLS. *Source*: RFC 3207.
    #[default]
    Starttls,
    /// TLS from the start of the connection. *Source*: RFC 8314.
    Implicit,
    /// No encryption.
    None,
}

/// Format of a webhook request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookForm {
    /// JSON with all fields.
    #[default]
    Generic,
    /// Text as expected by Slack, Mattermost and compatible services.
    Slack,
    /// Text with a title, as expected by ntfy.
    Ntfy,
}

/// Response of a receiver to a test notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverTest {
    /// Text of the response.
    pub response: String,
}

/// Forwarding of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardReport {
    /// Destination; absent if the audit log is not forwarded.
    pub to: Option<String>,
    /// Trust anchor for the TLS connection to the destination.
    pub trust: ReceiverTrust,
    /// Number of the last record that has been delivered.
    pub position: u64,
    /// Time of the last delivery.
    pub last: Option<Timestamp>,
    /// Current error, if forwarding fails.
    pub error: Option<String>,
}

/// Silence: suppresses notifications for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SilenceReport {
    /// Silenced event code, such as `BY-E302`, or subject, such as `pool tank`.
    pub matcher: String,
    /// End of the silence.
    pub until: Timestamp,
}

macro_rules! words {
    ($kind:ty, $what:literal, $hint:literal: $($variant:ident $word:literal),*) => {
        impl $kind {
            /// Returns the value as one word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $kind {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => {
                        let message = format!("{} is not {}", bounded::quoted(text), $what);
                        Err(Refusal::new(code::WORD_UNKNOWN, message, $hint))
                    }
                }
            }
        }
    };
}

words!(MailTls, "a TLS mode of a mail server", "write starttls, implicit or none":
    Starttls "starttls", Implicit "implicit", None "none");
words!(WebhookForm, "a webhook format", "write generic, slack or ntfy":
    Generic "generic", Slack "slack", Ntfy "ntfy");
