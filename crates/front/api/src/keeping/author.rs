//! Who has changed something last, as the audit has it, for the refusal of a change that was made without knowing of that.

use crate::audit::{AuditRecord, Phase};
use crate::row::{BASE, Question};
use control::now;
use serde_json::Value;

/// So many of the latest records are looked through. A change that is older was seen by whoever looked within this hour.
const RECORDS_MAX: usize = 500;

/// `alice made the latest change 18 s ago (audit record 57)`; none where the audit does not say. `path` is where what is changed is looked at, as rows
/// write it.
pub(crate) async fn of_last_change(question: &Question, path: &str) -> Option<String> {
    let door = question.door()?;
    let noun = path.trim_start_matches('/').split('/').next()?;
    let page = door.audit.page(None, RECORDS_MAX, None).await.ok()?;
    let record = page.records.iter().find(|record| changes(record, noun, question.name()))?;
    let by = record.caller.as_deref().unwrap_or("an unknown caller");
    let ago = said(now().since(record.time));
    Some(format!("{by} made the latest change {ago} ago (audit record {})", record.number))
}

/// True for a call that has changed, made or removed this thing of this noun.
fn changes(record: &AuditRecord, noun: &str, name: &str) -> bool {
    let done = record.phase == Phase::Result && record.status.is_some_and(|status| (200..300).contains(&status));
    if !done || record.method == "GET" {
        return false;
    }
    let path = record.path.split('?').next().unwrap_or_default().replace("%2F", "/").replace("%2f", "/");
    let Some(path) = path.strip_prefix(BASE).and_then(|path| path.strip_prefix('/')) else { return false };
    let own = if name.is_empty() { noun.to_owned() } else { format!("{noun}/{name}") };
    let below = path.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let whole = ["config/", "setup"].iter().any(|at| path.starts_with(at));
    below || path == noun && record.body["name"] == name || whole && mentions(&record.body, name)
}

/// True where the name stands in the body of a document, as a key or as a value.
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
