//! Fence that blocks writes to the disks of a pool when the pool is, or may be, owned by another node.
//!
//! Opened by the heartbeats of `pool::ownership`, consulted before each write to a disk. The rules are in
//! `cluster::Lease`.

use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use cluster::{Admission, Lease};
use shard::{Signal, Time};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use volume::owner::PLACES;

/// Fence of one pool: open while its lease is valid, that is for `cluster::LEASE` after the last heartbeat.
pub struct Fence {
    now: Box<dyn Fn() -> Time>,
    lease: RefCell<Lease>,
    changed: Signal,
}

impl Fence {
    /// Creates the fence of a pool that was claimed just now.
    pub fn new(now: impl Fn() -> Time + 'static) -> Rc<Self> {
        // The claim was written just now, which counts as the first heartbeat.
        let lease = RefCell::new(Lease::new(now()));
        Rc::new(Self { now: Box::new(now), lease, changed: Signal::default() })
    }

    /// Renews the lease by the heartbeat that began at `began` and reached every group.
    pub fn renew(&self, began: Time) {
        // From the beginning of the heartbeat: the marks on the disks may be as old as that.
        self.lease.borrow_mut().renew(began);
        self.changed.raise();
    }

    /// Closes the fence permanently: no write is admitted again.
    pub fn close(&self) {
        // Waiting writes are refused now and not after their timeout.
        self.lease.borrow_mut().revoke();
        self.changed.raise();
    }

    /// Lets waiting writes compare the lease with the clock again. Called every few seconds.
    pub fn tick(&self) {
        self.changed.raise();
    }

    /// Waits until a write may go to a disk.
    ///
    /// *Errors*: `Gone` if another node owns the pool, or if the lease expired so long ago that the ownership is
    /// unknown.
    async fn admit(&self, extent: Extent) -> Result<(), IoError> {
        let verdict = || match self.lease.borrow().admits((self.now)()) {
            Admission::Admitted => Some(Ok(())),
            Admission::Wait => None,
            Admission::Refused => Some(Err(IoError::new(IoErrorKind::Gone, extent))),
        };
        // Evaluated again after each heartbeat, tick or closing.
        self.changed.wait(verdict).await
    }
}

/// A disk behind the fence of its pool, once it has one. Owner's marks always pass.
pub struct Fenced<D> {
    device: D,
    fence: OnceCell<Rc<Fence>>,
}

impl<D> Fenced<D> {
    /// Creates a device without a fence.
    pub fn new(device: D) -> Self {
        Self { device, fence: OnceCell::new() }
    }

    /// Puts the device behind `fence`.
    ///
    /// *Panics*: if it has a fence already: a disk is opened for one pool.
    pub fn guard(&self, fence: &Rc<Fence>) {
        assert!(self.fence.set(fence.clone()).is_ok(), "a disk has one pool");
    }

    /// Device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    async fn admit(&self, extent: Extent) -> Result<(), IoError> {
        match self.fence.get() {
            // The marks themselves must pass: writing them is what renews the lease.
            Some(fence) if !PLACES.contains(extent) => fence.admit(extent).await,
            _ => Ok(()),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Fenced<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.device.read(extent).await
    }

    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        self.device.read_hedged(extent).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.admit(self.geometry().extent_of(start, data.len())?).await?;
        self.device.write(start, data).await
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.admit(self.geometry().extent_of(start, data.len())?).await?;
        self.device.write_unlogged(start, data).await
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        // A flush brings nothing new to the disk, only what the fence has admitted.
        self.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.admit(extent).await?;
        self.device.discard(extent).await
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        self.admit(extent).await?;
        self.device.reserve(extent).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Blocks;
    use block::memory::Ram;
    use cluster::{LEASE, LEASE_WAIT_MAX};
    use futures_util::FutureExt;
    use std::cell::Cell;

    fn fenced() -> (Fenced<Ram>, Rc<Fence>, Rc<Cell<Time>>) {
        let clock = Rc::new(Cell::new(Time::default()));
        let now = clock.clone();
        let fence = Fence::new(move || now.get());
        let disk = Fenced::new(Ram::new(4096, Blocks(1024)));
        disk.guard(&fence);
        (disk, fence, clock)
    }

    fn write(disk: &Fenced<Ram>, block: u64) -> Option<Result<(), IoErrorKind>> {
        let written = disk.write(Lba(block), View::zeroed(4096)).now_or_never()?;
        Some(written.map(drop).map_err(|error| error.kind))
    }

    #[test]
    fn fence_holds_writes_back_while_no_beat_was_heard_and_lets_marks_pass() {
        let (disk, fence, clock) = fenced();
        assert_eq!(write(&disk, 0), Some(Ok(())));
        clock.set(Time::default() + LEASE);
        assert_eq!(write(&disk, 0), None);
        assert!(disk.discard(Extent::new(8, 8)).now_or_never().is_none());
        assert_eq!(write(&disk, PLACES.start.0 + 3), Some(Ok(())));
        assert_eq!(write(&disk, PLACES.end().0), None);
        assert!(disk.read(Extent::new(0, 1)).now_or_never().is_some());
        // A heartbeat that began before the lease ran out does not renew it.
        fence.renew(Time::default());
        assert_eq!(write(&disk, 0), None);
        fence.renew(clock.get());
        assert_eq!(write(&disk, 0), Some(Ok(())));
    }

    #[test]
    fn fence_that_no_beat_opens_refuses_what_has_waited_long_enough() {
        let (disk, fence, clock) = fenced();
        clock.set(Time::default() + LEASE);
        let mut waiting = std::pin::pin!(disk.write(Lba(0), View::zeroed(4096)));
        assert!((&mut waiting).now_or_never().is_none());
        clock.set(Time::default() + LEASE + LEASE_WAIT_MAX);
        fence.tick();
        let refused = waiting.now_or_never().expect("it ends").map(drop).map_err(|error| error.kind);
        assert_eq!(refused, Err(IoErrorKind::Gone));
        fence.renew(clock.get());
        assert_eq!(write(&disk, 0), Some(Ok(())), "a beat opens it again");
    }

    #[test]
    fn fence_that_is_closed_refuses_what_waits_and_what_comes() {
        let (disk, fence, clock) = fenced();
        clock.set(Time::default() + LEASE);
        let mut waiting = std::pin::pin!(disk.write(Lba(0), View::zeroed(4096)));
        assert!((&mut waiting).now_or_never().is_none());
        fence.close();
        let refused = waiting.now_or_never().expect("it is told").map(drop).map_err(|error| error.kind);
        assert_eq!(refused, Err(IoErrorKind::Gone));
        fence.renew(clock.get());
        assert_eq!(write(&disk, 0), Some(Err(IoErrorKind::Gone)));
    }
}
