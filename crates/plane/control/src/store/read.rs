//! Start-up read of the state folder: the latest whole version of everything, and what is missing.

use super::documents::{DISPOSABLE, Documents};
use super::events::EVENTS;
use super::file_format::{AuditHead, Header};
use super::folder::{Folder, Listed, ReadResult};
use super::hold::WriteHold;
use super::{STATE, damaged};
use model::{EventCode, Refusal, Timestamp, event};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Content of the folder.
#[derive(Default)]
pub(super) struct Read {
    /// Number of the latest whole version; 0 when there is none.
    pub version: u64,
    /// The latest whole version, its secrets sealed; null when there is none.
    pub state: Value,
    /// Whole versions on disk: write time, and whether the version changed the access of hosts.
    pub kept: BTreeMap<u64, (Timestamp, bool)>,
    pub documents: Documents,
    /// ID of the key that the latest version is sealed with; without a version, the IDs that other files name.
    pub keys: BTreeSet<String>,
    pub audit: AuditHead,
    pub findings: Vec<(EventCode, String)>,
    /// Sentences about lost newer versions that force a hold, and the files that are damaged.
    older: Vec<String>,
    damaged: Vec<(String, u64)>,
    /// The highest version number that any header names; likewise for each document.
    state_max: u64,
    documents_max: BTreeMap<String, u64>,
    /// Keys that headers name: the ID and the check value.
    checks: BTreeSet<(String, String)>,
    is_empty: bool,
}

/// Reads and verifies everything in the folder.
///
/// *Errors*: it cannot be read, a newer program wrote it, or there are versions of the state and none is whole.
pub(super) fn all(folder: &Folder) -> Result<Read, Refusal> {
    let listed = folder.list()?;
    let mut read = Read { is_empty: listed.is_empty(), ..Read::default() };
    for name in listed.keys().filter(|name| !matches!(name.as_str(), STATE)) {
        if name == EVENTS {
            read.headers_of(folder, name, &listed[name])?;
        } else {
            read.document(folder, name, &listed[name])?;
        }
    }
    // After the documents: their headers tell the highest version of the state that ever was.
    read.versions(folder, &listed)?;
    read.missing_documents();
    Ok(read)
}

impl Read {
    /// Returns true where there is no file at all.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns true if `check` matches the check values recorded for the key `id`; true also where files record
    /// none.
    pub(super) fn is_key(&self, id: &str, check: &str) -> bool {
        let mut told = self.checks.iter().filter(|(key, _)| key == id).map(|(_, told)| told).peekable();
        // Files of versions without a check value record none: the ID alone has to do.
        told.peek().is_none() || told.any(|told| told == check)
    }

    /// Returns the hold on writing; `None` where everything is the latest version.
    pub(super) fn hold(&self) -> Option<WriteHold> {
        (!self.older.is_empty()).then(|| WriteHold {
            sentences: self.older.clone(),
            damaged: self.damaged.clone(),
            version_max: self.state_max,
        })
    }

    fn versions(&mut self, folder: &Folder, listed: &Listed) -> Result<(), Refusal> {
        let numbers = listed.get(STATE).map_or(&[][..], Vec::as_slice);
        let mut lost: Option<(u64, String)> = None;
        let mut found: Option<Header> = None;
        for &number in numbers.iter().rev() {
            match folder.read(STATE, number)? {
                ReadResult::Whole(header, body) => {
                    self.kept.insert(number, (header.time, header.access));
                    // Older versions are only listed, and read again when one is restored.
                    if found.is_none() {
                        self.state = serde_json::from_slice(&body).map_err(|error| damaged(folder.path(), &error))?;
                        self.version = number;
                        self.learn(&header);
                        found = Some(header);
                    }
                }
                ReadResult::Damaged(why) => {
                    self.damaged.push((STATE.to_owned(), number));
                    let sentence = format!("version {number} of the state is damaged: {why}");
                    if found.is_none() {
                        // The newest damaged one counts; the loop runs from the newest down.
                        lost.get_or_insert((number, sentence));
                    } else {
                        self.findings.push((event::STATE_COPY_DAMAGED, sentence + "; it is not the latest one"));
                    }
                }
            }
        }
        if let Some(header) = found {
            // Exactly this key opens the version that is served; other files may have been sealed with an
            // earlier one.
            self.keys = [header.key.clone()].into();
            let missing =
                (self.state_max > self.version).then(|| format!("version {} of the state is missing", self.state_max));
            if let Some(why) = lost.as_ref().map(|(_, why)| why.clone()).or(missing) {
                self.older.push(format!("{why}; version {} of {} is active", self.version, header.time));
            }
            // Accepting must write above the damaged number, too.
            self.state_max = self.state_max.max(lost.map_or(0, |(number, _)| number));
            return Ok(());
        }
        match lost {
            Some((_, why)) => Err(damaged(folder.path(), &format!("no version of it is intact: {why}"))),
            // A document or event file exists, so a state existed as well, and none of its versions is left.
            None if self.state_max > 0 => Err(damaged(folder.path(), &"no version of it exists")),
            None => Ok(()),
        }
    }

    fn document(&mut self, folder: &Folder, name: &str, numbers: &[u64]) -> Result<(), Refusal> {
        let mut lost = None;
        for &number in numbers.iter().rev() {
            match folder.read(name, number)? {
                ReadResult::Whole(header, body) => {
                    self.learn(&header);
                    let value = serde_json::from_slice(&body).map_err(|error| damaged(folder.path(), &error))?;
                    self.documents.insert(name, number, value);
                    if let Some(why) = lost {
                        self.older.push(format!("{why}; the one of {} is used", header.time));
                    }
                    return Ok(());
                }
                ReadResult::Damaged(why) => {
                    let sentence = format!("the latest {name} of the array are damaged: {why}");
                    self.damaged.push((name.to_owned(), number));
                    // History only: reported, but no reason to hold changes.
                    if DISPOSABLE.contains(&name) {
                        self.findings.push((event::STATE_COPY_DAMAGED, sentence));
                    } else {
                        lost.get_or_insert(sentence);
                    }
                }
            }
        }
        self.older.extend(lost.map(|why| format!("{why}; there is no older copy of them")));
        Ok(())
    }

    /// Finds documents whose latest version is missing. A deleted file fails no checksum, so the headers
    /// written after it are compared.
    fn missing_documents(&mut self) {
        for (name, told) in std::mem::take(&mut self.documents_max) {
            // Reported as damaged already.
            let is_named = self.damaged.iter().any(|(damaged, number)| *damaged == name && *number >= told);
            let number = self.documents.number(&name);
            if number >= told || is_named || DISPOSABLE.contains(&name.as_str()) {
                continue;
            }
            let instead = match number {
                0 => "there is no older copy of them".to_owned(),
                number => format!("version {number} is used"),
            };
            self.older.push(format!("version {told} of the {name} of the array is missing; {instead}"));
            // Listed as damaged, so that accepting writes above the missing version.
            self.damaged.push((name, told));
        }
    }

    /// Learns from the headers of files whose content is read elsewhere.
    fn headers_of(&mut self, folder: &Folder, name: &str, numbers: &[u64]) -> Result<(), Refusal> {
        for &number in numbers {
            if let ReadResult::Whole(header, _) = folder.read(name, number)? {
                self.learn(&header);
            }
        }
        Ok(())
    }

    fn learn(&mut self, header: &Header) {
        self.state_max = self.state_max.max(header.state);
        self.keys.insert(header.key.clone());
        if !header.key_check.is_empty() {
            self.checks.insert((header.key.clone(), header.key_check.clone()));
        }
        for (name, number) in &header.documents {
            let told = self.documents_max.entry(name.clone()).or_default();
            *told = (*told).max(*number);
        }
        // Audit records are numbered in order, so the highest number is the latest.
        if header.audit.number > self.audit.number {
            self.audit = header.audit.clone();
        }
    }
}
