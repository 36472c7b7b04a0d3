//! Who has changed what, as others see it.

use model::{How, Role, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// One call that changes something or reads data of hosts: as an intent before it begins, and as a result once it was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// Its number: one more than that of the record before.
    pub number: u64,
    /// When it was written.
    pub time: Timestamp,
    /// Whether it was written before the call began or after it was answered.
    pub phase: Phase,
    /// For a result, the number of its intent; none for calls that were refused before they began, and for logins.
    #[serde(default)]
    pub intent: Option<u64>,
    /// Who asked; none for somebody who had not logged in.
    pub caller: Option<String>,
    /// What the caller may do.
    pub role: Option<Role>,
    /// How the caller was known.
    pub how: Option<How>,
    /// From where; none for this machine's socket.
    pub address: Option<IpAddr>,
    /// The method of the call.
    pub method: String,
    /// Its path and query.
    pub path: String,
    /// Its body, without secrets; of an intent the name in it alone.
    pub body: Value,
    /// The status of its answer; none for an intent.
    pub status: Option<u16>,
    /// The code of the refusal, where it was refused.
    pub code: Option<String>,
    /// For each value that it has changed, by its path with dots, `{"was":…,"is":…}`; null where nothing can be looked at
    /// under the path of the call.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub changed: Value,
    /// So many calls of strangers that were refused before this one have no record of their own.
    #[serde(default)]
    pub unrecorded: u64,
    /// The hash of the record before, in hexadecimal.
    pub before: String,
    /// SHA3-256 of this record as it is written, without this key, in hexadecimal.
    #[serde(default)]
    pub hash: String,
}

/// When a record was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the call began. One without a result was cut short, or runs.
    Intent,
    /// After the call was answered.
    #[default]
    Result,
}

/// Records, the latest first. Intents are listed where their results are not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// The records.
    pub records: Vec<AuditRecord>,
    /// What to ask for as `before` for those that come next; none where there are no more.
    pub next: Option<u64>,
}

/// What a look at the whole chain has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditCheck {
    /// The number of the first record that is kept; 0 where there is none.
    pub first: u64,
    /// The number of the last one.
    pub last: u64,
    /// How many were read.
    pub records: u64,
    /// The hash of the last one, to be written down elsewhere.
    pub hash: String,
    /// The first record that is not as it was written.
    pub broken: Option<AuditBroken>,
    /// What else is damaged or missing: the head, and what opening the audit has found.
    #[serde(default)]
    pub findings: Vec<String>,
}

/// A record that is not as it was written, or is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditBroken {
    /// Its number.
    pub number: u64,
    /// What is wrong with it.
    pub why: String,
}
