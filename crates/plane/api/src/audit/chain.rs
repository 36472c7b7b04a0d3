//! Lines that hang on each other, in files of bounded size.

use super::{AuditBroken, AuditCheck, AuditPage, AuditRecord};
use model::{Refusal, code};
use sha3::{Digest, Sha3_256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file of so many bytes is followed by another; there are so many of them. Tests fill them all.
const FILE_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };
const FILES_MAX: usize = 32;
/// Longer than any record.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// What the first record of all hangs on.
const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Where the hash stands in a line: at its end.
const HASH_KEY: &str = ",\"hash\":\"";

/// The chain, to be made longer.
pub struct Chain {
    folder: PathBuf,
    /// The number of the first record of each file, in order.
    files: Vec<u64>,
    open: Option<(File, u64)>,
    /// The number and the hash of the last record.
    last: (u64, String),
}

/// The files as they were at one instant, for reading.
pub struct Reader {
    folder: PathBuf,
    files: Vec<u64>,
}

impl Chain {
    /// The chain as it lies in the folder. A line that was cut short when the power went is taken away: its call was never answered.
    ///
    /// *Errors*: it cannot be read or written.
    pub fn open(folder: &Path) -> Result<Self, Refusal> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| unusable(folder, &error))?;
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| unusable(folder, &error))? {
            let name = entry.map_err(|error| unusable(folder, &error))?.file_name();
            files
                .extend(name.to_str().and_then(|name| name.strip_suffix(".jsonl")).and_then(|n| n.parse::<u64>().ok()));
        }
        files.sort_unstable();
        let mut chain = Self { folder: folder.to_owned(), files, open: None, last: (0, NOTHING.to_owned()) };
        chain.find_end()?;
        Ok(chain)
    }

    fn find_end(&mut self) -> Result<(), Refusal> {
        while let Some(&first) = self.files.last() {
            let path = self.path(first);
            let whole = drop_torn_line(&path).map_err(|error| unusable(&path, &error))?;
            let last = lines(&path).map_err(|error| unusable(&path, &error))?.last();
            match last {
                Some(line) => {
                    let line = line.map_err(|error| unusable(&path, &error))?;
                    let record: Option<AuditRecord> = serde_json::from_str(&line).ok();
                    // A last line that is none of ours is for a check to name; what follows hangs on it as it is.
                    let number = record.as_ref().map_or(first, |record| record.number);
                    self.last = (number, record.map_or_else(|| hash(&line), |record| record.hash));
                    let file = OpenOptions::new().append(true).open(&path).map_err(|error| unusable(&path, &error))?;
                    self.open = Some((file, whole));
                    return Ok(());
                }
                None => {
                    fs::remove_file(&path).map_err(|error| unusable(&path, &error))?;
                    self.files.pop();
                }
            }
        }
        if let Some((number, hash)) = read_head(&self.folder) {
            // All files are gone: what follows does not begin anew.
            self.last = (number, hash);
        }
        Ok(())
    }

    /// The record is the last one. *Durability*: it survives power loss.
    ///
    /// *Errors*: it could not be written, and is not there.
    pub fn append(&mut self, record: &AuditRecord) -> Result<(), Refusal> {
        let mut record = record.clone();
        record.number = self.last.0 + 1;
        record.before.clone_from(&self.last.1);
        let (line, hash) = sealed(&record)?;
        self.make_room(record.number)?;
        let (file, bytes) = self.open.as_mut().expect("there is room, so there is a file");
        let before = *bytes;
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // Half a line would be taken for the end of the next one.
            let _ = file.set_len(before);
            return Err(unusable(&self.folder, &error));
        }
        *bytes += line.len() as u64;
        self.last = (record.number, hash);
        write_head(&self.folder, &self.last);
        Ok(())
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
        self.files.push(number);
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
    pub fn reader(&self) -> Reader {
        Reader { folder: self.folder.clone(), files: self.files.clone() }
    }

    fn path(&self, first: u64) -> PathBuf {
        path(&self.folder, first)
    }
}

impl Reader {
    /// The files, the oldest first.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|first| path(&self.folder, *first)).collect()
    }

    /// At most `limit` records before the number `before` that have the word, the latest first.
    ///
    /// *Errors*: they cannot be read. Lines that are no records are passed over: a check names them.
    pub fn page(&self, before: u64, limit: usize, search: Option<&str>) -> Result<AuditPage, Refusal> {
        let word = search.map(str::to_lowercase);
        let mut records = Vec::new();
        for path in self.files().iter().rev() {
            let read = || -> io::Result<Vec<String>> { lines(path)?.collect() };
            // The oldest file may have gone meanwhile.
            let Ok(lines) = read() else { continue };
            for line in lines.iter().rev() {
                let has_word = word.as_ref().is_none_or(|word| line.to_lowercase().contains(word));
                let record = has_word.then(|| serde_json::from_str::<AuditRecord>(line).ok()).flatten();
                records.extend(record.filter(|record| record.number < before));
                if records.len() > limit {
                    records.truncate(limit);
                    let next = records.last().map(|record| record.number);
                    return Ok(AuditPage { records, next });
                }
            }
        }
        Ok(AuditPage { records, next: None })
    }

    /// Every record is as it was written, or the first that is not is named.
    ///
    /// *Errors*: they cannot be read.
    pub fn check(&self) -> Result<AuditCheck, Refusal> {
        let mut check = AuditCheck { hash: NOTHING.to_owned(), ..AuditCheck::default() };
        let mut expected: Option<(u64, String)> = None;
        for path in self.files() {
            for line in lines(&path).map_err(|error| unusable(&path, &error))? {
                let number = expected.as_ref().map_or(self.files.first().copied().unwrap_or(1), |(number, _)| *number);
                let line = match line {
                    Ok(line) => line,
                    Err(error) => return Ok(check.broken_at(number, format!("it cannot be read: {error}"))),
                };
                let (record, hash) = match opened(&line) {
                    Ok(opened) => opened,
                    Err(why) => return Ok(check.broken_at(number, why)),
                };
                if record.number != number {
                    return Ok(check.broken_at(number, format!("record {} stands in its place", record.number)));
                }
                if expected.as_ref().is_some_and(|(_, before)| *before != record.before)
                    || record.number == 1 && record.before != NOTHING
                {
                    return Ok(check.broken_at(number, "it does not hang on the record before".to_owned()));
                }
                check.first = if check.records == 0 { number } else { check.first };
                (check.last, check.records, check.hash) = (number, check.records + 1, hash.clone());
                expected = Some((number + 1, hash));
            }
        }
        match read_head(&self.folder) {
            Some((number, _)) if number > check.last => {
                let why = format!("records {} to {number} are missing", check.last + 1);
                let next = check.last + 1;
                Ok(check.broken_at(next, why))
            }
            Some((number, hash)) if number == check.last && hash != check.hash => {
                let last = check.last;
                Ok(check.broken_at(last, "it is not the record that was written last".to_owned()))
            }
            _ => Ok(check),
        }
    }
}

/// What a check says of the first record that is wrong.
trait BrokenAt {
    fn broken_at(self, number: u64, why: String) -> AuditCheck;
}

impl BrokenAt for AuditCheck {
    fn broken_at(mut self, number: u64, why: String) -> AuditCheck {
        self.broken = Some(AuditBroken { number, why });
        self
    }
}

/// The record as a line, and its hash.
fn sealed(record: &AuditRecord) -> Result<(String, String), Refusal> {
    let text = serde_json::to_string(record).map_err(|error| {
        tracing::error!(%error, "a record cannot be said in JSON");
        Refusal::new(code::INTERNAL, "a record cannot be said in JSON", "report this with the daemon's log")
    })?;
    let (open, _) = text.rsplit_once(HASH_KEY).expect("the hash is the last key of a record");
    let hash = hash(open);
    Ok((format!("{open}{HASH_KEY}{hash}\"}}\n"), hash))
}

/// The record of a line, and its hash.
///
/// *Errors*: why it is not as it was written.
fn opened(line: &str) -> Result<(AuditRecord, String), String> {
    let whole = line.rsplit_once(HASH_KEY).and_then(|(open, rest)| Some((open, rest.strip_suffix("\"}")?)));
    let (open, said) = whole.ok_or("it is no record")?;
    let found = hash(open);
    if found != said {
        return Err("its hash is another one".to_owned());
    }
    let record = serde_json::from_str(line).map_err(|error| format!("it is no record: {error}"))?;
    Ok((record, found))
}

fn hash(text: &str) -> String {
    control::to_hex(&Sha3_256::digest(text.as_bytes()))
}

fn path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:012}.jsonl"))
}

fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<String>> + use<>> {
    let mut reader = BufReader::new(File::open(path)?);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => {
                line.pop_if(|last| *last == b'\n');
                Some(String::from_utf8(line).map_err(io::Error::other))
            }
            Err(error) => Some(Err(error)),
        }
    }))
}

/// What follows the last line break is gone; the bytes that are left.
fn drop_torn_line(path: &Path) -> io::Result<u64> {
    let bytes = fs::read(path)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
    if whole < bytes.len() as u64 {
        tracing::warn!(file = %path.display(), "a record was cut short, and is taken away");
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(whole)?;
        file.sync_all()?;
    }
    Ok(whole)
}

/// The number and the hash of the last record, so that records which are taken off the end are missed. It may be older than the last record
/// after a power loss, never newer.
fn write_head(folder: &Path, (number, hash): &(u64, String)) {
    let (beside, head) = (folder.join("head.new"), folder.join("head"));
    let written = fs::write(&beside, format!("{number} {hash}\n")).and_then(|()| fs::rename(&beside, &head));
    if let Err(error) = written {
        tracing::warn!(%error, "the end of the audit could not be noted");
    }
}

fn read_head(folder: &Path) -> Option<(u64, String)> {
    let text = fs::read_to_string(folder.join("head")).ok()?;
    let (number, hash) = text.trim().split_once(' ')?;
    Some((number.parse().ok()?, hash.to_owned()))
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("the audit {} cannot be written or read: {error}", path.display());
    Refusal::new(code::STATE_UNWRITABLE, message, "make room or give the daemon the right to write there")
}

#[cfg(test)]
mod tests;
