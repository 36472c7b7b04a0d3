//! The outside, as one trait: clock, disks, sockets. `uring` and `sim` implement it.

use crate::Time;
use crate::time::Sleep;
use block::BlockDevice;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

/// What the outside offers to the tasks of one shard. Cheap to clone; never leaves its shard.
pub trait World: Clone + 'static {
    /// A disk, or a file that stands for one.
    type Disk: BlockDevice + 'static;
    /// One TCP connection.
    type Stream: Stream + 'static;
    /// A listening TCP socket.
    type Listener: Listener<Stream = Self::Stream> + 'static;

    /// The monotonic clock.
    fn now(&self) -> Time;

    /// The date, as what has passed since 1970: for labels and logs, never for an order of events.
    fn unix_time(&self) -> Duration;

    /// The date in whole seconds.
    fn unix_seconds(&self) -> u64 {
        self.unix_time().as_secs()
    }

    /// Fills `out` with bytes that nobody can predict (from a seed in simulation).
    fn random(&self, out: &mut [u8]);

    /// Runs `task` on this shard, beside the caller.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// A number that is another one each time when the shard had nothing to do and waited. Between two equal ones it was busy all the time.
    fn rests(&self) -> u64;

    /// Is ready once the clock has reached `at`.
    fn sleep_until(&self, at: Time) -> Sleep;

    /// Is ready after `duration`.
    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Opens the disk or file at `path` for reading and writing.
    ///
    /// *Errors*: what the operating system says; a path that is neither a block device nor a regular
    /// file is `InvalidInput`; one that another process holds exclusively is `ResourceBusy`; one that does not answer is
    /// `TimedOut`, after some seconds.
    fn open_disk(&self, path: &str, options: DiskOptions) -> impl Future<Output = io::Result<Self::Disk>>;

    /// What is known of the disk at `path` beside its content; nothing of a file.
    ///
    /// *Errors*: there is nothing at `path`.
    fn describe_disk(&self, path: &str) -> io::Result<DiskFacts> {
        let _ = path;
        Ok(DiskFacts::default())
    }

    /// The light of the slot that the disk at `path` sits in is on, or off.
    ///
    /// *Errors*: `Unsupported` when there is none that is known.
    fn locate_disk(&self, path: &str, on: bool) -> io::Result<()> {
        let _ = (path, on);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Listens on `address`.
    fn listen(&self, address: SocketAddr) -> io::Result<Self::Listener>;

    /// Connects to `address`.
    fn connect(&self, address: SocketAddr, options: StreamOptions) -> impl Future<Output = io::Result<Self::Stream>>;

    /// The connection in `handle` lives on this shard from now on.
    ///
    /// *Errors*: `InvalidInput` for a handle that another kind of world made.
    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<Self::Stream>;
}

/// What is known of a disk beside its content. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// Its maker's number.
    pub serial: Option<String>,
    /// What its maker calls it.
    pub model: Option<String>,
    /// Its world wide name.
    pub wwn: Option<String>,
    /// Which part of the disk it is, when it is a partition.
    pub partition: Option<u32>,
    /// A path that stays when other disks come and go.
    pub stable_path: Option<String>,
    /// True for one that turns.
    pub rotational: Option<bool>,
    /// The enclosure that it sits in.
    pub enclosure: Option<String>,
    /// Its slot there.
    pub slot: Option<String>,
    /// True when its slot has a light.
    pub has_light: bool,
}

/// How a disk is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The block size that the opener wants to address: 512 or 4096 bytes, at least the disk's own.
    pub block_bytes: u32,
    /// True when writes are refused.
    pub read_only: bool,
}

/// How a connection is set up. The defaults suit a LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The congestion control by name, set on the socket itself and never inherited from the system's default.
    pub congestion: Option<String>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { congestion: Some("cubic".to_owned()) }
    }
}

/// What is known of the way between a connection's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// Bytes of the largest packet that the way takes, as far as it has shown.
    pub mtu_bytes: u32,
    /// Bytes of the largest packet that is sent: what the way takes, and the peer has said that it takes (MSS).
    pub packet_bytes_max: u32,
}

/// One TCP connection, non-blocking, with Nagle's algorithm off.
pub trait Stream {
    /// Reads what is there, at most `into.len()` bytes. Zero means that the peer has closed its side.
    ///
    /// Pending means that nothing is there yet; the task is woken when that changes.
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Sends a front part of `from`, as much as fits, in one call.
    ///
    /// Pending means that nothing fits; the task is woken when that changes.
    fn poll_write(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Nothing more is sent: after what was sent before, the peer reads the end. Reading goes on.
    fn close_write(&self) -> io::Result<()>;

    /// Our address of the connection: the portal that the peer reached.
    fn local_address(&self) -> SocketAddr;

    /// The peer's address.
    fn peer_address(&self) -> SocketAddr;

    /// What is known of the way to the peer; nothing where nobody knows.
    fn path(&self) -> Option<PathFacts> {
        None
    }

    /// Gives up the stream as a value that another shard can take over with [`World::adopt_stream`].
    fn into_handle(self) -> StreamHandle;
}

/// A connection on its way between two shards of one world.
#[derive(Debug)]
pub struct StreamHandle(pub Box<dyn std::any::Any + Send>);

/// A listening TCP socket.
pub trait Listener {
    /// The connections that it accepts.
    type Stream: Stream;

    /// Accepts the next connection, set up with `options`.
    ///
    /// *Errors*: a passing shortage (no descriptors, no memory) or a connection that died early; the
    /// listener stays usable and the caller pauses before it asks again.
    fn accept(&self, options: &StreamOptions) -> impl Future<Output = io::Result<Self::Stream>>;

    /// The address it listens on, with the real port where 0 was asked for.
    fn local_address(&self) -> SocketAddr;

    /// True when peers reach it over IPv4: an address of that family does, and `[::]` where nobody else has its port there. They
    /// have addresses of IPv4 then, at both ends.
    fn takes_ipv4(&self) -> bool {
        self.local_address().is_ipv4()
    }
}
