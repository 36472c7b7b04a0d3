//! Record of a call before its answer, without secrets.

use super::{Answered, AuditRecord, Phase};
use crate::gate::Caller;
use axum::body::Bytes;
use axum::http::{Method, Uri};
use model::{AuthMethod, Role, Timestamp};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

/// Keys whose values are secrets, at any depth of a body.
pub(crate) const SECRET_KEYS: [&str; 6] = ["secret", "password", "old_password", "token", "code", "key"];

/// Replacement of a secret.
const HIDDEN: &str = "…";

/// Longest body that is recorded, in bytes; a longer one is recorded by its length.
const BODY_BYTES_MAX: usize = 16 << 10;

/// A call before its answer.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    caller: Option<String>,
    role: Option<Role>,
    how: Option<AuthMethod>,
    address: Option<IpAddr>,
    method: String,
    path: String,
    body: Value,
    /// Value of `name` in the body, if it can only be a name.
    named: Option<String>,
    /// Number of its intent record, once written.
    intent: Option<u64>,
}

impl Entry {
    /// Creates the entry of an unauthenticated call, without secrets.
    pub(crate) fn of(from: Option<SocketAddr>, method: &Method, uri: &Uri, body: &Bytes) -> Self {
        Self {
            caller: None,
            role: None,
            how: None,
            address: from.map(|from| from.ip()),
            method: method.to_string(),
            // With the query, which may confirm a change.
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            body: shown(body),
            named: named(body),
            intent: None,
        }
    }

    /// Sets the number of the intent record.
    pub(crate) fn begun(self, intent: u64) -> Self {
        Self { intent: Some(intent), ..self }
    }

    /// Intent record, written before the call starts. It contains only the name from the body, because the secret keys
    /// are not known before the body was parsed.
    pub(crate) fn intent(&self, time: Timestamp) -> AuditRecord {
        let body = self.named.as_ref().map_or(Value::Null, |name| serde_json::json!({ "name": name }));
        AuditRecord {
            phase: Phase::Intent,
            status: None,
            body,
            ..self.clone().record(time, Answered { status: 0, code: None, changed: Value::Null }, 0)
        }
    }

    /// Entry for a finding at the opening of the audit log; it belongs to no call.
    pub(crate) fn finding(sentence: &str) -> Self {
        let (role, how, address, named, intent) = Default::default();
        Self {
            caller: Some("the daemon".to_owned()),
            role,
            how,
            address,
            method: "OPEN".to_owned(),
            path: "/audit".to_owned(),
            body: Value::String(sentence.to_owned()),
            named,
            intent,
        }
    }

    /// Sets the caller, if it is known.
    pub(crate) fn by(self, caller: Option<&Caller>) -> Self {
        Self {
            caller: caller.map(|caller| caller.name.clone()),
            role: caller.map(|caller| caller.role),
            how: caller.map(Caller::how),
            ..self
        }
    }

    /// Replaces the body, of `bytes` bytes, by its length: under unknown keys anything may be a secret.
    pub(crate) fn not_understood(self, bytes: usize) -> Self {
        // An empty body needs no replacement.
        let says_nothing = self.body.is_null() || self.body.as_object().is_some_and(serde_json::Map::is_empty);
        let body = if says_nothing { Value::Null } else { unread(bytes) };
        Self { body, ..self }
    }

    /// True if the caller was not authenticated.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        self.caller.is_none()
    }

    /// Result record of the call. Its position in the chain is set when it is written.
    pub(crate) fn record(self, time: Timestamp, answered: Answered, unrecorded: u64) -> AuditRecord {
        let Self { caller, role, how, address, method, path, body, named: _, intent } = self;
        let Answered { status, code, mut changed } = answered;
        // Large changes, such as those of a whole document, would bloat the log.
        if changed.to_string().len() > BODY_BYTES_MAX {
            changed = Value::String("more than is written down".to_owned());
        }
        AuditRecord {
            number: 0,
            time,
            phase: Phase::Result,
            intent,
            caller,
            role,
            auth_method: how,
            address,
            method,
            path,
            body,
            status: Some(status),
            code: code.map(|code| code.to_string()),
            changed,
            unrecorded,
            before: String::new(),
            hash: String::new(),
        }
    }
}

/// Body in the form that may be recorded.
fn shown(body: &Bytes) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) if body.len() <= BODY_BYTES_MAX => {
            hide(&mut value);
            value
        }
        // A body that is not JSON is not parsed, and may contain anything.
        _ => unread(body.len()),
    }
}

/// Value of `name` in the body, if it can only be a name.
fn named(body: &Bytes) -> Option<String> {
    let body = serde_json::from_slice::<Value>(body).ok()?;
    let name = body.get("name")?.as_str()?;
    // Limited to characters of names, so that no secret under this key can slip through.
    let is_name = name.len() <= 128 && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_./:@".contains(&c));
    is_name.then(|| name.to_owned())
}

fn unread(bytes: usize) -> Value {
    Value::String(format!("{bytes} bytes"))
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                // `null` stays visible: that a secret was removed is not a secret.
                if SECRET_KEYS.contains(&key.as_str()) && !value.is_null() {
                    *value = Value::String(HIDDEN.to_owned());
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_shown_without_its_secrets() {
        let body =
            br#"{"name":"web","chap":{"user":"web","secret":"twelve bytes."},"mutual_chap":{"secret":{"hex":"00ff"}},
            "list":[{"password":"p"}],"old_password":"q","token":null}"#;
        let shown = shown(&Bytes::from_static(body));
        let text = shown.to_string();
        for secret in ["twelve", "00ff", "\"p\"", "\"q\""] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(
            (&shown["name"], &shown["chap"]["user"], &shown["chap"]["secret"]),
            (&"web".into(), &"web".into(), &HIDDEN.into())
        );
        assert!(shown["token"].is_null());
        assert_eq!(super::shown(&Bytes::from_static(b"secret=1")), "8 bytes");
        assert!(super::shown(&Bytes::new()).is_null());
    }

    /// Checks that every request field of a secret type has a key that is hidden.
    #[test]
    fn keys_of_secrets_are_hidden_whatever_their_type_is() {
        let sources = [
            include_str!("../../../../plane/control/src/request.rs"),
            include_str!("../../../../plane/control/src/request/chap.rs"),
            include_str!("../request.rs"),
            include_str!("../../../alert/src/request.rs"),
        ];
        let mut fields = 0;
        for source in sources {
            for line in source.lines().map(str::trim) {
                let Some((key, kind)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) else {
                    continue;
                };
                if kind.contains("SecretText") || kind.contains("Password") {
                    fields += 1;
                    assert!(SECRET_KEYS.contains(&key), "{key} of type {kind} would be written down");
                }
            }
        }
        assert!(fields >= 8, "only {fields} secrets were found: did they move?");
    }
}
