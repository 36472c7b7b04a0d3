//! The outside of a shard as one trait: clock, disks, sockets. `uring` and `sim` implement it.

use crate::Time;
use crate::time::Sleep;
use block::BlockDevice;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

/// Services that the outside offers to the tasks of one shard. Cheap to clone; never leaves its shard.
pub trait World: Clone + 'static {
    /// Disk, or a file in place of one.
    type Disk: BlockDevice + 'static;
    /// TCP connection.
    type Stream: Stream + 'static;
    /// Listening TCP socket.
    type Listener: Listener<Stream = Self::Stream> + 'static;

    /// Returns the time of the monotonic clock.
    fn now(&self) -> Time;

    /// Returns the time since 1970: for labels and logs, never for an order of events.
    fn unix_time(&self) -> Duration;

    /// Returns the time since 1970 in whole seconds.
    fn unix_seconds(&self) -> u64 {
        self.unix_time().as_secs()
    }

    /// Fills `out` with unpredictable bytes (from a seed in simulation).
    fn random(&self, out: &mut [u8]);

    /// Runs `task` on this shard, concurrently with the caller.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Idle counter: changes each time the shard had nothing to do and waited. Between two equal values it was busy all
    /// the time.
    fn idle_count(&self) -> u64;

    /// Waits until the clock has reached `at`.
    fn sleep_until(&self, at: Time) -> Sleep;

    /// Waits for `duration`.
    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Opens the disk or file at `path` for reading and writing.
    ///
    /// *Errors*: those of the operating system; a path that is neither a block device nor a regular file is
    /// `InvalidInput`; a disk that another process holds exclusively is `ResourceBusy`; one that does not respond is
    /// `TimedOut`, after some seconds.
    fn open_disk(&self, path: &str, options: DiskOptions) -> impl Future<Output = io::Result<Self::Disk>>;

    /// Returns identity and location of the disk at `path`; empty for a file.
    ///
    /// *Errors*: nothing exists at `path`.
    fn describe_disk(&self, path: &str) -> io::Result<DiskFacts> {
        let _ = path;
        Ok(DiskFacts::default())
    }

    /// Switches the locate LED of the slot of the disk at `path` on or off.
    ///
    /// *Errors*: `Unsupported` when no LED is known.
    fn locate_disk(&self, path: &str, on: bool) -> io::Result<()> {
        let _ = (path, on);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Listens on `address`.
    fn listen(&self, address: SocketAddr) -> io::Result<Self::Listener>;

    /// Connects to `address`.
    fn connect(&self, address: SocketAddr, options: StreamOptions) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Takes over the connection in `handle` on this shard.
    ///
    /// *Errors*: `InvalidInput` for a handle of another kind of world.
    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<Self::Stream>;
}

/// Identity and location of a disk; unknown facts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// Serial number.
    pub serial: Option<String>,
    /// Model name.
    pub model: Option<String>,
    /// World wide name.
    pub wwn: Option<String>,
    /// Partition number, when it is a partition.
    pub partition: Option<u32>,
    /// Path that does not depend on the order in which disks were found.
    pub stable_path: Option<String>,
    /// True for a rotational disk (HDD).
    pub rotational: Option<bool>,
    /// Enclosure that holds the disk.
    pub enclosure: Option<String>,
    /// Slot in the enclosure.
    pub slot: Option<String>,
    /// True when the slot has a locate LED.
    pub has_light: bool,
}

/// Options for opening a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Block size that the caller addresses: 512 or 4096 bytes, at least the disk's own.
    pub block_bytes: u32,
    /// True when writes are to be refused.
    pub read_only: bool,
}

/// Options of a connection. The defaults suit a LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Congestion control algorithm, set on the socket itself and never inherited from the system's default; `None`
    /// sets none.
    pub congestion: Option<String>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { congestion: Some("cubic".to_owned()) }
    }
}

/// Properties of the network path of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// Path MTU discovered so far, in bytes.
    pub mtu_bytes: u32,
    /// Largest segment that is sent, in bytes: limited by the path and by the peer's MSS.
    pub packet_bytes_max: u32,
}

/// TCP connection, non-blocking, with Nagle's algorithm off.
pub trait Stream {
    /// Reads available bytes, at most `into.len()`. Zero means that the peer has closed its side.
    ///
    /// Pending means that nothing is available; the task is woken when that changes.
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Sends a prefix of `from`, as much as fits into the socket buffer, in one call.
    ///
    /// Pending means that nothing fits; the task is woken when that changes.
    fn poll_write(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Closes the sending side: the peer reads the end after all data sent before. Reading continues.
    fn close_write(&self) -> io::Result<()>;

    /// Local address of the connection: the portal that the peer reached.
    fn local_address(&self) -> SocketAddr;

    /// Address of the peer.
    fn peer_address(&self) -> SocketAddr;

    /// Properties of the path to the peer; `None` where unknown.
    fn path(&self) -> Option<PathFacts> {
        None
    }

    /// Releases the stream as a value that another shard can take over with [`World::adopt_stream`].
    fn into_handle(self) -> StreamHandle;
}

/// Connection in transit between two shards of one world.
#[derive(Debug)]
pub struct StreamHandle(pub Box<dyn std::any::Any + Send>);

/// Listening TCP socket.
pub trait Listener {
    /// Type of accepted connections.
    type Stream: Stream;

    /// Accepts the next connection and applies `options`.
    ///
    /// *Errors*: a temporary shortage (descriptors, memory) or a connection that was reset early; the listener stays
    /// usable and the caller pauses before the next call.
    fn accept(&self, options: &StreamOptions) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Address it listens on, with the real port where port 0 was requested.
    fn local_address(&self) -> SocketAddr;

    /// True when peers can connect over IPv4: on an IPv4 address, or on `[::]` when no other socket owns the IPv4 port.
    /// Both addresses of such a connection are IPv4.
    fn takes_ipv4(&self) -> bool {
        self.local_address().is_ipv4()
    }
}
