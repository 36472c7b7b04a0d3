//! Simulated machine whose disks are files of the host.

mod file_disk;

use crate::{Instant, Testbed, Watch};
use file_disk::FileDisk;
use shard::time::Sleep;
use shard::{DiskFacts, DiskOptions, StreamHandle, StreamOptions, Time, World};
use sim::{Sim, SimListener, SimStream};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// Device and inode numbers, which identify a file under any path.
type Inode = (u64, u64);

/// World of the engine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Machine {
    pub sim: Sim,
    state: Rc<State>,
}

struct State {
    /// Unix time at which the simulated clock started.
    began: Duration,
    facts: BTreeMap<String, DiskFacts>,
    watch: Option<Watch>,
    bytes_per_second: u64,
    busy: Cell<u32>,
    open: RefCell<BTreeSet<Inode>>,
    addresses: RefCell<BTreeSet<IpAddr>>,
}

impl Machine {
    /// Builds the machine of `testbed` and takes the facts of its disks.
    pub(crate) fn new(sim: &Sim, testbed: &mut Testbed) -> Self {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let state = State {
            began,
            facts: std::mem::take(&mut testbed.facts),
            watch: testbed.watch.clone(),
            bytes_per_second: testbed.disk_bytes_per_second,
            busy: Cell::new(testbed.busy),
            open: RefCell::default(),
            addresses: RefCell::default(),
        };
        Self { sim: sim.clone(), state: Rc::new(state) }
    }

    /// Returns the service time of an operation of `bytes`.
    pub(crate) fn service_time(&self, bytes: usize) -> Duration {
        let transfer = Duration::from_secs(1).as_nanos() * bytes as u128 / u128::from(self.state.bytes_per_second);
        Duration::from_micros(20) + Duration::from_nanos(u64::try_from(transfer).unwrap_or(u64::MAX))
    }

    /// Calls the observer after a flush.
    pub(crate) fn note_flush(&self) {
        if let Some(watch) = &self.state.watch {
            watch(Instant::Flush);
        }
    }

    /// Allows the file to be opened again.
    pub(crate) fn release(&self, inode: Inode) {
        self.state.open.borrow_mut().remove(&inode);
    }
}

impl World for Machine {
    type Disk = FileDisk;
    type Stream = SimStream;
    type Listener = SimListener;

    fn now(&self) -> Time {
        self.sim.now()
    }

    fn unix_time(&self) -> Duration {
        self.state.began + self.sim.now().since(Time::default())
    }

    fn random(&self, out: &mut [u8]) {
        self.sim.random(out);
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.sim.spawn(task);
    }

    fn idle_count(&self) -> u64 {
        self.sim.idle_count()
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        self.sim.sleep_until(at)
    }

    async fn open_disk(&self, path: &str, options: DiskOptions) -> io::Result<FileDisk> {
        let file = File::options().read(true).write(!options.read_only).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "neither a block device nor a regular file"));
        }
        // An attempt that fails on purpose must not mark the file as open.
        if self.state.busy.get() > 0 {
            self.state.busy.set(self.state.busy.get() - 1);
            return Err(ErrorKind::ResourceBusy.into());
        }
        // A disk has one owner; a second path to the same file is the same disk.
        let inode = (metadata.dev(), metadata.ino());
        if !self.state.open.borrow_mut().insert(inode) {
            return Err(ErrorKind::ResourceBusy.into());
        }
        Ok(FileDisk::new(self.clone(), file, inode, metadata.len(), options))
    }

    fn describe_disk(&self, path: &str) -> io::Result<DiskFacts> {
        // A missing file is an error, whereas a file without an entry has no properties.
        fs::metadata(path)?;
        Ok(self.state.facts.get(path).cloned().unwrap_or_default())
    }

    fn locate_disk(&self, path: &str, _on: bool) -> io::Result<()> {
        let has_light = self.state.facts.get(path).is_some_and(|facts| facts.has_light);
        if has_light { Ok(()) } else { Err(ErrorKind::Unsupported.into()) }
    }

    /// Accepts every address as the machine's own; port 1 is always in use.
    fn listen(&self, address: SocketAddr) -> io::Result<SimListener> {
        if crate::is_refused(address) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let ip = address.ip();
        let is_known = ip.is_unspecified() || ip.is_loopback() || ip == self.sim.address();
        if !is_known && self.state.addresses.borrow_mut().insert(ip) {
            self.sim.add_address(ip);
        }
        self.sim.listen(address)
    }

    async fn connect(&self, address: SocketAddr, options: StreamOptions) -> io::Result<SimStream> {
        self.sim.connect(address, options).await
    }

    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<SimStream> {
        self.sim.adopt_stream(handle)
    }
}
