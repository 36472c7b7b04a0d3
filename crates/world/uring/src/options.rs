//! Configuration of a shard: kernel interface, polling, core, privileges.

use block::medium::Medium;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Default busy-poll time of a shard before it sleeps. A longer one costs more CPU time without a gain at any load that
/// keeps the shard busy.
pub const BUSY_POLL: Duration = Duration::from_micros(50);

/// Configuration of a shard. The defaults suit one shard per core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Kernel interface for I/O.
    pub io: Io,
    /// Entries of the submission queue; more operations take several submissions. A power of two.
    pub queue_entries: u32,
    /// Limit on threads per open disk where io_uring is not available; they end when idle.
    pub threads_per_disk_max: usize,
    /// Busy-poll time before the shard sleeps: trades CPU time for latency at low queue depth. Zero disables it.
    /// Suspended while recent polling found nothing.
    pub busy_poll: Duration,
    /// Core that the shard is pinned to.
    pub cpu: Option<usize>,
    /// Latency models for files: for measurements without such disks. The first entry that contains a file applies.
    pub media: Vec<FilesLike>,
    /// True to restrict the ring to the operations of the reactor, without registrations: seccomp does not see the
    /// operations of a ring.
    pub restricted: bool,
    /// Helper for operations that need privileges; `None` when this process has them.
    pub privileges: Option<Privileges>,
}

/// Operations that an unprivileged process delegates to a privileged one. Called by shards, from any thread; each call
/// may block.
pub trait Privileged: Send + Sync {
    /// Opens the disk or file at `path`; a block device exclusively.
    ///
    /// *Errors*: as open(2), and the policy of the privileged process.
    fn open(&self, path: &str, write: bool, direct: bool) -> io::Result<OwnedFd>;

    /// Opens a non-blocking TCP socket that listens on `address`; one for IPv6 can accept IPv4 as well.
    ///
    /// *Errors*: as bind(2), and the policy of the privileged process.
    fn bind(&self, address: SocketAddr, takes_ipv4: bool) -> io::Result<OwnedFd>;

    /// Switches the locate LED of the slot of the disk at `path` on or off.
    ///
    /// *Errors*: `Unsupported` when no LED is known.
    fn locate(&self, path: &str, on: bool) -> io::Result<()>;
}

/// The [`Privileged`] helper of this process. Equal to its clones only.
#[derive(Clone)]
pub struct Privileges(pub Arc<dyn Privileged>);

impl PartialEq for Privileges {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Privileges {}

impl fmt::Debug for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Privileges")
    }
}

/// Latency model for the files of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesLike {
    /// Folder of the files.
    pub folder: PathBuf,
    /// Medium that is modeled.
    pub medium: Medium,
    /// Bytes that the full stroke of the arm covers; the size of the file if `None`.
    pub stroke_bytes: Option<u64>,
}

/// Kernel interface for I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring where it is allowed, otherwise epoll and threads, with a warning in the log.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// epoll for sockets, a few threads for each disk.
    Threads,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            io: Io::Auto,
            queue_entries: 256,
            threads_per_disk_max: 4,
            busy_poll: Duration::ZERO,
            cpu: None,
            media: Vec::new(),
            restricted: false,
            privileges: None,
        }
    }
}
