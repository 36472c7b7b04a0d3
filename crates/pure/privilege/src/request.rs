//! Requests of the daemon to the privileged helper.

use crate::VERSION;
use crate::fields::{Reader, Violation, put};
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum length of a request in bytes; a path has at most 4,096.
pub const REQUEST_BYTES_MAX: usize = 8192;

/// Maximum length of a path in bytes without its terminating zero (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4095;

/// Request; its answer carries the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number chosen by the daemon and repeated by the helper.
    pub number: u32,
    /// Requested operation.
    pub verb: Verb,
}

/// Operation of the helper; ADR 19 has the policy of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Open a disk, or a file that stands for one.
    Open {
        /// Path of the disk or file.
        path: PathBuf,
        /// Open mode.
        mode: Mode,
    },
    /// Create a sparse file that stands for a disk or holds a volume.
    Create {
        /// Path, which must not exist.
        path: PathBuf,
        /// Size in bytes.
        bytes: u64,
    },
    /// Remove a file that this helper created.
    Remove {
        /// Path of the file.
        path: PathBuf,
    },
    /// Listen on a TCP port.
    Bind {
        /// Address and port.
        address: SocketAddr,
        /// True when an IPv6 socket also accepts IPv4.
        takes_ipv4: bool,
    },
    /// Run `smartctl` on an open disk.
    Health {
        /// Path by which the disk was opened.
        path: PathBuf,
    },
    /// Switch the locate LED of an open disk's slot.
    Locate {
        /// Path by which the disk was opened.
        path: PathBuf,
        /// True for on.
        on: bool,
    },
    /// Run a program that recognizes signatures.
    Contents {
        /// Path of the device or file.
        path: PathBuf,
        /// Program to run.
        program: Program,
    },
}

/// Open mode of a disk. A block device is always opened exclusively (`O_EXCL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// True for reading and writing, false for reading.
    pub write: bool,
    /// True for direct I/O, past the page cache (`O_DIRECT`).
    pub direct: bool,
}

/// Program that recognizes signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Runs `wipefs --no-act --json`.
    Wipefs,
    /// Runs `blkid --probe --output export`.
    Blkid,
}

/// Request that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Number of the request; 0 where the message is too short for one.
    pub number: u32,
    /// Rule that it violates.
    pub violation: Violation,
}

impl Request {
    /// Encodes the request.
    ///
    /// *Panics*: when its path is longer than the system accepts; callers check with [`Request::has_valid_path`].
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        assert!(self.has_valid_path(), "a path is no longer than the system takes");
        // The fixed part has the same layout for all verbs; the path, where there is one, is the first field.
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(self.verb.code());
        if let Some(path) = self.verb.path() {
            put(&mut out, path.as_os_str().as_bytes());
        }
        match &self.verb {
            // Bit 0: write, bit 1: direct.
            Verb::Open { mode, .. } => put(&mut out, &[u8::from(mode.write) | u8::from(mode.direct) << 1]),
            Verb::Create { bytes, .. } => put(&mut out, &bytes.to_le_bytes()),
            Verb::Remove { .. } | Verb::Health { .. } => {}
            Verb::Bind { address, takes_ipv4 } => {
                match address.ip() {
                    // The length of the field, 4 or 16 bytes, tells the address family.
                    IpAddr::V4(ip) => put(&mut out, &ip.octets()),
                    IpAddr::V6(ip) => put(&mut out, &ip.octets()),
                }
                put(&mut out, &address.port().to_le_bytes());
                put(&mut out, &[u8::from(*takes_ipv4)]);
            }
            Verb::Locate { on, .. } => put(&mut out, &[u8::from(*on)]),
            // The order of the variants is part of the protocol: `program` below parses it.
            Verb::Contents { program, .. } => put(&mut out, &[*program as u8]),
        }
        assert!(out.len() <= REQUEST_BYTES_MAX, "a path and 11 bytes fit");
        out
    }

    /// True when its path, if it has one, is valid for the system.
    #[must_use]
    pub fn has_valid_path(&self) -> bool {
        self.verb.path().is_none_or(|path| is_path(path.as_os_str().as_bytes()))
    }

    /// Parses a request.
    ///
    /// *Errors*: the rule that the bytes violate, with the number as far as it can be read.
    pub fn parse(bytes: &[u8]) -> Result<Self, Damaged> {
        // The number is read first, so that even an invalid request can be answered.
        // At its fixed place, behind the version.
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

    /// Path of the operation, if it has one.
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
    // The socket keeps packet boundaries, so a longer packet is no part of another request.
    if bytes.len() > REQUEST_BYTES_MAX {
        return Err(Violation::TooLong);
    }
    let mut reader = Reader(bytes);
    let [version] = reader.array()?;
    if version != VERSION {
        return Err(Violation::Version(version));
    }
    // Read by `Request::parse` already.
    let _number: [u8; 4] = reader.array()?;
    // Each verb has its fields in the order in which `emit` writes them.
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
    // A path with a zero byte would be cut off by the kernel, and another path judged than opened.
    !bytes.is_empty() && bytes.len() <= PATH_BYTES_MAX && !bytes.contains(&0)
}

fn path(reader: &mut Reader<'_>) -> Result<PathBuf, Violation> {
    let bytes = reader.field()?;
    if is_path(bytes) { Ok(OsStr::from_bytes(bytes).into()) } else { Err(Violation::Field) }
}

fn mode(reader: &mut Reader<'_>) -> Result<Mode, Violation> {
    match reader.exact::<1>()? {
        // Unknown bits are a violation: the helper must not open a disk in a mode that it does not understand.
        [bits @ 0..=3] => Ok(Mode { write: bits & 1 != 0, direct: bits & 2 != 0 }),
        _ => Err(Violation::Field),
    }
}

fn address(reader: &mut Reader<'_>) -> Result<SocketAddr, Violation> {
    let ip = reader.field()?;
    // The length of the field tells the address family, as in `emit`.
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
