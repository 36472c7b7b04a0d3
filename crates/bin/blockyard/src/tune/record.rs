//! Record of the settings made and of the values before, for `tune revert`.

use super::{Root, Setting};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const PLACE: &str = "var/lib/blockyard-tune/before.json";
const SCHEMA: u32 = 1;
/// Limit of the file in bytes; a thousand settings take 300 KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Setting that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Name of the setting with its device.
    pub name: String,
    /// Reason, as written to the persistent files.
    pub why: String,
    /// Value that was set.
    #[serde(flatten)]
    pub setting: Setting,
    /// Value before the first change.
    pub before: String,
    /// Line and file that make it persistent; none if it is not.
    pub kept: Option<Line>,
}

/// Line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Path without the leading slash, as in `etc/sysctl.d/90-blockyard.conf`.
    pub file: String,
    pub text: String,
}

/// Settings made, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(pub Vec<Entry>);

#[derive(Serialize, Deserialize)]
struct Document {
    schema: u32,
    set: Vec<Entry>,
}

impl Record {
    /// Reads the record of this machine; empty if nothing was set.
    ///
    /// *Errors*: it cannot be read, or was written by another version.
    pub(crate) fn load(root: &Root) -> io::Result<Self> {
        let text = match bounded::text_file(&root.path(PLACE), FILE_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.is_absent() => return Ok(Self::default()),
            Err(error) => return Err(io::Error::other(error)),
        };
        let document: Document = serde_json::from_str(&text)?;
        if document.schema == SCHEMA {
            Ok(Self(document.set))
        } else {
            Err(io::Error::other("another version of blockyard has written it"))
        }
    }

    /// Writes the record to the disk; an empty record is removed.
    ///
    /// *Errors*: the error of the system.
    pub(crate) fn save(&self, root: &Root) -> io::Result<()> {
        if self.0.is_empty() {
            removed(root, PLACE)?;
            // The folder stays if it contains anything else.
            drop(fs::remove_dir(root.path(PLACE).with_file_name("")));
            return Ok(());
        }
        let document = Document { schema: SCHEMA, set: self.0.clone() };
        replaced(root, PLACE, &format!("{:#}\n", serde_json::to_value(document)?)).map(drop)
    }

    /// Adds a setting; for a known one, the value before the first change is kept.
    pub(crate) fn add(&mut self, entry: Entry) {
        let same = self.0.iter_mut().find(|known| known.setting.place() == entry.setting.place());
        match same {
            // A second `apply` must not record its own first value as the original.
            Some(known) => *known = Entry { before: known.before.clone(), ..entry },
            None => self.0.push(entry),
        }
    }

    /// Removes the setting with this location.
    pub(crate) fn forget(&mut self, setting: &Setting) {
        self.0.retain(|known| known.setting.place() != setting.place());
    }

    /// Returns the path of the record.
    pub(crate) fn place(root: &Root) -> String {
        root.path(PLACE).display().to_string()
    }
}

/// Replaces the content of a file atomically; returns true if it has changed.
///
/// *Errors*: the error of the system.
pub(super) fn replaced(root: &Root, path: &str, text: &str) -> io::Result<bool> {
    let path = root.path(path);
    // An unchanged file keeps its modification time, and is not reported as written.
    if fs::read_to_string(&path).is_ok_and(|now| now == text) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // After a crash nothing reads this file: udev, sysctl, tmpfiles and systemd expect suffixes of their own.
    let new = path.with_extension("new");
    // Left over from an interrupted attempt.
    drop(fs::remove_file(&new));
    write_new(&new, text)?;
    // The new file is synced before the rename, so that a crash leaves either the old or the new content.
    fs::rename(&new, &path)?;
    Ok(true)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Removes a file; returns true if it existed.
///
/// *Errors*: the error of the system.
pub(super) fn removed(root: &Root, path: &str) -> io::Result<bool> {
    match fs::remove_file(root.path(path)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
