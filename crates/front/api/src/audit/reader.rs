//! Reader of the audit log: pages of records, and verification of the chain.

use super::chain::{FILES_MAX, NOTHING, file_of, unusable};
use super::head::{self, Head};
use super::lines::{lines, opened};
use super::{AuditBroken, AuditCheck, AuditPage, AuditRecord};
use control::AuditHead;
use model::Refusal;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// Audit files as of one instant, for reading.
pub(crate) struct Reader {
    pub(super) folder: PathBuf,
    pub(super) files: Vec<u64>,
    /// Findings of the opening.
    pub(super) findings: Vec<String>,
}

impl Reader {
    /// Paths of the files, the oldest first.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|first| file_of(&self.folder, *first)).collect()
    }

    /// Returns at most `limit` records before the number `before` that contain the word, the latest first. An intent is
    /// listed if its result is missing: the change is running, or was interrupted.
    ///
    /// *Errors*: the files cannot be read. Damaged lines are skipped; verification names them.
    pub(crate) fn page(&self, before: u64, limit: usize, search: Option<&str>) -> Result<AuditPage, Refusal> {
        let word = search.map(str::to_lowercase);
        let (mut records, mut ended) = (Vec::new(), BTreeSet::new());
        for path in self.files().iter().rev() {
            // In full, because a page needs the lines in reverse.
            let read = || -> io::Result<Vec<Vec<u8>>> { lines(path)?.collect() };
            // The oldest file may have been deleted in the meantime.
            let Ok(lines) = read() else { continue };
            for line in lines.iter().rev() {
                let Ok((record, _)) = opened(line) else { continue };
                // Results come before their intents in this order, so an intent with a result is known by now.
                ended.extend(record.intent);
                // Evaluated only if a word is searched for.
                let text = || String::from_utf8_lossy(line).to_lowercase();
                let has_word = word.as_ref().is_none_or(|word| text().contains(word));
                if has_word && record.number < before && !ended.contains(&record.number) {
                    records.push(record);
                }
                // One more than the limit tells that there is another page.
                if records.len() > limit {
                    records.truncate(limit);
                    // The next page continues before the last record of this one.
                    let next = records.last().map(|record| record.number);
                    return Ok(AuditPage { records, next });
                }
            }
        }
        Ok(AuditPage { records, next: None })
    }

    /// Verifies that every record is unchanged and none is missing up to the one that the head and the state name.
    /// Names the first record that is wrong. `state` is the last record that the state names.
    ///
    /// *Errors*: the files cannot be read.
    pub(crate) fn check(&self, state: &AuditHead) -> Result<AuditCheck, Refusal> {
        // Read before the records: what is written during the verification is later than both.
        let head = head::read(&self.folder).map_err(|error| unusable(&self.folder, &error))?;
        let mut check = AuditCheck { hash: NOTHING.to_owned(), ..AuditCheck::default() };
        check.findings.clone_from(&self.findings);
        check.records_of(self, state)?;
        // Only the limit on files removes the oldest one, so with fewer files the first record must be there.
        if check.first > 1 && self.files.len() < FILES_MAX {
            check.findings.push(format!("records 1 to {} are missing: their files do not exist", check.first - 1));
        }
        // A broken chain has no valid end to compare.
        if check.broken.is_some() {
            return Ok(check);
        }
        match head {
            Head::Missing if check.last == 0 && state.number == 0 => {}
            Head::Missing => check.findings.push("the head of the audit log log is missing".to_owned()),
            Head::Damaged(why) => check.findings.push(format!("the head of the audit log log is damaged: {why}")),
            Head::Whole { number, hash, worn } => {
                if worn {
                    check.findings.push("a part of the head of the audit log log is damaged".to_owned());
                }
                check.ends_with(&AuditHead { number, hash }, "the head of the audit log");
            }
        }
        if check.broken.is_none() {
            check.ends_with(state, "the state of the array");
        }
        Ok(check)
    }
}

impl AuditCheck {
    /// Verifies all records; stops at the first that is wrong.
    fn records_of(&mut self, reader: &Reader, state: &AuditHead) -> Result<(), Refusal> {
        let mut expected: Option<(u64, String)> = None;
        for path in reader.files() {
            for line in lines(&path).map_err(|error| unusable(&path, &error))? {
                // The first file's name gives the number of the first record that is left.
                let number =
                    expected.as_ref().map_or(reader.files.first().copied().unwrap_or(1), |(number, _)| *number);
                let opened = line.map_err(|error| format!("it cannot be read: {error}")).and_then(|line| opened(&line));
                let (record, hash) = match opened {
                    Ok(opened) => opened,
                    Err(why) => {
                        self.broken_at(number, why);
                        return Ok(());
                    }
                };
                let before = expected.as_ref().map(|(_, before)| before.as_str());
                if let Some(why) = misplaced(&record, &hash, number, before, state) {
                    self.broken_at(number, why);
                    return Ok(());
                }
                self.first = if self.records == 0 { number } else { self.first };
                (self.last, self.records, self.hash) = (number, self.records + 1, hash.clone());
                expected = Some((number + 1, hash));
            }
        }
        Ok(())
    }

    /// Checks that the chain does not end before the record that `whose` names.
    fn ends_with(&mut self, named: &AuditHead, whose: &str) {
        if named.number > self.last {
            let why = format!("records {} to {} are missing, but {whose} refers to them", self.last + 1, named.number);
            self.broken_at(self.last + 1, why);
        } else if named.number == self.last && self.last > 0 && named.hash != self.hash {
            self.broken_at(self.last, format!("it is not the record that {whose} refers to"));
        }
    }

    fn broken_at(&mut self, number: u64, why: String) {
        self.broken = Some(AuditBroken { number, reason: why });
    }
}

/// Reason why an intact record is in the wrong place; `None` if it is in the right one.
fn misplaced(record: &AuditRecord, hash: &str, number: u64, before: Option<&str>, state: &AuditHead) -> Option<String> {
    if record.number != number {
        return Some(format!("record {} is in its place", record.number));
    }
    // The first record that is left refers to one that may have been deleted.
    if before.is_some_and(|before| before != record.before) || number == 1 && record.before != NOTHING {
        return Some("its hash does not chain to the previous record".to_owned());
    }
    (number == state.number && hash != state.hash)
        .then(|| "it is not the record that the state of the array refers to".to_owned())
}
