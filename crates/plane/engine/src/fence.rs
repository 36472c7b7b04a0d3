//! What holds back writes to a pool's disks when the pool is, or may be, somebody else's.

use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use cluster::{Admission, Lease};
use shard::{Signal, Time};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use volume::owner::PLACES;

/// The fence of one pool: open as long as its members said not long ago whose it is.
pub struct Fence {
    now: Box<dyn Fn() -> Time>,
    lease: RefCell<Lease>,
    changed: Signal,
}

impl Fence {
    /// The fence of a pool that is ours since just now.
    pub fn new(now: impl Fn() -> Time + 'static) -> Rc<Self> {
        let lease = RefCell::new(Lease::new(now()));
        Rc::new(Self { now: Box::new(now), lease, changed: Signal::default() })
    }

    /// Every group has heard the beat that began at `began`.
    pub fn hold(&self, began: Time) {
        self.lease.borrow_mut().renew(began);
        self.changed.raise();
    }

    /// Nothing is written any more, ever.
    pub fn close(&self) {
        self.lease.borrow_mut().revoke();
        self.changed.raise();
    }

    /// Who waits looks at the clock again. To be called every few seconds.
    pub fn tick(&self) {
        self.changed.raise();
    }

    /// Is ready when a write may go to a disk.
    ///
    /// *Errors*: `Gone` when the pool is another node's, or no beat was heard for so long that nobody can say whose it is.
    async fn admit(&self, extent: Extent) -> Result<(), IoError> {
        let verdict = || match self.lease.borrow().admits((self.now)()) {
            Admission::Admitted => Some(Ok(())),
            Admission::Wait => None,
            Admission::Refused => Some(Err(IoError::new(IoErrorKind::Gone, extent))),
        };
        self.changed.wait(verdict).await
    }
}

/// A disk behind the fence of its pool, once it has one. The marks that say whose the pool is pass always.
pub struct Fenced<D> {
    device: D,
    fence: OnceCell<Rc<Fence>>,
}

impl<D> Fenced<D> {
    /// The device, behind no fence yet.
    pub fn new(device: D) -> Self {
        Self { device, fence: OnceCell::new() }
    }

    /// The device is behind `fence` from now on.
    ///
    /// *Panics*: when it is behind one already: a disk is opened for one pool.
    pub fn guard(&self, fence: &Rc<Fence>) {
        assert!(self.fence.set(fence.clone()).is_ok(), "a disk has one pool");
    }

    /// The device itself.
    pub fn device(&self) -> &D {
        &self.device
    }

    async fn admit(&self, extent: Extent) -> Result<(), IoError> {
        match self.fence.get() {
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

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.admit(self.geometry().extent_of(start, data.len())?).await?;
        self.device.write_fresh(start, data).await
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
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
    use cluster::{LEASE, PATIENCE};
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
        // A beat that began long ago says nothing of now.
        fence.hold(Time::default());
        assert_eq!(write(&disk, 0), None);
        fence.hold(clock.get());
        assert_eq!(write(&disk, 0), Some(Ok(())));
    }

    #[test]
    fn fence_that_no_beat_opens_refuses_what_has_waited_long_enough() {
        let (disk, fence, clock) = fenced();
        clock.set(Time::default() + LEASE);
        let mut waiting = std::pin::pin!(disk.write(Lba(0), View::zeroed(4096)));
        assert!((&mut waiting).now_or_never().is_none());
        clock.set(Time::default() + LEASE + PATIENCE);
        fence.tick();
        let refused = waiting.now_or_never().expect("it ends").map(drop).map_err(|error| error.kind);
        assert_eq!(refused, Err(IoErrorKind::Gone));
        fence.hold(clock.get());
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
        fence.hold(clock.get());
        assert_eq!(write(&disk, 0), Some(Err(IoErrorKind::Gone)));
    }
}
