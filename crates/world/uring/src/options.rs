//! How a shard meets the kernel.

use block::medium::Medium;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a shard that is to poll looks for work before it sleeps. Longer trades more CPU for the same at any load that keeps it busy.
pub const BUSY_POLL: Duration = Duration::from_micros(50);

/// How a shard is set up. The defaults suit one shard per core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which interface of the kernel carries the I/O.
    pub io: Io,
    /// Operations that fit into one submission; more are submitted in several. A power of two.
    pub queue_entries: u32,
    /// Threads that do the disk I/O of this shard where io_uring is not there, for each open disk; they end when idle.
    pub threads_per_disk_max: usize,
    /// How long the shard looks for work before it sleeps: trades CPU for latency at low depth. Zero: it sleeps at once.
    /// It is not spent while looking has not paid of late.
    pub busy_poll: Duration,
    /// The core that the shard is pinned to.
    pub cpu: Option<usize>,
    /// Files that take as long as disks would: for measurements without such disks. The first that holds a file counts.
    pub media: Vec<FilesLike>,
    /// The ring carries only the operations of the reactor, and takes no registrations: seccomp does not see what a ring does.
    pub restricted: bool,
    /// Who does what this process has no privilege for; none where it has.
    pub privileges: Option<Privileges>,
}

/// What a process without privileges asks of one that has them. Called by shards, from any thread; each call may block.
pub trait Privileged: Send + Sync {
    /// The disk or file at `path` is open; a block device exclusively.
    ///
    /// *Errors*: as open(2), and what the policy of the other process says.
    fn open(&self, path: &str, write: bool, direct: bool) -> io::Result<OwnedFd>;

    /// A TCP socket that does not block listens at `address`; one for IPv6 may take IPv4 too.
    ///
    /// *Errors*: as bind(2), and what the policy of the other process says.
    fn bind(&self, address: SocketAddr, takes_ipv4: bool) -> io::Result<OwnedFd>;

    /// The light of the slot that the disk at `path` sits in is on, or off.
    ///
    /// *Errors*: `Unsupported` when no light is known.
    fn locate(&self, path: &str, on: bool) -> io::Result<()>;
}

/// The one [`Privileged`] of this process. Equal to its clones only.
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

/// Files that take as long as disks of a medium would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesLike {
    /// Those below this folder.
    pub folder: PathBuf,
    /// What they behave like.
    pub medium: Medium,
    /// Over how many bytes the arm of a disk goes from end to end; those of the file unless told.
    pub stroke_bytes: Option<u64>,
}

/// Which interface of the kernel carries the I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring where it is allowed, else epoll and threads, with a line in the log.
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
