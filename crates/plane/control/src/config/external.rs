//! Sections of a document outside the state: users and alert receivers, which the front ends keep.

use super::Document;
use super::plan::{Step, StepKind};
use crate::request::SecretText;
use model::{EventSeverity, MailTls, Refusal, Role, Span, WebhookForm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A user. Credentials are in no document: a new user has no password until an admin hands over a login link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// Role of the user.
    pub role: Role,
}

/// An alert receiver: by mail with `to` and `smtp`, by HTTP request with `url`. Secrets are never exported: an
/// absent secret leaves the present one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverEntry {
    /// Mail addresses of the recipients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Sender address; `blockyard@` and the node's name when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// SMTP server, as host and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smtp: Option<String>,
    /// TLS mode of the connection to it; `starttls` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<MailTls>,
    /// User name for the SMTP login, which requires a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Password of that user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretText>,
    /// Path of a file that holds the password alone, on the machine where the document is applied; the daemon
    /// does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// URL of a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Message format of the webhook; `generic` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "form")]
    pub format: Option<WebhookForm>,
    /// True to sign messages; a new receiver needs a secret for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub signed: bool,
    /// Secret that messages are signed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
    /// Path of a file that holds the secret alone, on the machine where the document is applied; the daemon
    /// does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// Path of a file on the node with the trusted CA certificates; those of the system when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Pinned certificate key, which is trusted whatever its certificate says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Lowest severity that is reported; `warning` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "least")]
    pub min_severity: Option<EventSeverity>,
    /// Time for which simultaneous alerts are gathered into one message; 10 seconds when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gather: Option<Span>,
    /// Interval of reminders while a condition lasts; a day when absent, none when zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remind: Option<Span>,
}

/// Keeper of users and receivers, acting for one caller.
pub trait ExternalSections: Send + Sync {
    /// Adds its sections to the document, as far as the caller may see them.
    fn export(&self, document: &mut Document);

    /// Plans the changes of the document.
    ///
    /// *Errors*: they are impossible, or the caller is not permitted to make them.
    fn plan(&self, document: &Document, prune: bool) -> Result<ExternalPlan, Refusal>;

    /// Applies the changes of the document provisionally.
    ///
    /// *Errors*: as for a plan, or they could not be written; nothing is changed then.
    fn commit(&self, document: &Document, prune: bool) -> Result<Box<dyn ProvisionalChange>, Refusal>;
}

/// Provisional changes, to be kept or rolled back with the rest of a document.
pub trait ProvisionalChange: Send {
    /// Keeps the changes; access that they remove ends now.
    fn finalize(self: Box<Self>);

    /// Rolls the changes back.
    ///
    /// *Errors*: that could not be written.
    fn roll_back(self: Box<Self>) -> Result<(), Refusal>;
}

/// Plan of the changes outside the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalPlan {
    /// The changes, in order.
    pub steps: Vec<Step>,
    /// Objects that the document's section does not name, and that stay.
    pub kept: Vec<String>,
    /// Fingerprint of users and receivers at the time of the plan; equal as long as they have not changed.
    pub fingerprint: String,
}

/// No users and receivers, for callers without them.
impl ExternalSections for () {
    fn export(&self, _: &mut Document) {}

    fn plan(&self, _: &Document, _: bool) -> Result<ExternalPlan, Refusal> {
        Ok(ExternalPlan::default())
    }

    fn commit(&self, _: &Document, _: bool) -> Result<Box<dyn ProvisionalChange>, Refusal> {
        Ok(Box::new(()))
    }
}

impl ProvisionalChange for () {
    fn finalize(self: Box<Self>) {}

    fn roll_back(self: Box<Self>) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Step {
    /// Returns a step without effect on sessions of hosts.
    pub fn unnoticed(kind: StepKind, subject: String, change: String) -> Self {
        Self { kind, subject, change, sessions: 0, effect: None }
    }
}
