//! Folder of the state: its files, the lock, and the check that it is still the folder that was opened.
//!
//! Every file is written under a temporary name, flushed, renamed and made durable with its folder. The meaning
//! of a body is not known here.

use super::file_format::{self, FORMAT, Header};
use super::{locked, unwritable};
use model::{Refusal, code};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lock file, locked while a daemon uses the folder.
const LOCK: &str = "lock";
/// Subfolder of the versions.
pub(super) const VERSIONS: &str = "state";
/// Temporary name of a file that is being written.
const BESIDE: &str = "new";
/// Suffix of a damaged file that is no longer used.
const ASIDE: &str = ".damaged";
/// Digits of the version number in a file name.
const NUMBER_DIGITS: usize = 12;
/// Size limit of a file, above the state of the largest array.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// The folder, locked by this daemon.
pub(super) struct Folder {
    dir: PathBuf,
    versions: PathBuf,
    lock: File,
    /// Device and inode of the folder, of the subfolder of the versions and of the lock file, as opened.
    opened: [(u64, u64); 3],
}

/// Errors of resource shortage (`ENOMEM`, `ENFILE`, `EMFILE`): the file itself may be whole.
const SHORTAGES: [i32; 3] = [12, 23, 24];

/// Result of reading a file.
pub(super) enum ReadResult {
    /// The checksum matches.
    Whole(Header, Vec<u8>),
    /// The file is damaged; the reason.
    Damaged(String),
}

/// Version numbers by document, ascending.
pub(super) type Listed = BTreeMap<String, Vec<u64>>;

impl Folder {
    /// Creates the folder if needed, readable by its owner alone, and locks it.
    ///
    /// *Errors*: another daemon holds it, or the operating system refuses.
    pub(super) fn open(dir: &Path) -> Result<Self, Refusal> {
        let versions = dir.join(VERSIONS);
        let make = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(dir).and_then(|()| make(&versions)).map_err(|error| unwritable(dir, &error))?;
        let path = dir.join(LOCK);
        let open = || -> io::Result<File> {
            // Never truncated, because another daemon may hold the lock.
            let lock =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            // A lock file that already existed keeps its old mode unless it is set here.
            lock.set_permissions(fs::Permissions::from_mode(0o600))?;
            Ok(lock)
        };
        let lock = open().map_err(|error| unwritable(&path, &error))?;
        take(&lock).map_err(|error| match error {
            fs::TryLockError::WouldBlock => locked(dir),
            fs::TryLockError::Error(error) => unwritable(&path, &error),
        })?;
        // Entries that were just created must survive power loss before anything is written below them.
        sync_dir(dir).map_err(|error| unwritable(dir, &error))?;
        let opened = identities(dir, &versions, &path).map_err(|error| unwritable(dir, &error))?;
        Ok(Self { dir: dir.to_owned(), versions, lock, opened })
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns the device and inode of the lock file, which no other daemon on this machine has at the same
    /// time.
    pub(super) fn lock_identity(&self) -> (u64, u64) {
        self.opened[2]
    }

    /// Verifies that the path still leads to the folder that was opened.
    ///
    /// *Errors*: it was deleted, moved or replaced: a write there would be lost, or would reach another array's
    /// folder.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let now = identities(&self.dir, &self.versions, &self.dir.join(LOCK));
        // A link count of 0 means that the lock file was deleted, so a second daemon could lock a new one.
        let linked = self.lock.metadata().is_ok_and(|meta| meta.nlink() > 0);
        if linked && now.is_ok_and(|now| now == self.opened) {
            return Ok(());
        }
        Err(Refusal::new(
            code::STATE_REPLACED,
            format!(
                "the state folder {} is not the one that the daemon opened: it was deleted, moved or replaced",
                self.dir.display()
            ),
            "move it back; if it is lost, save the output of blockyard export, stop the daemon and start it with \
             --new",
        ))
    }

    /// Lists the files by document.
    ///
    /// *Errors*: the folder cannot be read.
    pub(super) fn list(&self) -> Result<Listed, Refusal> {
        let mut listed = Listed::new();
        for entry in fs::read_dir(&self.versions).map_err(|error| unwritable(&self.versions, &error))? {
            let name = entry.map_err(|error| unwritable(&self.versions, &error))?.file_name();
            // Other names, such as those of damaged files that were put aside, are ignored.
            let parts = name.to_str().and_then(|name| name.rsplit_once('.'));
            if let Some((name, Some(number))) = parts.map(|(name, number)| (name, number_of(number))) {
                listed.entry(name.to_owned()).or_default().push(number);
            }
        }
        listed.values_mut().for_each(|numbers| numbers.sort_unstable());
        Ok(listed)
    }

    /// Reads and verifies one version of a document.
    ///
    /// *Errors*: a newer program wrote it, permission is denied, or the system lacks memory or descriptors. A
    /// read error of the disk counts as damage.
    pub(super) fn read(&self, name: &str, number: u64) -> Result<ReadResult, Refusal> {
        let path = self.file(name, number);
        let mut bytes = Vec::new();
        // Bounded: a file beyond the limit is cut off, fails its checksum and counts as damaged.
        let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(unwritable(&path, &error)),
            // A shortage of memory or descriptors says nothing about the file; counting it as damaged would
            // hold a healthy state.
            Err(error) if SHORTAGES.contains(&error.raw_os_error().unwrap_or_default()) => {
                let message = format!("{} cannot be read: {error}", path.display());
                return Err(Refusal::new(code::IO_FAILED, message, "free memory and close files, then try again"));
            }
            // An error of the medium, such as `EIO`: the content is lost, as after a failed checksum.
            Err(error) => return Ok(ReadResult::Damaged(format!("it cannot be read: {error}"))),
            Ok(_) => {}
        }
        let (header, body) = match file_format::parse(&bytes) {
            Ok(parsed) => parsed,
            Err(why) => return Ok(ReadResult::Damaged(why)),
        };
        // Checked after the checksum: a flipped bit in the format must not look like a newer version.
        if header.format > FORMAT {
            return Err(Refusal::new(
                code::STATE_NEWER,
                format!("{} has format {}, but this version supports {FORMAT}", path.display(), header.format),
                "start the version that wrote it, or a newer one",
            ));
        }
        // The header names the file: a copy under another file name is not that version.
        if (header.name.as_str(), header.number) != (name, number) {
            return Ok(ReadResult::Damaged(format!("it is version {} of {}", header.number, header.name)));
        }
        Ok(ReadResult::Whole(header, body.to_vec()))
    }

    /// Writes a version of a document under its final name. *Durability*: it survives power loss.
    ///
    /// *Errors*: the folder was replaced, or the write failed; then no new version exists.
    pub(super) fn write(&self, header: &Header, body: &[u8]) -> Result<(), Refusal> {
        self.check()?;
        let (beside, path) = (self.versions.join(BESIDE), self.file(&header.name, header.number));
        let bytes = file_format::emit(header, body).map_err(|error| unwritable(&path, &error))?;
        // Event files are replaced under their number, and their former content must survive a failed write.
        let is_new = !path.exists();
        let write = || -> io::Result<()> {
            // Flush the content before the rename and the folder after it: a crash leaves the old file or the
            // whole new one.
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            sync_dir(&self.versions)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&beside);
            if is_new {
                // The caller reports a failure, so no later start may find this version.
                let _ = fs::remove_file(&path);
            }
            unwritable(&path, &error)
        })
    }

    /// Deletes a file. A file that cannot be deleted is logged, and stays until a later version is removed.
    pub(super) fn remove(&self, name: &str, number: u64) {
        let path = self.file(name, number);
        if let Err(error) = fs::remove_file(&path).or_else(|error| missing_is_fine(&error)) {
            tracing::warn!(%error, file = %path.display(), "an old version of the state stays");
        }
    }

    /// Deletes all versions of everything.
    pub(super) fn clear(&self) {
        for (name, numbers) in self.list().unwrap_or_default() {
            numbers.into_iter().for_each(|number| self.remove(&name, number));
        }
    }

    /// Renames a damaged file to a name that nothing reads, and so keeps its content.
    ///
    /// *Errors*: it cannot be renamed.
    pub(super) fn quarantine(&self, name: &str, number: u64) -> Result<(), Refusal> {
        let path = self.file(name, number);
        let mut aside = path.clone().into_os_string();
        aside.push(ASIDE);
        let renamed = fs::rename(&path, aside).or_else(|error| missing_is_fine(&error));
        renamed.and_then(|()| sync_dir(&self.versions)).map_err(|error| unwritable(&path, &error))
    }

    fn file(&self, name: &str, number: u64) -> PathBuf {
        self.versions.join(format!("{name}.{number:0NUMBER_DIGITS$}"))
    }
}

/// Locks the file, trying for one second. A forked child inherits every descriptor until it executes its
/// program, so a lock that its parent has released can stay locked for a moment.
fn take(lock: &File) -> Result<(), fs::TryLockError> {
    // 20 attempts, 50 ms apart.
    for _ in 0..20 {
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
            done => return done,
        }
    }
    lock.try_lock()
}

/// Parses the version number in a file name; `None` for a name that is not ours.
fn number_of(digits: &str) -> Option<u64> {
    // `parse` alone would also accept a sign, or another count of digits.
    let is_ours = digits.len() == NUMBER_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_ours)
}

fn missing_is_fine(error: &io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(io::Error::from(error.kind())) }
}

fn identities(dir: &Path, versions: &Path, lock: &Path) -> io::Result<[(u64, u64); 3]> {
    let of = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    Ok([of(dir)?, of(versions)?, of(lock)?])
}

/// Flushes the directory `dir`, so that its entries survive power loss.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
