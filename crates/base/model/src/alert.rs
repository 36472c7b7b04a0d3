//! What is wrong now, and who is told of it, as others see it.

use crate::{EventCode, EventSeverity, Name, Refusal, Span, Subject, Timestamp, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Something that is wrong now, once however often its event comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertReport {
    /// What is wrong.
    #[serde(flatten)]
    pub facts: AlertFacts,
    /// The receivers that were told.
    pub told: Vec<Name>,
    /// Until when nobody is told, where somebody has silenced it.
    pub silenced: Option<Timestamp>,
}

/// What is wrong, or was: the same for whoever looks and whoever is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertFacts {
    /// Its number: the same from when it is raised to its end.
    pub number: u64,
    /// What sort of event it is.
    pub code: EventCode,
    /// How bad it is.
    pub severity: EventSeverity,
    /// What it is about.
    pub subject: Subject,
    /// What is so, in one sentence without its full stop.
    pub sentence: String,
    /// What to do about it; empty where there is nothing to do.
    pub action: String,
    /// What else helps to find it: disks with serial number and place.
    pub details: Vec<String>,
    /// Since when it is so.
    pub since: Timestamp,
    /// When it was so last.
    pub last: Timestamp,
    /// How often it has come.
    pub times: u64,
    /// True where it stays until an operator takes note of it, if nothing else ends it before.
    #[serde(default)]
    pub waits_for_you: bool,
}

/// Somebody who is told of alerts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverReport {
    /// What it is called.
    pub name: Name,
    /// How it is told.
    pub way: ReceiverWay,
    /// Whom we believe there.
    pub trust: ReceiverTrust,
    /// It is told of what is as bad or worse.
    pub least: EventSeverity,
    /// For how long what happens together is gathered before it is told.
    pub gather: Span,
    /// After how long it is told again of what is still so; never when zero.
    pub remind: Span,
    /// True where we prove who we are: with a password, or by signing.
    pub has_secret: bool,
    /// When it was told something last.
    pub succeeded: Option<Timestamp>,
    /// When that failed last.
    pub failed: Option<Timestamp>,
    /// Why it failed last.
    pub why: Option<String>,
    /// True while what it should know could not be said to it.
    pub is_away: bool,
}

/// How a receiver is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReceiverWay {
    /// By mail.
    Mail {
        /// To whom.
        to: Vec<String>,
        /// From whom.
        from: String,
        /// The server that takes the mail: a name or address, and a port.
        smtp: String,
        /// How the connection is kept from others.
        tls: MailTls,
        /// As whom we log in there.
        user: Option<String>,
    },
    /// By an HTTP request.
    Webhook {
        /// Where to.
        url: String,
        /// In which form.
        form: WebhookForm,
    },
}

/// Whom we believe at the other end of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReceiverTrust {
    /// Whoever the authorities of the system vouch for.
    #[default]
    System,
    /// Whoever the authorities in this file of the node vouch for.
    CaFile {
        /// The file.
        path: String,
    },
    /// Whoever has this key.
    Pin {
        /// `sha256:` and 64 hexadecimal digits.
        pin: String,
    },
}

/// How a connection to a mail server is kept from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailTls {
    /// It begins in the clear, and must go on under TLS. *Source*: RFC 3207.
    #[default]
    Starttls,
    /// It is under TLS from the start. *Source*: RFC 8314.
    Implicit,
    /// It is in the clear.
    None,
}

/// In which form a webhook is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookForm {
    /// Everything, as JSON.
    #[default]
    Generic,
    /// A text, as Slack, Mattermost and others take it.
    Slack,
    /// A text with a title, as ntfy takes it.
    Ntfy,
}

/// What a receiver has answered to a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverTest {
    /// Its words.
    pub said: String,
}

/// Where the audit goes as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardReport {
    /// Where to; none when it goes nowhere.
    pub to: Option<String>,
    /// Whom we believe there.
    pub trust: ReceiverTrust,
    /// The number of the last record that counts as said there.
    pub position: u64,
    /// When something was said last.
    pub last: Option<Timestamp>,
    /// Why it does not go there just now.
    pub why: Option<String>,
}

/// What nobody is told of for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SilenceReport {
    /// What: a code such as `BY-E302`, or a subject such as `pool tank`.
    pub what: String,
    /// Until when.
    pub until: Timestamp,
}

macro_rules! words {
    ($kind:ty, $what:literal, $hint:literal: $($variant:ident $word:literal),*) => {
        impl $kind {
            /// It in one word.
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

words!(MailTls, "how a connection to a mail server is kept", "write starttls, implicit or none":
    Starttls "starttls", Implicit "implicit", None "none");
words!(WebhookForm, "a form of a webhook", "write generic, slack or ntfy":
    Generic "generic", Slack "slack", Ntfy "ntfy");
