//! Copies of the state outside its folder: written to the disks of pools, listed and restored by an operator,
//! never automatically.

use super::events::EVENTS;
use super::file_format::{self, FORMAT, Header};
use super::folder::{Folder, ReadResult};
use super::{STATE, Store, damaged};
use model::{Refusal, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A copy whose checksum matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// Version number of the state.
    pub version: u64,
    /// Time at which it was written.
    pub time: Timestamp,
    /// Identity of the node that wrote it.
    pub node: String,
    /// ID of the key that its secrets are sealed with.
    pub key: String,
    state: Value,
    header: Header,
}

impl Copy {
    /// Parses a copy; `None` where its checksum or format does not match.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, body) =
            file_format::parse(bytes).ok().filter(|(header, _)| header.name == STATE && header.format == FORMAT)?;
        let state = serde_json::from_slice(body).ok()?;
        let (version, time, node, key) = (header.number, header.time, header.node.clone(), header.key.clone());
        Some(Self { version, time, node, key, state, header })
    }

    /// Describes the differences from `other`, part by part; empty where both are equal.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let parts = |copy: &Self| copy.state.as_object().cloned().unwrap_or_default();
        let (own, others) = (parts(self), parts(other));
        let changed = own.iter().filter(|(part, value)| others.get(*part) != Some(value));
        changed.map(|(part, value)| difference(part, value, others.get(part).unwrap_or(&Value::Null))).collect()
    }
}

fn difference(part: &str, own: &Value, other: &Value) -> String {
    let (Value::Object(own), Value::Object(other)) = (own, other) else {
        let count = |value: &Value| value.as_array().map(Vec::len);
        return match (count(own), count(other)) {
            (Some(own), Some(other)) => format!("{part}: {own} instead of {other}"),
            _ => format!("{part} differs"),
        };
    };
    let more = own.keys().filter(|name| !other.contains_key(*name)).map(|name| format!("+{name}"));
    let less = other.keys().filter(|name| !own.contains_key(*name)).map(|name| format!("-{name}"));
    let changed = own.iter().filter(|(name, value)| other.get(*name).is_some_and(|other| other != *value));
    let all: Vec<String> = more.chain(less).chain(changed.map(|(name, _)| format!("~{name}"))).collect();
    format!("{part}: {}", all.join(" "))
}

/// Returns the latest whole version in the folder; `None` where there is none.
///
/// *Errors*: a daemon holds the folder, or it cannot be read.
pub fn latest(dir: &Path) -> Result<Option<Copy>, Refusal> {
    let folder = Folder::open(dir)?;
    // From the newest version down.
    for number in folder.list()?.remove(STATE).unwrap_or_default().into_iter().rev() {
        if let ReadResult::Whole(header, body) = folder.read(STATE, number)? {
            let bytes = file_format::emit(&header, &body).map_err(|error| damaged(dir, &error))?;
            return Ok(Copy::parse(&bytes));
        }
    }
    Ok(None)
}

/// Restores the copy as the latest version of the state in the folder and returns its number. Damaged versions
/// are renamed and kept. *Durability*: it survives power loss.
///
/// *Errors*: a daemon holds the folder, or it cannot be written.
pub fn restore(dir: &Path, copy: &Copy) -> Result<u64, Refusal> {
    let folder = Folder::open(dir)?;
    let (mut last, mut lost, mut documents) = (copy.version, Vec::new(), BTreeMap::new());
    for (name, numbers) in folder.list()? {
        if !matches!(name.as_str(), STATE | EVENTS) {
            // Numbers of the documents in this folder: the copy carries none of them, and its own numbers would
            // report them as missing.
            documents.extend(numbers.last().map(|number| (name.clone(), *number)));
        }
        for number in numbers {
            match folder.read(&name, number)? {
                // Documents and events name the state version of their time, so their headers count as well.
                ReadResult::Whole(header, _) => last = last.max(header.state),
                ReadResult::Damaged(_) if name == STATE => {
                    last = last.max(number);
                    lost.push(number);
                }
                // A damaged document is left to the next start, which reports it.
                ReadResult::Damaged(_) => {}
            }
        }
    }
    // Above every version that any file names, so that the next start takes it for the latest.
    let number = last + 1;
    let time = crate::system::now();
    // Marked as a change of access, because hosts may be admitted by it that were not before.
    let header = Header { number, state: number, time, access: true, documents, ..copy.header.clone() };
    let body = serde_json::to_vec(&copy.state).map_err(|error| damaged(dir, &error))?;
    folder.write(&header, &body)?;
    // Only after the copy is durable.
    lost.into_iter().try_for_each(|number| folder.quarantine(STATE, number))?;
    Ok(number)
}

impl Store {
    /// Returns the file of the current version, to be copied to pool disks; `None` while an older version is
    /// served, and where it cannot be read.
    pub(crate) fn file_of_present(&self) -> Option<(u64, Vec<u8>)> {
        let current = self.current();
        // An older version must not replace the copies of the lost one on the pool disks.
        if current.hold.is_some() {
            return None;
        }
        let number = current.version;
        match self.folder.read(STATE, number) {
            Ok(ReadResult::Whole(header, body)) => Some((number, file_format::emit(&header, &body).ok()?)),
            _ => None,
        }
    }
}
