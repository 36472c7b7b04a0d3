//! Simulated machine as a data plane with a planted bug uses it.

use super::disk::BuggyDisk;
use super::stream::BuggyStream;
use super::{BugState, InjectedBug};
use shard::time::Sleep;
use shard::{CLOCK_STEP, DiskOptions, Listener, StreamHandle, StreamOptions, Time, World};
use sim::{Sim, SimListener};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Machine whose disks and connections have a bug, or none.
#[derive(Clone)]
pub(crate) struct BuggyWorld {
    machine: Sim,
    plant: Rc<BugState>,
}

/// Listener whose connections have a bug, or none.
pub(crate) struct BuggyListener {
    inner: SimListener,
    plant: Rc<BugState>,
}

impl BuggyWorld {
    pub(crate) fn new(machine: &Sim, plant: &Rc<BugState>) -> Self {
        Self { machine: machine.clone(), plant: plant.clone() }
    }
}

impl World for BuggyWorld {
    type Disk = BuggyDisk;
    type Stream = BuggyStream;
    type Listener = BuggyListener;

    fn now(&self) -> Time {
        self.machine.now()
    }

    fn unix_time(&self) -> Duration {
        self.machine.unix_time()
    }

    fn random(&self, out: &mut [u8]) {
        self.machine.random(out);
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.machine.spawn(task);
    }

    fn idle_count(&self) -> u64 {
        self.machine.idle_count()
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        // A sleep of one step of the clock is taken for that of the task that checks response times.
        let is_a_look = at.since(self.now()) == CLOCK_STEP;
        // The task that checks the response times of members does not wake up again.
        if is_a_look && self.plant.triggers(InjectedBug::SilenceNotSeen, 200) {
            return self.machine.sleep_until(at + Duration::from_secs(3600));
        }
        self.machine.sleep_until(at)
    }

    async fn open_disk(&self, path: &str, options: DiskOptions) -> io::Result<BuggyDisk> {
        let inner = self.machine.open_disk(path, options).await?;
        Ok(BuggyDisk::new(inner, path, &self.machine, &self.plant))
    }

    fn listen(&self, address: SocketAddr) -> io::Result<BuggyListener> {
        Ok(BuggyListener { inner: self.machine.listen(address)?, plant: self.plant.clone() })
    }

    async fn connect(&self, address: SocketAddr, options: StreamOptions) -> io::Result<BuggyStream> {
        Ok(BuggyStream::new(self.machine.connect(address, options).await?, &self.plant))
    }

    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<BuggyStream> {
        Ok(BuggyStream::new(self.machine.adopt_stream(handle)?, &self.plant))
    }
}

impl Listener for BuggyListener {
    type Stream = BuggyStream;

    async fn accept(&self, options: &StreamOptions) -> io::Result<BuggyStream> {
        Ok(BuggyStream::new(self.inner.accept(options).await?, &self.plant))
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }
}
