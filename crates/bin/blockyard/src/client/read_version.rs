//! Optimistic locking of changes: a change applies only to the object that the command has read.
//!
//! Used by commands that ask for confirmation: between question and answer another user may have changed the object, or
//! replaced it by one of the same name. The change carries the tag of the version that was read (`If-Match`, RFC 9110
//! §13.1.1); a refusal names both values.

use super::{Answer, Client};
use crate::failure::Failure;
use hyper::Method;
use model::{Refusal, code};
use serde::Serialize;
use serde_json::{Map, Value};

/// Fields of each noun that an administrator sets, and its identity. The other fields change by themselves and do not
/// count.
const SET: &[(&str, &[&str])] = &[
    ("disk", &["path", "spare"]),
    ("pool", &["id", "policy"]),
    ("snapshot", &["id", "lock"]),
    ("volume", &["id", "size", "policy"]),
];

/// Object as it was read.
pub(crate) struct ReadVersion {
    path: String,
    answer: Answer,
}

impl Client {
    /// Reads the object at `path`.
    ///
    /// *Errors*: it does not exist, or the daemon does not answer.
    pub(crate) fn read_version(&self, path: &str, key: &'static str) -> Result<ReadVersion, Failure> {
        Ok(ReadVersion { path: path.to_owned(), answer: self.get(path, key)? })
    }

    /// Sends `DELETE` for `path` with this query; if `seen` is given, only while the object is unchanged.
    pub(crate) fn delete_if_unchanged(
        &self,
        path: &str,
        query: &str,
        seen: Option<&ReadVersion>,
    ) -> Result<(), Failure> {
        let sent = self.send(Method::DELETE, &format!("{path}{query}"), None, seen.and_then(ReadVersion::tag));
        sent.map(drop).map_err(|failure| self.with_both(failure, seen))
    }

    /// Sends `POST path` and returns the answer under `key`; if `seen` is given, only while the object is unchanged.
    pub(crate) fn post_if_unchanged(
        &self,
        path: &str,
        body: &impl Serialize,
        key: &'static str,
        seen: Option<&ReadVersion>,
    ) -> Result<Answer, Failure> {
        let sent = self.send(Method::POST, path, Some(super::json(body)?), seen.and_then(ReadVersion::tag));
        sent.map(|said| said.under(key)).map_err(|failure| self.with_both(failure, seen))
    }

    /// Extends the failure by the old and the new values, if the object has changed.
    fn with_both(&self, failure: Failure, seen: Option<&ReadVersion>) -> Failure {
        let (Failure::Refused(refusal), Some(seen)) = (&failure, seen) else { return failure };
        if refusal.code != code::CHANGED_SINCE {
            return failure;
        }
        // The object may be gone by now; the refusal is then the best description.
        let Ok(now) = self.get(&seen.path, seen.answer.key) else { return failure };
        let both = differences(&set_of(&seen.answer), &set_of(&now));
        if both.is_empty() {
            return failure;
        }
        // Only the colon before the appended values remains.
        let message = format!("{}: {}", refusal.message.replace(": ", ", "), both.join(", "));
        Refusal::new(refusal.code, message, "check the object, then repeat the command if it is still needed").into()
    }
}

impl ReadVersion {
    fn tag(&self) -> Option<&str> {
        self.answer.tag.as_deref()
    }
}

/// Returns the fields of the object that an administrator sets.
fn set_of(answer: &Answer) -> Value {
    // A noun without an entry has no such fields, so the refusal stays as it is.
    let keys = SET.iter().find(|(noun, _)| *noun == answer.key).map_or(&[][..], |(_, keys)| keys);
    let thing = &answer.whole[answer.key];
    Value::Object(keys.iter().map(|key| ((*key).to_owned(), thing[key].clone())).collect::<Map<_, _>>())
}

/// Describes each value that has changed: `size was 33554432 and is 67108864`.
fn differences(was: &Value, is: &Value) -> Vec<String> {
    fn compare(path: &str, was: &Value, is: &Value, told: &mut Vec<String>) {
        match (was, is) {
            (Value::Object(before), Value::Object(after)) => {
                // Keys of both sides, each once: a field may have been added or removed.
                let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
                for key in keys {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    compare(&below, &was[key], &is[key], told);
                }
            }
            _ if was == is => {}
            _ => told.push(format!("{path} changed from {} to {}", said(was), said(is))),
        }
    }
    let mut told = Vec::new();
    compare("", was, is, &mut told);
    told
}

/// Formats a value for people.
fn said(value: &Value) -> String {
    match value {
        // The API reports a disabled setting as null.
        Value::Null => "off".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_that_differ_are_both_told_and_what_moves_by_itself_is_not() {
        let of = |size, limit: Value, reads| Answer {
            whole: json!({ "volume": { "id": "a", "size": size, "policy": { "iops": limit }, "counters": { "reads": reads } } }),
            key: "volume",
            tag: None,
        };
        let (was, is) = (of(1 << 20, Value::Null, 1), of(2 << 20, json!(500), 9));
        let told = differences(&set_of(&was), &set_of(&is));
        assert_eq!(told, ["policy.iops changed from off to 500", "size changed from 1048576 to 2097152"]);
        assert!(differences(&set_of(&was), &set_of(&of(1 << 20, Value::Null, 7))).is_empty());
    }
}
