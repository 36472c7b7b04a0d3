//! Author of the last change of an object, from the audit log, for the refusal of a conflicting change.

use crate::audit::{AuditRecord, Phase};
use crate::row::{BASE, RowRequest};
use control::now;
use serde_json::Value;

/// Latest records that are searched. Clients are expected to have seen older changes.
const RECORDS_MAX: usize = 500;

/// Text such as `alice made the latest change 18 s ago (audit record 57)`; `None` if the audit log does not tell.
/// `path` is the path template at which the object is read.
pub(crate) async fn of_last_change(question: &RowRequest, path: &str) -> Option<String> {
    let door = question.gate()?;
    let noun = path.trim_start_matches('/').split('/').next()?;
    let page = door.audit.page(None, RECORDS_MAX, None).await.ok()?;
    // The newest record comes first, so the first match is the last change.
    let record = page.records.iter().find(|record| changes(record, noun, question.name()))?;
    let by = record.caller.as_deref().unwrap_or("an unknown caller");
    let ago = said(now().since(record.time));
    Some(format!("{by} made the latest change {ago} ago (audit record {})", record.number))
}

/// True for a successful call that changed, created or removed this object of this noun.
fn changes(record: &AuditRecord, noun: &str, name: &str) -> bool {
    let done = record.phase == Phase::Result && record.status.is_some_and(|status| (200..300).contains(&status));
    if !done || record.method == "GET" {
        return false;
    }
    // Names with a slash may be percent-encoded.
    let path = record.path.split('?').next().unwrap_or_default().replace("%2F", "/").replace("%2f", "/");
    let Some(path) = path.strip_prefix(BASE).and_then(|path| path.strip_prefix('/')) else { return false };
    let own = if name.is_empty() { noun.to_owned() } else { format!("{noun}/{name}") };
    let below = path.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    // Documents may change any object, so their bodies are searched for its name.
    let whole = ["config/", "setup"].iter().any(|at| path.starts_with(at));
    below || path == noun && record.body["name"] == name || whole && mentions(&record.body, name)
}

/// True if the name occurs in the body of a document, as a key or a value.
fn mentions(body: &Value, name: &str) -> bool {
    match body {
        Value::Object(object) => object.iter().any(|(key, value)| key == name || mentions(value, name)),
        Value::Array(values) => values.iter().any(|value| mentions(value, name)),
        Value::String(text) => text == name,
        _ => false,
    }
}

fn said(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
