//! Verbs of the helper, each behind its policy.

use super::policy::{Denial, JudgedPath, Policy, errno_of};
use super::programs::Run;
use privilege::{Mode, Outcome, Program, Verb};
use rustix::fs::{Dev, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of created files that are remembered for a removal, the latest ones.
const CREATED_MAX: usize = 64;

/// Executes the verbs and remembers which disks and files came through it. Every function may block for as long as a
/// disk does not answer.
pub(super) struct Verbs {
    policy: Policy,
    /// Block devices that were opened.
    opened: Mutex<BTreeSet<Dev>>,
    /// Device and inode numbers of the files that were created.
    created: Mutex<Vec<(u64, u64)>>,
}

impl Verbs {
    /// Starts with nothing opened or created.
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, opened: Mutex::default(), created: Mutex::default() }
    }

    /// Returns the program that the verb runs, or the refusal.
    pub(super) fn program_of(&self, verb: &Verb) -> Result<Run, Outcome> {
        let run = match verb {
            Verb::Health { path } => self.device(path).map(|place| Run::smartctl(&whole_device(&place))),
            Verb::Contents { path, program } => self.policy.place(path).map(|place| match program {
                Program::Wipefs => Run::wipefs(&place.real),
                Program::Blkid => Run::blkid(&place.real),
            }),
            // Called only by `Programs::start`, which gets only the two verbs above.
            _ => unreachable!("it is not an allowed program"),
        };
        run.map_err(outcome_of)
    }

    /// Carries out the verb, and returns its outcome and the descriptor that it opened, if any.
    pub(super) fn act(&self, verb: &Verb) -> (Outcome, Option<OwnedFd>) {
        let done = match verb {
            Verb::Open { path, mode } => self.open(path, *mode).map(Some),
            Verb::Create { path, bytes } => self.create(path, *bytes).map(|()| None),
            Verb::Remove { path } => self.remove(path).map(|()| None),
            Verb::Bind { address, takes_ipv4 } => self
                .policy
                .admit_port(*address)
                .and_then(|()| uring::listen_on(*address, *takes_ipv4).map_err(|error| errno_of(&error).into()))
                .map(Some),
            Verb::Locate { path, on } => self.locate(path, *on).map(|()| None),
            // `RequestServer::answer` hands both to `Programs`.
            Verb::Health { .. } | Verb::Contents { .. } => unreachable!("programs are not allowed"),
        };
        match done {
            Ok(descriptor) => (Outcome::Done, descriptor),
            Err(denial) => (outcome_of(denial), None),
        }
    }

    fn open(&self, path: &Path, mode: Mode) -> Result<OwnedFd, Denial> {
        let place = self.policy.place(path)?;
        let mut flags = if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::DIRECT, mode.direct);
        // `O_EXCL` on a block device fails if it is mounted or in an array. Without it the daemon could write below a
        // mounted file system.
        flags.set(OFlags::EXCL, !place.is_file());
        let fd = place.open(flags)?;
        if !place.is_file() {
            // By device number, since one disk has several paths.
            lock(&self.opened).insert(place.stat.st_rdev);
        }
        Ok(fd)
    }

    fn create(&self, path: &Path, bytes: u64) -> Result<(), Denial> {
        let real = self.policy.admit_new(path)?;
        let made = || -> std::io::Result<(u64, u64)> {
            // `create_new` also refuses a symbolic link at the name, which could lead out of the admitted trees.
            let file = File::options().write(true).create_new(true).mode(0o600).open(&real)?;
            // The size and the folder entry are synced: the file must exist after a power loss, once a pool uses it.
            let sized = file.set_len(bytes).and_then(|()| file.sync_all());
            let named = sized.and_then(|()| File::open(real.parent().unwrap_or(Path::new("/")))?.sync_all());
            if let Err(error) = named {
                // The incomplete file is useless; the error names the cause.
                let _ = fs::remove_file(&real);
                return Err(error);
            }
            file.metadata().map(|meta| (meta.dev(), meta.ino()))
        };
        let made = made().map_err(|error| errno_of(&error))?;
        let mut created = lock(&self.created);
        // The oldest entry is dropped. Its file can then no longer be removed by the daemon, which is safe.
        if created.len() == CREATED_MAX {
            created.remove(0);
        }
        created.push(made);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), Denial> {
        let real = self.policy.admit_new(path)?;
        // The link itself is judged, so that it cannot stand for a created file.
        let meta = fs::symlink_metadata(&real).map_err(|error| errno_of(&error))?;
        let mut created = lock(&self.created);
        // Compared by inode, not by path: the file at the path may have been replaced.
        let at = created.iter().position(|&made| made == (meta.dev(), meta.ino()));
        let at = at.ok_or_else(|| Denial::Policy(format!("{} was not created by the helper", real.display())))?;
        fs::remove_file(&real).map_err(|error| errno_of(&error))?;
        // Forgotten, since the inode number can be used again by a file of another owner.
        created.remove(at);
        Ok(())
    }

    fn locate(&self, path: &Path, on: bool) -> Result<(), Denial> {
        let place = self.device(path)?;
        // Locate lights are found in sysfs by the name of the device, so the resolved path is passed.
        let real = place.real.to_str().ok_or(Errno::INVAL)?;
        uring::locate(real, on).map_err(|error| match error.kind() {
            std::io::ErrorKind::Unsupported => Errno::OPNOTSUPP.into(),
            _ => errno_of(&error).into(),
        })
    }

    /// Judges a block device that must have been opened through this helper.
    fn device(&self, path: &Path) -> Result<JudgedPath, Denial> {
        let place = self.policy.place(path)?;
        if !place.is_file() && lock(&self.opened).contains(&place.stat.st_rdev) {
            return Ok(place);
        }
        Err(Denial::Policy(format!("{} is not a disk that was opened by the helper", path.display())))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one insertion or removal, so a panic of another thread leaves the value usable.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn outcome_of(denial: Denial) -> Outcome {
    match denial {
        Denial::Policy(why) => Outcome::Refused { reason: why },
        Denial::System(errno) => Outcome::Failed { errno: errno.raw_os_error() },
    }
}

/// Returns the path of the whole device for a partition.
fn whole_device(place: &JudgedPath) -> PathBuf {
    let whole = || {
        let entry = fs::canonicalize(Path::new("/sys/class/block").join(place.real.file_name()?)).ok()?;
        // sysfs lists a partition as a folder below its disk.
        let whole = if entry.join("partition").exists() { entry.parent()?.file_name()? } else { entry.file_name()? };
        Some(Path::new("/dev").join(whole))
    };
    whole().unwrap_or_else(|| place.real.clone())
}
