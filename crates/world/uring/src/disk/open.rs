//! Opening a disk: exclusive access, direct I/O where possible, and its geometry.

use super::error_state::ErrorState;
use super::latency_model::LatencyModel;
use super::{Access, Disk, opening};
use crate::abandoned_writes::AbandonedWrites;
use crate::options::Privileges;
use crate::world::Inner;
use block::{Blocks, Buf, Geometry};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use shard::DiskOptions;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

impl Disk {
    /// Opens the disk; see [`World::open_disk`](shard::World::open_disk).
    pub(crate) async fn open(world: Rc<Inner>, path: &str, options: DiskOptions) -> io::Result<Self> {
        if options.block_bytes != 512 && options.block_bytes != 4096 {
            let said = format!("a block size of {} bytes is not supported; use 512 or 4096", options.block_bytes);
            return Err(io::Error::new(ErrorKind::InvalidInput, said));
        }
        let (named, privileges) = (path.to_owned(), world.privileges.clone());
        let open = move || Opened::at(&named, options, privileges.as_ref());
        // Never on the shard: open(2) of a hanging disk blocks.
        let Opened { file, direct, is_file, shape } = opening::on_a_thread(&world, path, open).await?;
        // The kernel rejects direct I/O in units below the logical block size.
        if shape.logical_bytes > options.block_bytes {
            let said = format!(
                "{path} has blocks of {} bytes and cannot be used with a smaller block size",
                shape.logical_bytes
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, said));
        }
        let geometry = Geometry {
            block_bytes: options.block_bytes,
            // A partial block at the end is not used.
            blocks: Blocks(shape.bytes / u64::from(options.block_bytes)),
            physical_block_bytes: shape.physical_bytes,
            // The kernel reports zero where the device states no optimal size.
            optimal_bytes: shape.optimal_bytes.max(shape.physical_bytes).max(options.block_bytes),
            // Data in the page cache is lost on power loss, too.
            volatile_cache: shape.volatile_cache || !direct,
            discard_zeroes: shape.can_punch,
            prefers_unlogged: false,
        };
        let align = match direct {
            // Direct I/O on a file was tried with `block_bytes` only.
            true if is_file => options.block_bytes as usize,
            true => shape.logical_bytes as usize,
            false => 1,
        };
        let access = Access { align, is_file, read_only: options.read_only, can_punch: shape.can_punch };
        tracing::debug!(path, ?geometry, ?access, "disk opened");
        let faults = Rc::new(ErrorState::none(path.to_owned()));
        let pace = is_file.then(|| LatencyModel::of(&world, path, shape.bytes)).flatten();
        Ok(Self {
            world,
            file: Arc::new(file),
            geometry,
            access,
            faults,
            orphans: AbandonedWrites::default(),
            latency_model: pace,
        })
    }
}

/// Open disk with the properties that the kernel reports.
struct Opened {
    file: OwnedFd,
    direct: bool,
    is_file: bool,
    shape: Shape,
}

impl Opened {
    /// Opens `path`. Blocks the calling thread while the disk does not respond.
    fn at(path: &str, options: DiskOptions, privileges: Option<&Privileges>) -> io::Result<Self> {
        let (file, direct) = open_exclusively(privileges, path, options)?;
        let stat = rustix::fs::fstat(&file)?;
        let is_file = file_or_device(&stat, path)?;
        // `O_EXCL` protects block devices only.
        if is_file {
            // The lock belongs to the open file and ends with its last descriptor, also after a kill.
            lock(&file, path, options.read_only)?;
        }
        let shape = if is_file { Shape::of_file(&file, &stat)? } else { Shape::of_device(&file, &stat)? };
        Ok(Self { file, direct, is_file, shape })
    }
}

/// True for a regular file, false for a block device.
fn file_or_device(stat: &Stat, path: &str) -> io::Result<bool> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(true),
        FileType::BlockDevice => Ok(false),
        _ => {
            Err(io::Error::new(ErrorKind::InvalidInput, format!("{path} is neither a block device nor a regular file")))
        }
    }
}

/// Opens the file; the flag is true when it bypasses the page cache.
fn open_exclusively(privileges: Option<&Privileges>, path: &str, options: DiskOptions) -> io::Result<(OwnedFd, bool)> {
    let open = |direct| match privileges {
        Some(privileges) => privileges.0.open(path, !options.read_only, direct),
        None => open_here(path, !options.read_only, direct),
    };
    match open(true) {
        Ok(file) if does_direct(&file, options.block_bytes) => Ok((file, true)),
        Ok(file) => {
            // Closed first: a block device opened with `O_EXCL` cannot be opened a second time.
            drop(file);
            Ok((open(false)?, false))
        }
        // EINVAL: the file system does not support `O_DIRECT`.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok((open(false)?, false)),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Err(busy(path)),
        Err(error) => Err(error),
    }
}

/// Opens the file as [`Privileged::open`](crate::Privileged::open) does, in this process.
fn open_here(path: &str, write: bool, direct: bool) -> io::Result<OwnedFd> {
    let is_file = file_or_device(&rustix::fs::stat(path)?, path)?;
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= if write { OFlags::RDWR } else { OFlags::RDONLY };
    flags.set(OFlags::DIRECT, direct);
    // On a block device `O_EXCL` without `O_CREAT` fails when the device is mounted, part of an array, or open
    // exclusively.
    flags.set(OFlags::EXCL, !is_file);
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    // The path may have been replaced between `stat` and `open`.
    if file_or_device(&rustix::fs::fstat(&file)?, path)? != is_file {
        return Err(io::Error::new(ErrorKind::ResourceBusy, format!("{path} was replaced while it was opened")));
    }
    Ok(file)
}

fn busy(path: &str) -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, format!("{path} is in use by another process"))
}

/// Locks the file against other processes: shared for reading, otherwise exclusive.
fn lock(file: &OwnedFd, path: &str, read_only: bool) -> io::Result<()> {
    let lock = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(file, lock) {
        Err(Errno::WOULDBLOCK) => Err(busy(path)),
        result => Ok(result?),
    }
}

/// True when direct I/O works in units of `block_bytes`. An empty file passes, and holds no block.
fn does_direct(file: &OwnedFd, block_bytes: u32) -> bool {
    let mut buf = Buf::recycled(block_bytes as usize);
    // Reads the second block, because offset 0 would satisfy any alignment.
    !matches!(rustix::io::pread(file, &mut buf[..], u64::from(block_bytes)), Err(Errno::INVAL))
}

/// Size and properties reported by the kernel.
struct Shape {
    bytes: u64,
    logical_bytes: u32,
    physical_bytes: u32,
    optimal_bytes: u32,
    volatile_cache: bool,
    can_punch: bool,
}

impl Shape {
    fn of_file(file: &OwnedFd, stat: &Stat) -> io::Result<Self> {
        let block = u32::try_from(stat.st_blksize).unwrap_or(4096).clamp(512, 4096);
        // Punches a hole after the end, which changes nothing, to find out whether the file system supports it.
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = u64::try_from(stat.st_size).expect("a file's size is not negative");
        let can_punch = match rustix::fs::fallocate(file, mode, bytes, 4096) {
            Ok(()) => true,
            Err(Errno::OPNOTSUPP | Errno::BADF | Errno::NOSYS) => false,
            Err(errno) => return Err(errno.into()),
        };
        let (logical_bytes, physical_bytes, optimal_bytes) = (512, block, block);
        Ok(Self { bytes, logical_bytes, physical_bytes, optimal_bytes, volatile_cache: true, can_punch })
    }

    fn of_device(file: &OwnedFd, stat: &Stat) -> io::Result<Self> {
        let queue = Queue::of(stat.st_rdev);
        Ok(Self {
            bytes: rustix::fs::seek(file, SeekFrom::End(0))?,
            logical_bytes: rustix::fs::ioctl_blksszget(file)?,
            physical_bytes: rustix::fs::ioctl_blkpbszget(file)?,
            optimal_bytes: queue.number("optimal_io_size"),
            // Assumes a volatile cache unless the kernel says that there is none.
            volatile_cache: queue.text("write_cache").is_none_or(|cache| cache != "write through"),
            // Only then is punching cheaper than writing zeros.
            can_punch: queue.number("write_zeroes_max_bytes") > 0 && queue.number("discard_max_bytes") > 0,
        })
    }
}

/// Attributes of a device's request queue in sysfs.
struct Queue(String);

impl Queue {
    fn of(device: u64) -> Self {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let here = format!("/sys/dev/block/{major}:{minor}/queue");
        // A partition uses the queue of its disk.
        let whole = format!("/sys/dev/block/{major}:{minor}/../queue");
        Self(if std::path::Path::new(&here).exists() { here } else { whole })
    }

    fn text(&self, attribute: &str) -> Option<String> {
        let text = std::fs::read_to_string(format!("{}/{attribute}", self.0)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number(&self, attribute: &str) -> u32 {
        let number: Option<u64> = self.text(attribute).and_then(|text| text.parse().ok());
        u32::try_from(number.unwrap_or(0)).unwrap_or(u32::MAX)
    }
}
