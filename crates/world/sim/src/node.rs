//! The handle of one simulated machine: a World, and what a test does to it.

use crate::core::{Core, Node};
use crate::disk::{Crash, DiskHandle, DiskShape, SimDisk};
use crate::net::{self, Network, SimListener, SimStream};
use shard::time::Sleep;
use shard::{DiskFacts, DiskOptions, StreamHandle, StreamOptions, Time, World};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// The [`World`] of one simulated machine. Cheap to clone.
#[derive(Clone)]
pub struct Sim {
    core: Rc<Core>,
    node: Rc<Node>,
}

/// Says how to see it again, should the run panic.
struct Reproduce(Rc<Core>);

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation failed; reproduce it with seed {} (0x{:x})", self.0.seed, self.0.seed);
        }
    }
}

impl Sim {
    /// A world made from `seed` with one machine, 10.0.0.1.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let core = Core::new(seed);
        let node = core.add_node(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        Self { core, node }
    }

    /// What `main` gives, run as a task of this machine.
    ///
    /// *Panics*: when `main` or a task does, when nothing can happen any more, and when the time limit
    /// passes; the seed is printed then.
    pub fn run<T: 'static>(self, main: impl AsyncFnOnce(Sim) -> T + 'static) -> T {
        let reproduce = Reproduce(self.core.clone());
        let output = Rc::new(RefCell::new(None));
        let (inside, slot) = (self.clone(), output.clone());
        self.spawn(async move {
            let value = main(inside).await;
            *slot.borrow_mut() = Some(value);
        });
        self.core.drive(|| output.borrow().is_some());
        self.core.end();
        drop(reproduce);
        output.take().expect("the world is driven until main has ended")
    }

    /// Equal for equal runs: a digest of every event so far.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.core.digest()
    }

    /// The seed that the world was made from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.core.seed
    }

    /// The run fails when it is not over after so much virtual time (30 days unless set).
    pub fn set_time_limit(&self, limit: Duration) {
        self.core.time_limit.set(limit);
    }

    /// A number below `bound`, from the seed: for what the test itself leaves to chance.
    ///
    /// *Panics*: when `bound` is zero.
    #[must_use]
    pub fn random_below(&self, bound: u64) -> u64 {
        self.core.entropy.borrow_mut().below(bound)
    }

    /// Another machine, reached under `address`.
    ///
    /// *Panics*: when the address is taken.
    #[must_use]
    pub fn add_node(&self, address: IpAddr) -> Self {
        Self { core: self.core.clone(), node: self.core.add_node(address) }
    }

    /// This machine is reached under `address` too.
    pub fn add_address(&self, address: IpAddr) {
        self.node.addresses.borrow_mut().push(address);
    }

    /// The machine's first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.node.addresses.borrow()[0]
    }

    /// The machine's tasks are gone, as by `kill -9`: its sockets are closed by the kernel, and what
    /// its disks have accepted stays accepted. A task that kills its own machine goes when its turn ends.
    pub fn kill(&self) {
        self.core.record("kill", self.node.id as u64, 0);
        self.node.executor.clear();
        for disk in self.disks() {
            disk.release(self.node.id);
        }
    }

    /// The machine's power is cut: its tasks are gone, its peers hear nothing, and its disks keep of
    /// what was not flushed what `crash` says. It is down until [`Sim::boot`].
    pub fn crash(&self, crash: Crash) {
        self.core.record("crash", self.node.id as u64, 0);
        self.node.is_up.set(false);
        self.core.net.borrow_mut().vanish(self.node.id);
        self.node.executor.clear();
        for disk in self.disks() {
            disk.crash(crash);
        }
    }

    /// The machine has power again. Peers of its old connections are told so when they send.
    pub fn boot(&self) {
        self.core.record("boot", self.node.id as u64, 0);
        self.node.is_up.set(true);
        self.core.net.borrow_mut().revive(&self.core);
    }

    /// A new disk of this machine, all zero, to be opened as `path`.
    ///
    /// *Panics*: when there is one already.
    pub fn add_disk(&self, path: &str, shape: DiskShape) -> DiskHandle {
        DiskHandle::add(&self.core, self.node.id, path, shape)
    }

    /// The disk is this machine's, too, to be opened as `path`: each has it exclusively on its own machine, as on two
    /// ports of one disk.
    ///
    /// *Panics*: when there is a disk of this path already.
    pub fn attach_disk(&self, path: &str, disk: &DiskHandle) {
        disk.attach(self.node.id, path);
    }

    /// The disk that is opened as `path`, if there is one.
    #[must_use]
    pub fn disk(&self, path: &str) -> Option<DiskHandle> {
        let disks = self.core.disks.borrow();
        let state = disks.get(&(self.node.id, path.to_owned()))?.clone();
        Some(DiskHandle::new(&self.core, state))
    }

    /// All disks of this machine, by path.
    #[must_use]
    pub fn disks(&self) -> Vec<DiskHandle> {
        let disks = self.core.disks.borrow();
        let own = disks.iter().filter(|((node, _), _)| *node == self.node.id);
        own.map(|(_, state)| DiskHandle::new(&self.core, state.clone())).collect()
    }

    /// The disks have changed places: each is opened under the other's path from now on.
    ///
    /// *Panics*: when one of them is not there.
    pub fn swap_disks(&self, one: &str, other: &str) {
        let mut disks = self.core.disks.borrow_mut();
        let keys = [(self.node.id, one.to_owned()), (self.node.id, other.to_owned())];
        let [first, second] = keys.each_ref().map(|key| disks.get(key).expect("both disks are there").clone());
        let [one, other] = keys;
        disks.insert(one, second);
        disks.insert(other, first);
    }

    /// The network that all machines share.
    #[must_use]
    pub fn network(&self) -> Network {
        Network::new(self.core.clone())
    }
}

impl World for Sim {
    type Disk = SimDisk;
    type Stream = SimStream;
    type Listener = SimListener;

    fn now(&self) -> Time {
        self.core.now.get()
    }

    fn unix_time(&self) -> Duration {
        // 1 January 2030, and what has passed since the run began.
        Duration::from_secs(1_893_456_000) + self.now().since(Time::default())
    }

    fn random(&self, out: &mut [u8]) {
        self.core.entropy.borrow_mut().fill(out);
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.node.executor.spawn(task);
    }

    /// What shards do takes no virtual time, so time that has passed was waited for.
    fn rests(&self) -> u64 {
        u64::try_from(self.now().since(Time::default()).as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        self.node.timers.sleep_until(at)
    }

    async fn open_disk(&self, path: &str, options: DiskOptions) -> io::Result<SimDisk> {
        let state = self.core.disks.borrow().get(&(self.node.id, path.to_owned())).cloned();
        SimDisk::open(&self.core, self.node.id, state, path, options)
    }

    fn describe_disk(&self, path: &str) -> io::Result<DiskFacts> {
        self.disk(path).map(|disk| disk.facts()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn locate_disk(&self, path: &str, on: bool) -> io::Result<()> {
        let disk = self.disk(path).ok_or(io::ErrorKind::NotFound)?;
        if !disk.facts().has_light {
            return Err(io::ErrorKind::Unsupported.into());
        }
        disk.light(on);
        Ok(())
    }

    fn listen(&self, address: SocketAddr) -> io::Result<SimListener> {
        net::listen(&self.core, &self.node, address)
    }

    async fn connect(&self, address: SocketAddr, _options: StreamOptions) -> io::Result<SimStream> {
        net::connect(&self.core, &self.node, address).await
    }

    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<SimStream> {
        net::adopt(&self.core, handle)
    }
}
