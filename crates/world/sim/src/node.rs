//! Handle of one simulated machine: its [`World`], and the controls of a test.

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

/// Prints the seed that reproduces the run when it panics.
struct Reproduce(Rc<Core>);

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation failed; reproduce it with seed {} (0x{:x})", self.0.seed, self.0.seed);
        }
    }
}

impl Sim {
    /// Creates a world from `seed` with one machine, 10.0.0.1.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let core = Core::new(seed);
        let node = core.add_node(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        Self { core, node }
    }

    /// Runs `main` as a task of this machine and returns its output.
    ///
    /// *Panics*: when `main` or a task does, when nothing can happen any more, and when the time limit passes; the seed
    /// is printed then.
    pub fn run<T: 'static>(self, main: impl AsyncFnOnce(Sim) -> T + 'static) -> T {
        let reproduce = Reproduce(self.core.clone());
        let output = Rc::new(RefCell::new(None));
        let (inside, slot) = (self.clone(), output.clone());
        self.spawn(async move {
            let value = main(inside).await;
            *slot.borrow_mut() = Some(value);
        });
        self.core.drive(|| output.borrow().is_some());
        // Before the seed's guard is dropped: a destructor that panics is part of the run, too.
        self.core.end();
        drop(reproduce);
        output.take().expect("the world is driven until main has ended")
    }

    /// Digest of every event so far; equal for equal runs.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.core.digest()
    }

    /// Seed of the world.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.core.seed
    }

    /// Sets the limit on the virtual time of the run, 30 days by default; exceeding it is a failure.
    pub fn set_time_limit(&self, limit: Duration) {
        self.core.time_limit.set(limit);
    }

    /// Draws a number below `bound` from the seed, for random choices of the test itself.
    ///
    /// *Panics*: when `bound` is zero.
    #[must_use]
    pub fn random_below(&self, bound: u64) -> u64 {
        self.core.entropy.borrow_mut().below(bound)
    }

    /// Adds a machine with `address`.
    ///
    /// *Panics*: when the address is taken.
    #[must_use]
    pub fn add_node(&self, address: IpAddr) -> Self {
        Self { core: self.core.clone(), node: self.core.add_node(address) }
    }

    /// Adds an address to this machine.
    pub fn add_address(&self, address: IpAddr) {
        self.node.addresses.borrow_mut().push(address);
    }

    /// First address of the machine.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.node.addresses.borrow()[0]
    }

    /// Ends the machine's tasks, as `kill -9` does: the kernel closes its sockets, and writes that its disks have
    /// accepted stay accepted. A task that kills its own machine ends with its turn.
    pub fn kill(&self) {
        self.core.record("kill", self.node.id as u64, 0);
        // Before the disks are released: dropped callers mark their operations as abandoned while the opening is valid.
        self.node.executor.clear();
        for disk in self.disks() {
            disk.release(self.node.id);
        }
    }

    /// Cuts the power of the machine: its tasks end, its peers get no notice, and unflushed content of its disks is as
    /// `crash` says. The machine is down until [`Sim::boot`].
    pub fn crash(&self, crash: Crash) {
        self.core.record("crash", self.node.id as u64, 0);
        self.node.is_up.set(false);
        // Before the tasks are dropped: their sockets must not send a proper end of the stream.
        self.core.net.borrow_mut().drop_node(self.node.id);
        self.node.executor.clear();
        for disk in self.disks() {
            disk.crash(crash);
        }
    }

    /// Restores the power of the machine. Peers of its old connections get a reset when they send.
    pub fn boot(&self) {
        self.core.record("boot", self.node.id as u64, 0);
        self.node.is_up.set(true);
        // Segments that were held back are delivered now.
        self.core.net.borrow_mut().revive(&self.core);
    }

    /// Adds a zeroed disk to this machine, to be opened as `path`.
    ///
    /// *Panics*: when the path is taken.
    pub fn add_disk(&self, path: &str, shape: DiskShape) -> DiskHandle {
        DiskHandle::add(&self.core, self.node.id, path, shape)
    }

    /// Attaches a disk of another machine to this one as `path`. Each machine can have it open exclusively, as on two
    /// ports of one disk.
    ///
    /// *Panics*: when the path is taken.
    pub fn attach_disk(&self, path: &str, disk: &DiskHandle) {
        disk.attach(self.node.id, path);
    }

    /// Returns the disk at `path`, if there is one.
    #[must_use]
    pub fn disk(&self, path: &str) -> Option<DiskHandle> {
        let disks = self.core.disks.borrow();
        let state = disks.get(&(self.node.id, path.to_owned()))?.clone();
        Some(DiskHandle::new(&self.core, state))
    }

    /// Returns all disks of this machine, by path.
    #[must_use]
    pub fn disks(&self) -> Vec<DiskHandle> {
        let disks = self.core.disks.borrow();
        let own = disks.iter().filter(|((node, _), _)| *node == self.node.id);
        own.map(|(_, state)| DiskHandle::new(&self.core, state.clone())).collect()
    }

    /// Swaps two disks: each is opened under the other's path from now on.
    ///
    /// *Panics*: when one of them does not exist.
    pub fn swap_disks(&self, one: &str, other: &str) {
        let mut disks = self.core.disks.borrow_mut();
        let keys = [(self.node.id, one.to_owned()), (self.node.id, other.to_owned())];
        let [first, second] = keys.each_ref().map(|key| disks.get(key).expect("both disks are there").clone());
        let [one, other] = keys;
        disks.insert(one, second);
        disks.insert(other, first);
    }

    /// Network that all machines share.
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
        // 1 January 2030, plus the time since the start of the run.
        Duration::from_secs(1_893_456_000) + self.now().since(Time::default())
    }

    fn random(&self, out: &mut [u8]) {
        self.core.entropy.borrow_mut().fill(out);
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.node.executor.spawn(task);
    }

    /// The virtual time in nanoseconds. Computation takes almost none of it, so time that has passed counts as idle.
    fn idle_count(&self) -> u64 {
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
