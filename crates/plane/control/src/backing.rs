//! Identity of the file or block device behind a path, whatever the path is called.

use model::{Refusal, code};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One file or one block device. Symbolic links, hard links and device nodes of one number are the same medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BackingIdentity {
    /// A file, by file system and inode.
    File { file_system: u64, inode: u64 },
    /// A block device, by device number.
    Device(u64),
}

impl BackingIdentity {
    /// Returns the medium that `path` leads to; a loop device over a file counts as the file. `None` when there
    /// is nothing.
    pub(crate) fn at(path: impl AsRef<Path>) -> Option<Self> {
        // `metadata` follows links such as those in /dev/disk/by-id, so all names of a device give one identity.
        let meta = fs::metadata(path).ok()?;
        if !meta.file_type().is_block_device() {
            return Some(Self::of_file(&meta));
        }
        // *Source*: Linux, Documentation/ABI/testing/sysfs-block-loop.
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let backing = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")).ok();
        // sysfs ends the path with a line break.
        let backing = backing.and_then(|path| fs::metadata(path.trim_end_matches('\n')).ok());
        let file = backing.filter(|meta| meta.file_type().is_file());
        Some(file.map_or(Self::Device(meta.rdev()), |meta| Self::of_file(&meta)))
    }

    /// Returns the block device that `path` leads to, loop devices included; `None` for a file or a missing
    /// path.
    pub(crate) fn of_device(path: impl AsRef<Path>) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        meta.file_type().is_block_device().then_some(Self::Device(meta.rdev()))
    }

    /// Returns true for a regular file without allocated blocks, such as one that was just created.
    pub(crate) fn is_hole(path: impl AsRef<Path>) -> bool {
        fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.blocks() == 0)
    }

    fn of_file(meta: &fs::Metadata) -> Self {
        Self::File { file_system: meta.dev(), inode: meta.ino() }
    }
}

/// Admits an absolute path without `..`, so that the path that is checked is the path that is opened.
pub(crate) fn admit_path(text: &str) -> Result<PathBuf, Refusal> {
    let path = Path::new(text);
    // A NUL byte would end the path for the operating system, but not for these checks.
    let steps_back = path.components().any(|part| part == std::path::Component::ParentDir);
    if path.is_absolute() && !steps_back && !text.contains('\0') {
        return Ok(path.to_path_buf());
    }
    Err(Refusal::new(
        code::PATH_INVALID,
        format!("\"{}\" is not an absolute path", text.escape_debug()),
        "start it with / and leave out .. components",
    ))
}
