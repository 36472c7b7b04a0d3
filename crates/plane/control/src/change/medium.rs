//! What lies behind a path, whatever the path is called.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// One file or one block device. Links of either kind, and device nodes of one number, are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    /// A file, by its file system and its number there.
    File { file_system: u64, inode: u64 },
    /// A block device, by its number.
    Device(u64),
}

impl Medium {
    /// What `path` names now; none when there is nothing.
    pub fn at(path: impl AsRef<Path>) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(if meta.file_type().is_block_device() {
            Self::Device(meta.rdev())
        } else {
            Self::File { file_system: meta.dev(), inode: meta.ino() }
        })
    }
}
