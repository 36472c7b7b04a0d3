//! Lines that hang on each other, in files of bounded size.

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

/// A file of so many bytes is followed by another; there are so many of them. Tests fill them all.
const FILE_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };
pub(crate) const FILES_MAX: usize = 32;
/// Digits of a number in the name of a file.
const NUMBER_DIGITS: usize = 12;
/// What the first record of all hangs on.
pub(crate) const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The chain, to be made longer.
pub(crate) struct Chain {
    folder: PathBuf,
    /// The number of the first record of each file, in order.
    files: Vec<u64>,
    open: Option<(File, u64)>,
    /// The last record that is known to have been written.
    last: AuditHead,
    /// What was found damaged or missing when it was opened.
    findings: Vec<String>,
}

impl Chain {
    /// The chain as it lies in the folder. A line that was cut short when the power went is taken away: its call was never answered.
    /// What is damaged stays as it is, and what follows goes to a new file behind the last record that the head or the state knows.
    ///
    /// *Errors*: it cannot be read or written.
    pub(crate) fn open(folder: &Path, state: &AuditHead) -> Result<Self, Refusal> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| unusable(folder, &error))?;
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| unusable(folder, &error))? {
            let name = entry.map_err(|error| unusable(folder, &error))?.file_name();
            files.extend(name.to_str().and_then(first_of));
        }
        files.sort_unstable();
        let last = AuditHead { number: 0, hash: NOTHING.to_owned() };
        let mut chain = Self { folder: folder.to_owned(), files, open: None, last, findings: Vec::new() };
        let head = head::read(folder).map_err(|error| unusable(folder, &error))?;
        chain.find_end(&head)?;
        chain.compare(head, state);
        Ok(chain)
    }

    /// Finds the last record, and opens its file where that can be made longer.
    fn find_end(&mut self, head: &Head) -> Result<(), Refusal> {
        while let Some(&first) = self.files.last() {
            let path = self.path(first);
            let end = End::of(&path, first, head).map_err(|error| unusable(&path, &error))?;
            if end.bytes == 0 {
                fs::remove_file(&path).map_err(|error| unusable(&path, &error))?;
                self.files.pop();
                continue;
            }
            self.last = end.last;
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

    /// Notices what the head or the state knows and the files do not; what follows hangs on the last record that either names.
    fn compare(&mut self, head: Head, state: &AuditHead) {
        let named = match head {
            Head::Whole { number, hash, worn } => {
                if worn {
                    self.findings.push("a part of the head of the audit is damaged".to_owned());
                }
                Some(AuditHead { number, hash })
            }
            Head::Missing if self.last.number == 0 && state.number == 0 => None,
            Head::Missing => {
                self.findings.push("the head of the audit is missing".to_owned());
                None
            }
            Head::Damaged(why) => {
                self.findings.push(format!("the head of the audit is damaged: {why}"));
                None
            }
        };
        for named in named.iter().chain([state]).filter(|named| named.number > 0) {
            if named.number > self.last.number {
                self.findings.push(format!("records {} to {} are missing", self.last.number + 1, named.number));
                self.last = named.clone();
                // The next record is none of the last file's.
                self.open = None;
            } else if named.number == self.last.number && self.last.hash == NOTHING {
                self.last.hash.clone_from(&named.hash);
            }
        }
    }

    /// What opening has found.
    pub(crate) fn findings(&self) -> &[String] {
        &self.findings
    }

    /// The last record.
    pub(crate) fn last(&self) -> &AuditHead {
        &self.last
    }

    /// The record is the last one; its number. *Durability*: it survives power loss.
    ///
    /// *Errors*: it could not be written, and is not there.
    pub(crate) fn append(&mut self, record: &AuditRecord) -> Result<u64, Refusal> {
        let mut record = record.clone();
        record.number = self.last.number + 1;
        record.before.clone_from(&self.last.hash);
        let (line, hash) = sealed(&record)?;
        self.make_room(record.number)?;
        let path = self.path(self.files.last().copied().unwrap_or(record.number));
        let (file, bytes) = self.open.as_mut().expect("there is room, so there is a file");
        if !is_at(file, &path) {
            return Err(unusable(&path, &"it was deleted or replaced"));
        }
        let before = *bytes;
        let written = file
            .write_all(line.as_bytes())
            .and_then(|()| file.sync_data())
            .and_then(|()| head::write(&self.folder, record.number, &hash));
        if let Err(error) = written {
            // Half a line would be taken for the end of the next one.
            let _ = file.set_len(before);
            return Err(unusable(&self.folder, &error));
        }
        *bytes += line.len() as u64;
        self.last = AuditHead { number: record.number, hash };
        Ok(record.number)
    }

    /// There is a file with room for the record of this number.
    fn make_room(&mut self, number: u64) -> Result<(), Refusal> {
        if self.open.as_ref().is_some_and(|(_, bytes)| *bytes < FILE_BYTES) {
            return Ok(());
        }
        let path = self.path(number);
        let make = || {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
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
                tracing::warn!(%error, file = %oldest.display(), "an old file of the audit stays");
            }
        }
        Ok(())
    }

    /// The files as they are now, for reading.
    pub(crate) fn reader(&self) -> Reader {
        Reader { folder: self.folder.clone(), files: self.files.clone(), findings: self.findings.clone() }
    }

    fn path(&self, first: u64) -> PathBuf {
        file_of(&self.folder, first)
    }
}

/// The end of the last file.
struct End {
    last: AuditHead,
    /// Why nothing can be appended to it.
    damaged: Option<String>,
    bytes: u64,
}

impl End {
    /// The end of the file whose first record has the number `first`. A line without an end that `head` does not know was cut short
    /// when the power went, and is taken away.
    fn of(path: &Path, first: u64, head: &Head) -> io::Result<Self> {
        let nothing = AuditHead { number: first.saturating_sub(1), hash: NOTHING.to_owned() };
        let mut end = Self { last: nothing, damaged: None, bytes: 0 };
        let bytes = fs::read(path)?;
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
                        let why = format!("record {} stands in the place of record {number}", record.number);
                        end.damaged.get_or_insert(why);
                    }
                    end.last = AuditHead { number: record.number.max(number), hash };
                }
                Err(why) => {
                    end.last = AuditHead { number, hash: NOTHING.to_owned() };
                    end.damaged.get_or_insert(format!("record {number} is damaged: {why}"));
                }
            }
        }
        Ok(end)
    }

    /// The last line has no end.
    fn cut(mut self, path: &Path, bytes: usize, head: &Head) -> io::Result<Self> {
        let number = self.last.number + 1;
        let is_known = matches!(head, Head::Whole { number: known, .. } if *known >= number);
        if is_known {
            self.damaged.get_or_insert(format!("record {number} is damaged: its end is missing"));
            (self.last.number, self.bytes) = (number, bytes as u64);
            return Ok(self);
        }
        tracing::warn!(file = %path.display(), "a record was cut short, and is taken away");
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(self.bytes)?;
        file.sync_all()?;
        Ok(self)
    }
}

/// True where the open file still has its name.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (open, named) = (file.metadata().map(identity), fs::metadata(path).map(identity));
    open.is_ok_and(|open| named.is_ok_and(|named| named == open))
}

/// The file whose first record has this number.
pub(crate) fn file_of(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:0NUMBER_DIGITS$}.jsonl"))
}

/// The number of the first record of a file of this name; none for a name that no file of ours has.
fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".jsonl").filter(|digits| digits.len() == NUMBER_DIGITS)?;
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The audit cannot be used.
pub(crate) fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("changes are refused: the audit {} cannot be written or read: {error}", path.display());
    let hint = "make room, or give the daemon the right to read and write there; it is tried again every 10 s";
    Refusal::new(code::AUDIT_UNUSABLE, message, hint)
}

#[cfg(test)]
mod tests;
