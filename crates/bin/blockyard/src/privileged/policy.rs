//! What the helper does for the daemon and what it does not: the table of docs/adr/0019-process-model.md as code.
//!
//! A path is opened once as a place (`O_PATH`), and what it leads to is judged: the same place is then opened for reading or writing, so that
//! nothing can be exchanged between judgment and opening.

use crate::config::Config;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Trees of the system. No file that stands for a disk lies there; block devices may.
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

/// The same below `/var/lib`: the databases of packages and of the service manager.
const SYSTEM_STATE: [&str; 4] = ["apt", "dpkg", "rpm", "systemd"];

/// A file that stands for a disk has at least this many bytes: lists of keys, users and jobs are smaller.
const FILE_BYTES_MIN: u64 = 1 << 20;

/// Ports from here on need no privilege.
const PORT_MIN: u16 = 1024;

/// Why a request is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// The policy forbids it: the rule as a sentence.
    Policy(String),
    /// The system says no.
    System(Errno),
}

impl From<Errno> for Denial {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// The rules, with the paths and ports of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    own: Vec<PathBuf>,
    ports: BTreeSet<u16>,
}

/// A place that was judged.
pub(super) struct Place {
    fd: OwnedFd,
    /// Where it really is.
    pub real: PathBuf,
    /// What it is.
    pub stat: Stat,
}

impl Policy {
    /// That of a daemon that is configured so.
    pub(crate) fn of(config: &Config) -> Self {
        let settings = &config.settings;
        let mut own = vec![settings.state_dir.clone(), settings.socket.clone()];
        own.extend(config.opening.key.clone());
        own.extend(config.files());
        own.extend(fs::read_link("/proc/self/exe"));
        let mut ports: BTreeSet<u16> = settings.portals.iter().map(SocketAddr::port).collect();
        ports.extend(config.web.iter().flat_map(|web| &web.listen).map(SocketAddr::port));
        Self { own: own.iter().map(|path| real(path)).collect(), ports }
    }

    /// One that knows only the folder of the state.
    #[cfg(test)]
    pub(super) fn only(state: &Path) -> Self {
        Self { own: vec![real(state)], ports: BTreeSet::new() }
    }

    /// The disk at `path`, or the file that stands for one.
    pub(super) fn place(&self, path: &Path) -> Result<Place, Denial> {
        admit(path)?;
        let fd = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        let real = fs::read_link(link_to(&fd)).map_err(|error| errno_of(&error))?;
        let place = Place { fd, real, stat };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => {}
            FileType::RegularFile => self.admit_file(&place)?,
            // As open(2) of a disk says where the kind is wrong.
            _ => return Err(Errno::INVAL.into()),
        }
        Ok(place)
    }

    fn admit_file(&self, Place { real, stat, .. }: &Place) -> Result<(), Denial> {
        self.admit_tree(real)?;
        let denied = |why: &str| Err(Denial::Policy(format!("{} {why}", real.display())));
        match () {
            () if stat.st_nlink == 0 => denied("was removed"),
            () if stat.st_mode & 0o7111 != 0 => denied("is executable"),
            () if u64::try_from(stat.st_size).unwrap_or(0) < FILE_BYTES_MIN => denied("is smaller than 1 MiB"),
            () => Ok(()),
        }
    }

    /// Admits the place of a file that does not exist yet.
    pub(super) fn admit_new(&self, path: &Path) -> Result<PathBuf, Denial> {
        admit(path)?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL.into()) };
        let folder = fs::canonicalize(folder).map_err(|error| errno_of(&error))?;
        let real = folder.join(name);
        self.admit_tree(&real)?;
        Ok(real)
    }

    fn admit_tree(&self, real: &Path) -> Result<(), Denial> {
        if self.own.iter().any(|own| real.starts_with(own)) {
            return Err(Denial::Policy(format!("{} belongs to the array itself", real.display())));
        }
        let state = SYSTEM_STATE.iter().map(|name| Path::new("/var/lib").join(name));
        match SYSTEM.iter().map(PathBuf::from).chain(state).find(|tree| real.starts_with(tree)) {
            Some(tree) => Err(Denial::Policy(format!("{} lies below {}", real.display(), tree.display()))),
            None => Ok(()),
        }
    }

    /// Admits a port to listen on.
    pub(super) fn admit_port(&self, address: SocketAddr) -> Result<(), Denial> {
        let port = address.port();
        if port >= PORT_MIN || self.ports.contains(&port) {
            return Ok(());
        }
        Err(Denial::Policy(format!("port {port} is below {PORT_MIN} and not in the configuration")))
    }
}

impl Place {
    /// True for a regular file, false for a block device.
    pub(super) fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    /// The same place, opened.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        open(link_to(&self.fd), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
    }
}

/// Admits an absolute path without steps back.
fn admit(path: &Path) -> Result<(), Denial> {
    if path.is_absolute() && !path.components().any(|part| part == Component::ParentDir) {
        return Ok(());
    }
    Err(Denial::Policy("a path begins at / and has no steps back".to_owned()))
}

fn link_to(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Where the path leads, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    there.map_or_else(
        || path.to_path_buf(),
        |(above, real)| match path.strip_prefix(above) {
            Ok(rest) if rest.as_os_str().is_empty() => real,
            Ok(rest) => real.join(rest),
            Err(_) => real,
        },
    )
}

#[cfg(test)]
mod tests;
