//! What was set, and what was so before: the way back.

use super::{Root, Setting};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const PLACE: &str = "var/lib/blockyard-tune/before.json";
const SCHEMA: u32 = 1;
/// A thousand settings have 300 KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// One setting that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The knob's name, with whose it is.
    pub name: String,
    /// Why, as the files that keep it say.
    pub why: String,
    /// What was made.
    #[serde(flatten)]
    pub setting: Setting,
    /// What was so before the first time.
    pub before: String,
    /// The file that keeps it when the machine starts again, and its line there; none where it is not kept.
    pub kept: Option<Line>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Without the first slash, as in `etc/sysctl.d/90-blockyard.conf`.
    pub file: String,
    pub text: String,
}

/// All settings that were made, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(pub Vec<Entry>);

#[derive(Serialize, Deserialize)]
struct Document {
    schema: u32,
    set: Vec<Entry>,
}

impl Record {
    /// The one of this machine; an empty one where nothing was set.
    ///
    /// *Errors*: it cannot be read, or another version has written it.
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

    /// It is on the disk; an empty one is no file.
    ///
    /// *Errors*: what the system says.
    pub(crate) fn save(&self, root: &Root) -> io::Result<()> {
        if self.0.is_empty() {
            removed(root, PLACE)?;
            // It stays when there is something else in it.
            drop(fs::remove_dir(root.path(PLACE).with_file_name("")));
            return Ok(());
        }
        let document = Document { schema: SCHEMA, set: self.0.clone() };
        replaced(root, PLACE, &format!("{:#}\n", serde_json::to_value(document)?)).map(drop)
    }

    /// The setting is in it. What was so before the first time stays.
    pub(crate) fn add(&mut self, entry: Entry) {
        let same = self.0.iter_mut().find(|known| known.setting.place() == entry.setting.place());
        match same {
            Some(known) => *known = Entry { before: known.before.clone(), ..entry },
            None => self.0.push(entry),
        }
    }

    /// Nothing in it is a setting of this place.
    pub(crate) fn forget(&mut self, setting: &Setting) {
        self.0.retain(|known| known.setting.place() != setting.place());
    }

    /// Where it is.
    pub(crate) fn place(root: &Root) -> String {
        root.path(PLACE).display().to_string()
    }
}

/// The file holds `text`, whole or as before; true when that is new.
///
/// *Errors*: what the system says.
pub(super) fn replaced(root: &Root, path: &str, text: &str) -> io::Result<bool> {
    let path = root.path(path);
    if fs::read_to_string(&path).is_ok_and(|now| now == text) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    // Of an attempt that was interrupted.
    drop(fs::remove_file(&new));
    write_new(&new, text)?;
    fs::rename(&new, &path)?;
    Ok(true)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// There is no such file; true when there was one.
///
/// *Errors*: what the system says.
pub(super) fn removed(root: &Root, path: &str) -> io::Result<bool> {
    match fs::remove_file(root.path(path)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
