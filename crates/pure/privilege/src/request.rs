//! Requests of the daemon.

use crate::VERSION;
use crate::fields::{Reader, Violation, put};
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest request: a path has at most 4,096 bytes.
pub const REQUEST_BYTES_MAX: usize = 8192;

/// The longest path, without the zero that ends it (PATH_MAX).
const PATH_BYTES_MAX: usize = 4095;

/// One request. Its answer has the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the daemon; the helper only repeats it.
    pub number: u32,
    /// What is asked for.
    pub verb: Verb,
}

/// What the helper can do, each with its policy in ADR 19.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Open a disk or a file that stands for one.
    Open {
        /// Where it is.
        path: PathBuf,
        /// How it is opened.
        mode: Mode,
    },
    /// Create a sparse file that stands for a disk or holds a volume.
    Create {
        /// Where; nothing is there.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Remove a file that this helper created.
    Remove {
        /// Where it is.
        path: PathBuf,
    },
    /// Listen on a TCP port.
    Bind {
        /// The address with its port.
        address: SocketAddr,
        /// An IPv6 socket also takes IPv4.
        takes_ipv4: bool,
    },
    /// Run `smartctl` on an open disk.
    Health {
        /// The path that the disk was opened by.
        path: PathBuf,
    },
    /// Switch the locate light of an open disk's slot.
    Locate {
        /// The path that the disk was opened by.
        path: PathBuf,
        /// On or off.
        on: bool,
    },
    /// Run a program that recognizes signatures.
    Contents {
        /// The device or file.
        path: PathBuf,
        /// Which program.
        program: Program,
    },
}

/// How a disk is opened. A block device is always opened exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// For writing too.
    pub write: bool,
    /// Past the page cache.
    pub direct: bool,
}

/// A program that recognizes signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `wipefs --no-act --json`
    Wipefs,
    /// `blkid --probe --output export`
    Blkid,
}

/// A request that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its number, 0 where it does not reach so far.
    pub number: u32,
    /// The rule that it breaks.
    pub violation: Violation,
}

impl Request {
    /// The bytes of the request.
    ///
    /// *Panics*: its path is longer than the system takes; callers check with [`Request::fits`].
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        assert!(self.fits(), "a path is no longer than the system takes");
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(self.verb.code());
        if let Some(path) = self.verb.path() {
            put(&mut out, path.as_os_str().as_bytes());
        }
        match &self.verb {
            Verb::Open { mode, .. } => put(&mut out, &[u8::from(mode.write) | u8::from(mode.direct) << 1]),
            Verb::Create { bytes, .. } => put(&mut out, &bytes.to_le_bytes()),
            Verb::Remove { .. } | Verb::Health { .. } => {}
            Verb::Bind { address, takes_ipv4 } => {
                match address.ip() {
                    IpAddr::V4(ip) => put(&mut out, &ip.octets()),
                    IpAddr::V6(ip) => put(&mut out, &ip.octets()),
                }
                put(&mut out, &address.port().to_le_bytes());
                put(&mut out, &[u8::from(*takes_ipv4)]);
            }
            Verb::Locate { on, .. } => put(&mut out, &[u8::from(*on)]),
            Verb::Contents { program, .. } => put(&mut out, &[*program as u8]),
        }
        assert!(out.len() <= REQUEST_BYTES_MAX, "a path and 11 bytes fit");
        out
    }

    /// True when its path, if it has one, is a path that the system would take.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.verb.path().is_none_or(|path| is_path(path.as_os_str().as_bytes()))
    }

    /// The request that `bytes` are.
    ///
    /// *Errors*: the rule that they break, with the number as far as there is one.
    pub fn parse(bytes: &[u8]) -> Result<Self, Damaged> {
        let number = bytes.get(1..5).and_then(|number| number.try_into().ok()).map_or(0, u32::from_le_bytes);
        parse(bytes).map(|verb| Self { number, verb }).map_err(|violation| Damaged { number, violation })
    }
}

impl Verb {
    fn code(&self) -> u8 {
        match self {
            Self::Open { .. } => 1,
            Self::Create { .. } => 2,
            Self::Remove { .. } => 3,
            Self::Bind { .. } => 4,
            Self::Health { .. } => 5,
            Self::Locate { .. } => 6,
            Self::Contents { .. } => 7,
        }
    }

    /// The path that it is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Open { path, .. }
            | Self::Create { path, .. }
            | Self::Remove { path }
            | Self::Health { path }
            | Self::Locate { path, .. }
            | Self::Contents { path, .. } => Some(path),
            Self::Bind { .. } => None,
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Verb, Violation> {
    if bytes.len() > REQUEST_BYTES_MAX {
        return Err(Violation::TooLong);
    }
    let mut reader = Reader(bytes);
    let [version] = reader.array()?;
    if version != VERSION {
        return Err(Violation::Version(version));
    }
    let _number: [u8; 4] = reader.array()?;
    let [code] = reader.array()?;
    let verb = match code {
        1 => Verb::Open { path: path(&mut reader)?, mode: mode(&mut reader)? },
        2 => Verb::Create { path: path(&mut reader)?, bytes: u64::from_le_bytes(reader.exact()?) },
        3 => Verb::Remove { path: path(&mut reader)? },
        4 => Verb::Bind { address: address(&mut reader)?, takes_ipv4: reader.flag()? },
        5 => Verb::Health { path: path(&mut reader)? },
        6 => Verb::Locate { path: path(&mut reader)?, on: reader.flag()? },
        7 => Verb::Contents { path: path(&mut reader)?, program: program(&mut reader)? },
        unknown => return Err(Violation::Verb(unknown)),
    };
    reader.end()?;
    Ok(verb)
}

fn is_path(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len() <= PATH_BYTES_MAX && !bytes.contains(&0)
}

fn path(reader: &mut Reader<'_>) -> Result<PathBuf, Violation> {
    let bytes = reader.field()?;
    if is_path(bytes) { Ok(OsStr::from_bytes(bytes).into()) } else { Err(Violation::Field) }
}

fn mode(reader: &mut Reader<'_>) -> Result<Mode, Violation> {
    match reader.exact::<1>()? {
        [bits @ 0..=3] => Ok(Mode { write: bits & 1 != 0, direct: bits & 2 != 0 }),
        _ => Err(Violation::Field),
    }
}

fn address(reader: &mut Reader<'_>) -> Result<SocketAddr, Violation> {
    let ip = reader.field()?;
    let ip = match (<[u8; 4]>::try_from(ip), <[u8; 16]>::try_from(ip)) {
        (Ok(octets), _) => IpAddr::from(octets),
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => return Err(Violation::Field),
    };
    Ok(SocketAddr::new(ip, u16::from_le_bytes(reader.exact()?)))
}

fn program(reader: &mut Reader<'_>) -> Result<Program, Violation> {
    match reader.exact::<1>()? {
        [0] => Ok(Program::Wipefs),
        [1] => Ok(Program::Blkid),
        _ => Err(Violation::Field),
    }
}
