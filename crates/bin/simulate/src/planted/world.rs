//! Simulated machine as a data plane with a planted bug uses it.

use super::disk::BentDisk;
use super::stream::BentStream;
use super::{Plant, Planted};
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
pub(crate) struct BentWorld {
    machine: Sim,
    plant: Rc<Plant>,
}

/// Listener whose connections have a bug, or none.
pub(crate) struct BentListener {
    inner: SimListener,
    plant: Rc<Plant>,
}

impl BentWorld {
    pub(crate) fn new(machine: &Sim, plant: &Rc<Plant>) -> Self {
        Self { machine: machine.clone(), plant: plant.clone() }
    }
}

impl World for BentWorld {
    type Disk = BentDisk;
    type Stream = BentStream;
    type Listener = BentListener;

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

    fn rests(&self) -> u64 {
        self.machine.rests()
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        let is_a_look = at.since(self.now()) == CLOCK_STEP;
        // The task that checks the response times of members does not wake up again.
        if is_a_look && self.plant.strikes(Planted::SilenceNotSeen, 200) {
            return self.machine.sleep_until(at + Duration::from_secs(3600));
        }
        self.machine.sleep_until(at)
    }

    async fn open_disk(&self, path: &str, options: DiskOptions) -> io::Result<BentDisk> {
        let inner = self.machine.open_disk(path, options).await?;
        Ok(BentDisk::new(inner, path, &self.machine, &self.plant))
    }

    fn listen(&self, address: SocketAddr) -> io::Result<BentListener> {
        Ok(BentListener { inner: self.machine.listen(address)?, plant: self.plant.clone() })
    }

    async fn connect(&self, address: SocketAddr, options: StreamOptions) -> io::Result<BentStream> {
        Ok(BentStream::new(self.machine.connect(address, options).await?, &self.plant))
    }

    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<BentStream> {
        Ok(BentStream::new(self.machine.adopt_stream(handle)?, &self.plant))
    }
}

impl Listener for BentListener {
    type Stream = BentStream;

    async fn accept(&self, options: &StreamOptions) -> io::Result<BentStream> {
        Ok(BentStream::new(self.inner.accept(options).await?, &self.plant))
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }
}
