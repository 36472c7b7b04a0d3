//! What a document holds beside the state: users and receivers of alerts, which the doors of the array keep.

use super::Document;
use super::plan::{Step, StepKind};
use crate::request::SecretText;
use model::{EventSeverity, MailTls, Refusal, Role, Span, WebhookForm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A user. What it proves itself with stands in no document: one that is made has no password until an admin gives it a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// What it may do.
    pub role: Role,
}

/// A receiver of alerts: by mail where `to` and `smtp` are given, by an HTTP request where `url` is. Secrets are never exported:
/// without one the secret that is there stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverEntry {
    /// To whom mail goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// From whom; `blockyard@` and the node's name when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The server that takes the mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smtp: Option<String>,
    /// How the connection to it is kept from others; `starttls` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<MailTls>,
    /// As whom to log in there, which takes a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password of that user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretText>,
    /// A file that holds the password alone, beside whoever applies the document; the daemon does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// Where a webhook is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// In which form it is told; `generic` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<WebhookForm>,
    /// True when its messages are signed: one that is made takes a secret then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub signed: bool,
    /// What its messages are signed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
    /// A file that holds the secret alone, beside whoever applies the document; the daemon does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// A file of the node with the authorities to believe; the system's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// The key to believe, whatever its certificate says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// It is told of what is as bad or worse; `warning` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<EventSeverity>,
    /// For how long what happens together is gathered; 10 seconds when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gather: Option<Span>,
    /// After how long it is told again of what is still so; a day when absent, never when zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remind: Option<Span>,
}

/// Whoever keeps users and receivers, for the one who asks.
pub trait Annex: Send + Sync {
    /// What there is of it stands in the document, as far as whoever asks may see it.
    fn export(&self, document: &mut Document);

    /// What the document would change.
    ///
    /// *Errors*: it could not be, or whoever asks may not ask for it.
    fn plan(&self, document: &Document, prune: bool) -> Result<AnnexPlan, Refusal>;

    /// It is what the document says, until it is known whether that stays.
    ///
    /// *Errors*: as of a plan, or it could not be written; it is then as it was.
    fn commit(&self, document: &Document, prune: bool) -> Result<Box<dyn Pending>, Refusal>;
}

/// What was changed with the rest of a document, and may have to go back with it.
pub trait Pending: Send {
    /// It stays, and who loses something by it loses it now.
    fn keep(self: Box<Self>);

    /// It is as it was.
    ///
    /// *Errors*: it could not be written.
    fn take_back(self: Box<Self>) -> Result<(), Refusal>;
}

/// What a document would change of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnexPlan {
    /// What would be done.
    pub steps: Vec<Step>,
    /// What is there, is not in the section that the document has, and stays.
    pub kept: Vec<String>,
    /// What tells how it was when this was said; the same as long as it is so.
    pub seen: String,
}

/// Nobody keeps any of it.
impl Annex for () {
    fn export(&self, _: &mut Document) {}

    fn plan(&self, _: &Document, _: bool) -> Result<AnnexPlan, Refusal> {
        Ok(AnnexPlan::default())
    }

    fn commit(&self, _: &Document, _: bool) -> Result<Box<dyn Pending>, Refusal> {
        Ok(Box::new(()))
    }
}

impl Pending for () {
    fn keep(self: Box<Self>) {}

    fn take_back(self: Box<Self>) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Step {
    /// A step that no session of a host notices.
    pub fn unnoticed(kind: StepKind, subject: String, change: String) -> Self {
        Self { kind, subject, change, sessions: 0, effect: None }
    }
}
