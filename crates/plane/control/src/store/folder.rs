//! The folder of the state: its files, the lock, and whether it is still the folder that was opened.
//!
//! Every file is written beside its place, flushed, renamed and made durable with its folder. Nothing here knows what a body means.

use super::sheet::{self, FORMAT, Header};
use super::{locked, unwritable};
use model::{Refusal, code};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file whose lock is held while a daemon uses the folder.
const LOCK: &str = "lock";
/// The folder of the versions.
pub(super) const VERSIONS: &str = "state";
/// What a file is called while it is written.
const BESIDE: &str = "new";
/// What is put behind the name of a file that is damaged and not used any more.
const ASIDE: &str = ".damaged";
/// Digits of the number of a version in the name of its file.
const NUMBER_DIGITS: usize = 12;
/// More than the state of the largest array: a file that is longer is none of ours.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// The folder, held by this daemon alone.
pub(super) struct Folder {
    dir: PathBuf,
    versions: PathBuf,
    lock: File,
    /// The device and inode of the folder, the folder of the versions and the lock, as they were opened.
    opened: [(u64, u64); 3],
}

/// ENOMEM, ENFILE and EMFILE.
const SHORTAGES: [i32; 3] = [12, 23, 24];

/// A file that is there.
pub(super) enum Found {
    /// It is as it was written.
    Whole(Header, Vec<u8>),
    /// It is not, and why.
    Damaged(String),
}

/// The numbers of the versions of each document that there is a file of.
pub(super) type Listed = BTreeMap<String, Vec<u64>>;

impl Folder {
    /// The folder is there, readable by its owner alone, and held.
    ///
    /// *Errors*: another daemon holds it, or the operating system refuses.
    pub(super) fn open(dir: &Path) -> Result<Self, Refusal> {
        let versions = dir.join(VERSIONS);
        let make = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(dir).and_then(|()| make(&versions)).map_err(|error| unwritable(dir, &error))?;
        let path = dir.join(LOCK);
        let open = || -> io::Result<File> {
            let lock =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            lock.set_permissions(fs::Permissions::from_mode(0o600))?;
            Ok(lock)
        };
        let lock = open().map_err(|error| unwritable(&path, &error))?;
        take(&lock).map_err(|error| match error {
            fs::TryLockError::WouldBlock => locked(dir),
            fs::TryLockError::Error(error) => unwritable(&path, &error),
        })?;
        sync_dir(dir).map_err(|error| unwritable(dir, &error))?;
        let opened = identities(dir, &versions, &path).map_err(|error| unwritable(dir, &error))?;
        Ok(Self { dir: dir.to_owned(), versions, lock, opened })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// The device and inode of the lock: on one machine no other daemon has them at the same time.
    pub(super) fn lock_identity(&self) -> (u64, u64) {
        self.opened[2]
    }

    /// What is written goes to the folder that was opened.
    ///
    /// *Errors*: it was deleted, moved or replaced: what is written there would be lost, or would be another array's.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let now = identities(&self.dir, &self.versions, &self.dir.join(LOCK));
        // A lock file without a name is one that somebody has removed.
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
            "move it back; if it is lost, save blockyard config export, stop the daemon and start it with --new",
        ))
    }

    /// Which files there are.
    ///
    /// *Errors*: the folder cannot be read.
    pub(super) fn list(&self) -> Result<Listed, Refusal> {
        let mut listed = Listed::new();
        for entry in fs::read_dir(&self.versions).map_err(|error| unwritable(&self.versions, &error))? {
            let name = entry.map_err(|error| unwritable(&self.versions, &error))?.file_name();
            let parts = name.to_str().and_then(|name| name.rsplit_once('.'));
            if let Some((name, Some(number))) = parts.map(|(name, number)| (name, number_of(number))) {
                listed.entry(name.to_owned()).or_default().push(number);
            }
        }
        listed.values_mut().for_each(|numbers| numbers.sort_unstable());
        Ok(listed)
    }

    /// The version of the document.
    ///
    /// *Errors*: a newer program wrote it, or the daemon may not read it. What a disk cannot read is damaged.
    pub(super) fn read(&self, name: &str, number: u64) -> Result<Found, Refusal> {
        let path = self.file(name, number);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(unwritable(&path, &error)),
            // The system is short of something; the file may be whole.
            Err(error) if SHORTAGES.contains(&error.raw_os_error().unwrap_or_default()) => {
                let message = format!("{} cannot be read: {error}", path.display());
                return Err(Refusal::new(code::IO_FAILED, message, "free memory and close files, then try again"));
            }
            Err(error) => return Ok(Found::Damaged(format!("it cannot be read: {error}"))),
            Ok(_) => {}
        }
        let (header, body) = match sheet::parse(&bytes) {
            Ok(parsed) => parsed,
            Err(why) => return Ok(Found::Damaged(why)),
        };
        if header.format > FORMAT {
            return Err(Refusal::new(
                code::STATE_NEWER,
                format!("{} has format {} and this version knows {FORMAT}", path.display(), header.format),
                "start the version that wrote it, or a newer one",
            ));
        }
        if (header.name.as_str(), header.number) != (name, number) {
            return Ok(Found::Damaged(format!("it is version {} of {}", header.number, header.name)));
        }
        Ok(Found::Whole(header, body.to_vec()))
    }

    /// The version of the document is in its file. *Durability*: it survives power loss.
    ///
    /// *Errors*: the folder is another one, or it could not be written; there is no such version then.
    pub(super) fn write(&self, header: &Header, body: &[u8]) -> Result<(), Refusal> {
        self.check()?;
        let (beside, path) = (self.versions.join(BESIDE), self.file(&header.name, header.number));
        let bytes = sheet::emit(header, body).map_err(|error| unwritable(&path, &error))?;
        let is_new = !path.exists();
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            sync_dir(&self.versions)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&beside);
            if is_new {
                // Who asked is told that it was not written, so no later start may find it.
                let _ = fs::remove_file(&path);
            }
            unwritable(&path, &error)
        })
    }

    /// The file is gone. One that stays is deleted with a later version.
    pub(super) fn remove(&self, name: &str, number: u64) {
        let path = self.file(name, number);
        if let Err(error) = fs::remove_file(&path).or_else(|error| missing_is_fine(&error)) {
            tracing::warn!(%error, file = %path.display(), "an old version of the state stays");
        }
    }

    /// No version of anything is there.
    pub(super) fn clear(&self) {
        for (name, numbers) in self.list().unwrap_or_default() {
            numbers.into_iter().for_each(|number| self.remove(&name, number));
        }
    }

    /// A damaged file keeps what it holds, under a name that nothing reads.
    ///
    /// *Errors*: it cannot be renamed.
    pub(super) fn put_aside(&self, name: &str, number: u64) -> Result<(), Refusal> {
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

/// The lock is held. It is tried for a second: a child process that was just started has a copy of every descriptor of its
/// parent until it executes its program, also of the lock that the parent has given up meanwhile.
fn take(lock: &File) -> Result<(), fs::TryLockError> {
    for _ in 0..20 {
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
            done => return done,
        }
    }
    lock.try_lock()
}

/// The number of a version as it stands in the name of its file; none for a name that no file of ours has.
fn number_of(digits: &str) -> Option<u64> {
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

/// The names in `dir` survive power loss.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
