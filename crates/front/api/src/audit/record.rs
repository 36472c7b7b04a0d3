//! Audit records and the results of queries, as they appear in the API.

use model::{AuthMethod, Role, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// Audit record of a call that changes something or reads data of hosts: an intent before the call starts, a result
/// after it was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// Number of the record: one more than that of the record before.
    pub number: u64,
    /// Time at which the record was written.
    pub time: Timestamp,
    /// Phase of the call: before its start (intent) or after its answer (result).
    pub phase: Phase,
    /// Number of the intent that belongs to this result; null for calls that were refused before their start, and for
    /// logins.
    #[serde(default)]
    pub intent: Option<u64>,
    /// Name of the caller; null if the caller was not authenticated.
    pub caller: Option<String>,
    /// Role of the caller.
    pub role: Option<Role>,
    /// Method of authentication of the caller.
    #[serde(alias = "how")]
    pub auth_method: Option<AuthMethod>,
    /// Remote address of the caller; null for the local socket.
    pub address: Option<IpAddr>,
    /// HTTP method of the call.
    pub method: String,
    /// Path and query of the call.
    pub path: String,
    /// Body of the call without secrets; for an intent only the name in it.
    pub body: Value,
    /// HTTP status of the answer; null for an intent.
    pub status: Option<u16>,
    /// Code of the refusal, if the call was refused.
    pub code: Option<String>,
    /// Changed values by their dotted paths, each `{"was":…,"is":…}`; null if nothing can be read at the path of the
    /// call.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub changed: Value,
    /// Number of refused calls by unauthenticated clients before this one that have no record of their own.
    #[serde(default)]
    pub unrecorded: u64,
    /// Hash of the record before, in hexadecimal.
    pub before: String,
    /// SHA3-256 of this record as written, without this key, in hexadecimal.
    #[serde(default)]
    pub hash: String,
}

/// Phase of a call at which a record was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the call started. An intent without a result is running or was interrupted.
    Intent,
    /// After the call was answered.
    #[default]
    Result,
}

/// Page of audit records, the latest first. An intent is listed if its result is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// Records of the page.
    pub records: Vec<AuditRecord>,
    /// Value of `before` for the next page; null on the last page.
    pub next: Option<u64>,
}

/// Result of verifying the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditCheck {
    /// Number of the first record that is kept; 0 if there is none.
    pub first: u64,
    /// Number of the last record.
    pub last: u64,
    /// Number of records read.
    pub records: u64,
    /// Hash of the last record, to be noted elsewhere.
    pub hash: String,
    /// First record that is changed or missing; null if the chain is intact.
    pub broken: Option<AuditBroken>,
    /// Other damage: the head, and what was found when the audit log was opened.
    #[serde(default)]
    pub findings: Vec<String>,
}

/// Record of the audit log that was changed or is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditBroken {
    /// Number of the record.
    pub number: u64,
    /// Description of the damage.
    pub reason: String,
}
