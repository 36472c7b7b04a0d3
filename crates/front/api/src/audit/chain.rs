//! Hash chain of records, in files of bounded size.

use super::AuditRecord;
use super::head::{self, Head};
use super::lines::{lines, opened, sealed};
use super::reader::Reader;
use control::AuditHead;
use model::{Refusal, code};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Size at which a file is followed by another one; tests use a small one. [`FILES_MAX`] is the number of files.
const FILE_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };
pub(crate) const FILES_MAX: usize = 32;
/// Digits of the record number in a file name.
const NUMBER_DIGITS: usize = 12;
/// Hash before the first record.
pub(crate) const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Hash chain, open for appending.
pub(crate) struct Chain {
    folder: PathBuf,
    /// Number of the first record of each file, in order.
    files: Vec<u64>,
    open: Option<(File, u64)>,
    /// Last record that is known to have been written.
    last: AuditHead,
    /// Damage found when the chain was opened.
    findings: Vec<String>,
}

impl Chain {
    /// Opens the chain in the folder. A record that was cut off by a power loss is removed: its call was never
    /// answered. Damaged files stay as they are, and new records go to a new file after the last record that the head
    /// or the state names.
    ///
    /// *Errors*: it cannot be read or written.
    pub(crate) fn open(folder: &Path, state: &AuditHead) -> Result<Self, Refusal> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| unusable(folder, &error))?;
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| unusable(folder, &error))? {
            let name = entry.map_err(|error| unusable(folder, &error))?.file_name();
            // Other files in the folder are ignored.
            files.extend(name.to_str().and_then(first_of));
        }
        // Names have a fixed number of digits, and numbers order the files.
        files.sort_unstable();
        let last = AuditHead { number: 0, hash: NOTHING.to_owned() };
        let mut chain = Self { folder: folder.to_owned(), files, open: None, last, findings: Vec::new() };
        let head = head::read(folder).map_err(|error| unusable(folder, &error))?;
        chain.find_end(&head)?;
        chain.compare(head, state);
        Ok(chain)
    }

    /// Finds the last record, and opens its file if it can be appended to.
    fn find_end(&mut self, head: &Head) -> Result<(), Refusal> {
        // Empty files are removed until one with records is found.
        while let Some(&first) = self.files.last() {
            let path = self.path(first);
            let end = End::of(&path, first, head).map_err(|error| unusable(&path, &error))?;
            // A file without a complete record was created just before a power loss.
            if end.bytes == 0 {
                fs::remove_file(&path).map_err(|error| unusable(&path, &error))?;
                self.files.pop();
                continue;
            }
            self.last = end.last;
            // A damaged file is evidence: nothing is appended to it.
            if let Some(why) = end.damaged {
                self.findings.push(why);
            } else {
                let file = OpenOptions::new().append(true).open(&path).map_err(|error| unusable(&path, &error))?;
                self.open = Some((file, end.bytes));
            }
            break;
        }
        Ok(())
    }

    /// Reports records that the head or the state names and the files lack. The chain continues after the last one that
    /// either names.
    fn compare(&mut self, head: Head, state: &AuditHead) {
        let named = match head {
            Head::Whole { number, hash, worn } => {
                if worn {
                    self.findings.push("a part of the head of the audit log log is damaged".to_owned());
                }
                Some(AuditHead { number, hash })
            }
            Head::Missing if self.last.number == 0 && state.number == 0 => None,
            Head::Missing => {
                self.findings.push("the head of the audit log log is missing".to_owned());
                None
            }
            Head::Damaged(why) => {
                self.findings.push(format!("the head of the audit log log is damaged: {why}"));
                None
            }
        };
        // Two witnesses: the head may be damaged, and the state may be older.
        for named in named.iter().chain([state]).filter(|named| named.number > 0) {
            if named.number > self.last.number {
                self.findings.push(format!("records {} to {} are missing", self.last.number + 1, named.number));
                self.last = named.clone();
                // The next record does not belong to the last file.
                self.open = None;
            } else if named.number == self.last.number && self.last.hash == NOTHING {
                // A damaged last record has no hash of its own; the witness supplies it.
                self.last.hash.clone_from(&named.hash);
            }
        }
    }

    /// Findings of the opening.
    pub(crate) fn findings(&self) -> &[String] {
        &self.findings
    }

    /// Last record.
    pub(crate) fn last(&self) -> &AuditHead {
        &self.last
    }

    /// Appends a record and returns its number. *Durability*: it survives a power loss when this returns.
    ///
    /// *Errors*: it was not written.
    pub(crate) fn append(&mut self, record: &AuditRecord) -> Result<u64, Refusal> {
        // The place in the chain is known only now.
        let mut record = record.clone();
        record.number = self.last.number + 1;
        record.before.clone_from(&self.last.hash);
        let (line, hash) = sealed(&record)?;
        // Before the path is taken, because this may start another file.
        self.make_room(record.number)?;
        let path = self.path(self.files.last().copied().unwrap_or(record.number));
        let (file, bytes) = self.open.as_mut().expect("there is room, so there is a file");
        // A file that was deleted or replaced would take records that nobody can find.
        if !is_at(file, &path) {
            return Err(unusable(&path, &"it was deleted or replaced"));
        }
        // The length to which a partial write is undone.
        let before = *bytes;
        // Data first, then the head: the head must never name a record that is not on disk.
        let written = file
            .write_all(line.as_bytes())
            .and_then(|()| file.sync_data())
            .and_then(|()| head::write(&self.folder, record.number, &hash));
        if let Err(error) = written {
            // Half a line would become the start of the next record.
            // If this fails, too, the incomplete line is removed when the log is opened again.
            let _ = file.set_len(before);
            return Err(unusable(&self.folder, &error));
        }
        *bytes += line.len() as u64;
        self.last = AuditHead { number: record.number, hash };
        Ok(record.number)
    }

    /// Makes sure that there is a file with room for the record `number`.
    fn make_room(&mut self, number: u64) -> Result<(), Refusal> {
        if self.open.as_ref().is_some_and(|(_, bytes)| *bytes < FILE_BYTES) {
            return Ok(());
        }
        let path = self.path(number);
        let make = || {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
            // Syncing the folder makes the new file itself survive a power loss.
            File::open(&self.folder)?.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(|error: io::Error| unusable(&path, &error))?;
        self.open = Some((file, 0));
        if self.files.last() != Some(&number) {
            self.files.push(number);
        }
        while self.files.len() > FILES_MAX {
            let first = self.files.remove(0);
            let oldest = self.path(first);
            if let Err(error) = fs::remove_file(&oldest) {
                // Not fatal: the log is complete, only longer than its limit.
                tracing::warn!(%error, file = %oldest.display(), "an old audit file could not be removed");
            }
        }
        Ok(())
    }

    /// Reader of the files as they are now.
    pub(crate) fn reader(&self) -> Reader {
        Reader { folder: self.folder.clone(), files: self.files.clone(), findings: self.findings.clone() }
    }

    fn path(&self, first: u64) -> PathBuf {
        file_of(&self.folder, first)
    }
}

/// End of the last file.
struct End {
    last: AuditHead,
    /// Reason why nothing may be appended to it.
    damaged: Option<String>,
    bytes: u64,
}

impl End {
    /// Finds the end of the file whose first record is `first`. An incomplete last line that `head` does not name was
    /// cut off by a power loss and is removed.
    fn of(path: &Path, first: u64, head: &Head) -> io::Result<Self> {
        // Until a record was read, the last one is that before this file.
        let nothing = AuditHead { number: first.saturating_sub(1), hash: NOTHING.to_owned() };
        let mut end = Self { last: nothing, damaged: None, bytes: 0 };
        let bytes = fs::read(path)?;
        // Everything after the last line break is incomplete.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in lines(path)? {
            let line = line?;
            end.bytes += line.len() as u64 + 1;
            if end.bytes > whole as u64 {
                end.bytes = whole as u64;
                return end.cut(path, bytes.len(), head);
            }
            let number = end.last.number + 1;
            match opened(&line) {
                Ok((record, hash)) => {
                    if record.number != number {
                        let why = format!("record {} is in the place of record {number}", record.number);
                        end.damaged.get_or_insert(why);
                    }
                    // The higher number counts, so that no number is used twice.
                    end.last = AuditHead { number: record.number.max(number), hash };
                }
                Err(why) => {
                    // The hash of a damaged record is unknown, and taken from a witness where one names it.
                    end.last = AuditHead { number, hash: NOTHING.to_owned() };
                    end.damaged.get_or_insert(format!("record {number} is damaged: {why}"));
                }
            }
        }
        Ok(end)
    }

    /// Handles an incomplete last line.
    fn cut(mut self, path: &Path, bytes: usize, head: &Head) -> io::Result<Self> {
        let number = self.last.number + 1;
        // The head was written after the whole line, so a line that it names was complete once.
        let is_known = matches!(head, Head::Whole { number: known, .. } if *known >= number);
        if is_known {
            self.damaged.get_or_insert(format!("record {number} is damaged: its end is missing"));
            // Other than 0, or the file would be removed as one without a record.
            (self.last.number, self.bytes) = (number, bytes as u64);
            return Ok(self);
        }
        tracing::warn!(file = %path.display(), "a truncated record is removed");
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(self.bytes)?;
        file.sync_all()?;
        Ok(self)
    }
}

/// True if the open file is still the one with this name.
fn is_at(file: &File, path: &Path) -> bool {
    // Device and inode identify a file regardless of its name.
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (open, named) = (file.metadata().map(identity), fs::metadata(path).map(identity));
    open.is_ok_and(|open| named.is_ok_and(|named| named == open))
}

/// Path of the file whose first record has this number.
pub(crate) fn file_of(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:0NUMBER_DIGITS$}.jsonl"))
}

/// Number of the first record in a file of this name; `None` for other files.
fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".jsonl").filter(|digits| digits.len() == NUMBER_DIGITS)?;
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refusal while the audit log cannot be used.
pub(crate) fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("changes are refused: the audit log {} cannot be written or read: {error}", path.display());
    let hint = "free disk space, or give the daemon read and write permission there; retried every 10 s";
    Refusal::new(code::AUDIT_UNUSABLE, message, hint)
}

#[cfg(test)]
mod tests;
