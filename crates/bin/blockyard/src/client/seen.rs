//! What a command has read before it changes something, so that the change is made to that and to nothing else.
//!
//! Commands that ask for confirmation use it: between the question and the answer somebody else may have changed the thing, or made
//! another one of the same name. The change carries the tag of what was read (`If-Match`, RFC 9110 §13.1.1); a refusal names both values.

use super::{Answer, Client};
use crate::failure::Failure;
use hyper::Method;
use model::{Refusal, code};
use serde::Serialize;
use serde_json::{Map, Value};

/// What an operator sets of each noun, and which one it is. The rest moves by itself and is no change.
const SET: &[(&str, &[&str])] = &[
    ("disk", &["path", "spare"]),
    ("pool", &["id", "policy"]),
    ("snapshot", &["id", "lock"]),
    ("volume", &["id", "size", "policy"]),
];

/// One thing as it was when it was read.
pub(crate) struct Seen {
    path: String,
    answer: Answer,
}

impl Client {
    /// What is at `path` now.
    ///
    /// *Errors*: nothing is there, or the daemon does not answer.
    pub(crate) fn look(&self, path: &str, key: &'static str) -> Result<Seen, Failure> {
        Ok(Seen { path: path.to_owned(), answer: self.get(path, key)? })
    }

    /// `DELETE` of what is there, with this query; where it was seen, only as long as it is what was seen.
    pub(crate) fn delete_as_seen(&self, path: &str, query: &str, seen: Option<&Seen>) -> Result<(), Failure> {
        let sent = self.send(Method::DELETE, &format!("{path}{query}"), None, seen.and_then(Seen::tag));
        sent.map(drop).map_err(|failure| self.with_both(failure, seen))
    }

    /// What `POST path` answers under `key`; where something was seen, only as long as it is that.
    pub(crate) fn post_as_seen(
        &self,
        path: &str,
        body: &impl Serialize,
        key: &'static str,
        seen: Option<&Seen>,
    ) -> Result<Answer, Failure> {
        let sent = self.send(Method::POST, path, Some(super::json(body)?), seen.and_then(Seen::tag));
        sent.map(|said| said.under(key)).map_err(|failure| self.with_both(failure, seen))
    }

    /// The failure; where what was seen has changed, with what it was and what it is.
    fn with_both(&self, failure: Failure, seen: Option<&Seen>) -> Failure {
        let (Failure::Refused(refusal), Some(seen)) = (&failure, seen) else { return failure };
        if refusal.code != code::CHANGED_SINCE {
            return failure;
        }
        let Ok(now) = self.get(&seen.path, seen.answer.key) else { return failure };
        let both = differences(&set_of(&seen.answer), &set_of(&now));
        if both.is_empty() {
            return failure;
        }
        let message = format!("{}: {}", refusal.message.replace(": ", ", "), both.join(", "));
        Refusal::new(refusal.code, message, "look at it, and repeat the command if that is still wanted").into()
    }
}

impl Seen {
    fn tag(&self) -> Option<&str> {
        self.answer.tag.as_deref()
    }
}

/// What is set of the thing in the answer.
fn set_of(answer: &Answer) -> Value {
    let keys = SET.iter().find(|(noun, _)| *noun == answer.key).map_or(&[][..], |(_, keys)| keys);
    let thing = &answer.whole[answer.key];
    Value::Object(keys.iter().map(|key| ((*key).to_owned(), thing[key].clone())).collect::<Map<_, _>>())
}

/// For each value that is not what it was, a clause that says so: `size was 33554432 and is 67108864`.
fn differences(was: &Value, is: &Value) -> Vec<String> {
    fn compare(path: &str, was: &Value, is: &Value, told: &mut Vec<String>) {
        match (was, is) {
            (Value::Object(before), Value::Object(after)) => {
                let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
                for key in keys {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    compare(&below, &was[key], &is[key], told);
                }
            }
            _ if was == is => {}
            _ => told.push(format!("{path} was {} and is {}", said(was), said(is))),
        }
    }
    let mut told = Vec::new();
    compare("", was, is, &mut told);
    told
}

/// A value as people read it.
fn said(value: &Value) -> String {
    match value {
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
        assert_eq!(told, ["policy.iops was off and is 500", "size was 1048576 and is 2097152"]);
        assert!(differences(&set_of(&was), &set_of(&of(1 << 20, Value::Null, 7))).is_empty());
    }
}
