//! Policy of the helper: the requests that it carries out, as in the table of docs/adr/0019-process-model.md.
//!
//! A path is opened once as a location only (`O_PATH`), the file found there is judged, and the same location is then
//! opened for reading or writing. Nothing can be exchanged between judgment and opening.

use crate::config::Config;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// System trees, in which no file may be used as a disk. Block devices may.
const SYSTEM: [&str; 13] = [
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/log",
    "/var/spool",
];

/// Further such trees below `/var/lib`: the databases of packages and of the service manager.
const SYSTEM_STATE: [&str; 4] = ["apt", "dpkg", "rpm", "systemd"];

/// Minimum size in bytes of a file used as a disk: lists of keys, users and jobs are smaller.
const FILE_BYTES_MIN: u64 = 1 << 20;

/// First port that needs no privilege.
const PORT_MIN: u16 = 1024;

/// Reason for a denied request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// Forbidden by the policy; the rule as a sentence.
    Policy(String),
    /// Error of the system.
    System(Errno),
}

impl From<Errno> for Denial {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Rules, with the paths and ports of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    own: Vec<PathBuf>,
    ports: BTreeSet<u16>,
}

/// Location that was judged and is held open.
pub(super) struct JudgedPath {
    fd: OwnedFd,
    /// Path after resolving symbolic links.
    pub real: PathBuf,
    /// File status.
    pub stat: Stat,
}

impl Policy {
    /// Returns the policy for a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let settings = &config.settings;
        let mut own = vec![settings.state_dir.clone(), settings.socket.clone()];
        own.extend(config.opening.key.clone());
        own.extend(config.files());
        // The program itself: overwriting it would run foreign code with the helper's privileges at the next start.
        own.extend(fs::read_link("/proc/self/exe"));
        let mut ports: BTreeSet<u16> = settings.portals.iter().map(SocketAddr::port).collect();
        ports.extend(config.web.iter().flat_map(|web| &web.listen).map(SocketAddr::port));
        // Resolved, since requests are compared by their real paths.
        Self { own: own.iter().map(|path| real(path)).collect(), ports }
    }

    /// Returns a policy that protects only the state folder.
    #[cfg(test)]
    pub(super) fn only(state: &Path) -> Self {
        Self { own: vec![real(state)], ports: BTreeSet::new() }
    }

    /// Judges the disk at `path`, or the file that is used as one.
    pub(super) fn place(&self, path: &Path) -> Result<JudgedPath, Denial> {
        admit(path)?;
        let fd = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        // The link of the descriptor names what was really opened, also if the path has changed since.
        let real = fs::read_link(link_to(&fd)).map_err(|error| errno_of(&error))?;
        let place = JudgedPath { fd, real, stat };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => {}
            FileType::RegularFile => self.admit_file(&place)?,
            // Same error as open(2) gives for a wrong kind of file.
            _ => return Err(Errno::INVAL.into()),
        }
        Ok(place)
    }

    fn admit_file(&self, JudgedPath { real, stat, .. }: &JudgedPath) -> Result<(), Denial> {
        self.admit_tree(real)?;
        let denied = |why: &str| Err(Denial::Policy(format!("{} {why}", real.display())));
        match () {
            // The path of a removed file has a suffix in its link, so it cannot be compared with the trees.
            () if stat.st_nlink == 0 => denied("was removed"),
            // Set-user-ID, set-group-ID, sticky or executable: no such file is a disk.
            () if stat.st_mode & 0o7111 != 0 => denied("is executable"),
            () if u64::try_from(stat.st_size).unwrap_or(0) < FILE_BYTES_MIN => denied("is smaller than 1 MiB"),
            () => Ok(()),
        }
    }

    /// Judges the path of a file that does not exist yet, and returns its real path.
    pub(super) fn admit_new(&self, path: &Path) -> Result<PathBuf, Denial> {
        admit(path)?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL.into()) };
        // Only the folder is resolved: the file need not exist, and a link in its place is not followed.
        let folder = fs::canonicalize(folder).map_err(|error| errno_of(&error))?;
        let real = folder.join(name);
        self.admit_tree(&real)?;
        Ok(real)
    }

    fn admit_tree(&self, real: &Path) -> Result<(), Denial> {
        // `starts_with` compares whole components, so `/etcetera` is not below `/etc`.
        if self.own.iter().any(|own| real.starts_with(own)) {
            return Err(Denial::Policy(format!("{} belongs to the state of the array", real.display())));
        }
        let state = SYSTEM_STATE.iter().map(|name| Path::new("/var/lib").join(name));
        match SYSTEM.iter().map(PathBuf::from).chain(state).find(|tree| real.starts_with(tree)) {
            Some(tree) => Err(Denial::Policy(format!("{} is below {}", real.display(), tree.display()))),
            None => Ok(()),
        }
    }

    /// Judges an address to listen on by its port.
    pub(super) fn admit_port(&self, address: SocketAddr) -> Result<(), Denial> {
        let port = address.port();
        if port >= PORT_MIN || self.ports.contains(&port) {
            return Ok(());
        }
        Err(Denial::Policy(format!("port {port} is below {PORT_MIN} and not configured")))
    }
}

impl JudgedPath {
    /// Returns true for a regular file, false for a block device.
    pub(super) fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    /// Opens the judged location itself.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        open(link_to(&self.fd), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
    }
}

/// Accepts only an absolute path without `..`.
fn admit(path: &Path) -> Result<(), Denial> {
    if path.is_absolute() && !path.components().any(|part| part == Component::ParentDir) {
        return Ok(());
    }
    Err(Denial::Policy("a path must be absolute and without ..".to_owned()))
}

fn link_to(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    // Errors that the standard library creates itself have no number.
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Resolves symbolic links of the existing part of the path.
fn real(path: &Path) -> PathBuf {
    // The socket and the state folder may not exist yet when the policy is made.
    let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    there.map_or_else(
        || path.to_path_buf(),
        |(above, real)| match path.strip_prefix(above) {
            // Joining an empty rest would append a slash.
            Ok(rest) if rest.as_os_str().is_empty() => real,
            Ok(rest) => real.join(rest),
            Err(_) => real,
        },
    )
}

#[cfg(test)]
mod tests;
