//! What the fake writes on a disk: one page of JSON at its beginning.

use super::pool::Catalogue;
use model::{DiskId, Refusal, Size, code};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the page.
const LABEL_BYTES: usize = 16 << 10;

/// What was found at the beginning of a disk.
pub enum OnDisk {
    /// Zeros.
    Nothing,
    /// Something that is not ours.
    Foreign,
    /// A label of ours.
    Ours(Box<Label>),
}

/// One member's page: who it is, and all that is known of its pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Label {
    /// Which disk.
    pub disk: DiskId,
    /// Its pool.
    pub pool: Catalogue,
}

/// The size of the file at `path` and what its first page says.
pub fn read(path: &Path) -> Result<(Size, OnDisk), Refusal> {
    let read = || -> std::io::Result<(u64, Vec<u8>)> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut page = vec![0; LABEL_BYTES.min(usize::try_from(size).unwrap_or(LABEL_BYTES))];
        file.read_exact_at(&mut page, 0)?;
        Ok((size, page))
    };
    let (size, page) = read().map_err(|error| unreadable(path, &error))?;
    let used = page.iter().position(|byte| *byte == 0).unwrap_or(page.len());
    let found = match serde_json::from_slice(&page[..used]) {
        Ok(label) => OnDisk::Ours(Box::new(label)),
        Err(_) if used == 0 => OnDisk::Nothing,
        Err(_) => OnDisk::Foreign,
    };
    Ok((Size::new(size), found))
}

/// The first page of `path` is `label`.
pub fn write(path: &Path, label: &Label) -> Result<(), Refusal> {
    let mut page = serde_json::to_vec(label).expect("a label can be said in JSON");
    assert!(page.len() < LABEL_BYTES, "the fake's catalogue fits in its page");
    page.resize(LABEL_BYTES, 0);
    put(path, &page)
}

/// The first page of `path` is zeros.
pub fn erase(path: &Path) -> Result<(), Refusal> {
    put(path, &[0; LABEL_BYTES])
}

fn put(path: &Path, page: &[u8]) -> Result<(), Refusal> {
    let written = File::options().write(true).open(path).and_then(|file| file.write_all_at(page, 0));
    written.map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Refusal {
    let message = format!("{} cannot be opened: {error}", path.display());
    Refusal::new(code::DISK_UNREADABLE, message, "give the path of a block device or a regular file")
}
