//! Member disk between the data plane and the simulator, at which a disk bug takes effect.

use super::{BugState, InjectedBug};
use block::{BlockDevice, Buf, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use futures_util::future::{Either, select};
use shard::World;
use sim::{Sim, SimDisk};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Time after which [`InjectedBug::SilenceHidden`] considers an operation done.
const SILENCE: Duration = Duration::from_millis(700);

const BLOCK: usize = 4096;
const MIB_BLOCKS: u64 = (1 << 20) / BLOCK as u64;
/// First blocks of the two catalog slots, and the end of the second (docs/on-disk.md).
const SLOTS: [u64; 3] = [2 * MIB_BLOCKS, 6 * MIB_BLOCKS, 10 * MIB_BLOCKS];
const DATA_START: u64 = 16 * MIB_BLOCKS;

/// Disk with a bug, or without.
pub(crate) struct BuggyDisk {
    inner: Rc<SimDisk>,
    path: String,
    machine: Sim,
    plant: Rc<BugState>,
    /// True when the disk was a member earlier in this life.
    is_back: bool,
    life: u64,
    is_written: Cell<bool>,
}

/// Area of a member disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    Labels,
    Catalog,
    Data,
}

impl BuggyDisk {
    pub(crate) fn new(inner: SimDisk, path: &str, machine: &Sim, plant: &Rc<BugState>) -> Self {
        let (is_back, life) = (plant.closed.borrow().contains(path), plant.life.get());
        let (path, machine, plant) = (path.to_owned(), machine.clone(), plant.clone());
        Self { inner: Rc::new(inner), path, machine, plant, is_back, life, is_written: Cell::default() }
    }

    fn area(&self, start: Lba) -> Area {
        // The last MiB of a member holds a label (docs/on-disk.md).
        let tail = self.inner.geometry().blocks.0 - MIB_BLOCKS;
        match start.0 {
            start if start >= SLOTS[0] && start < SLOTS[2] => Area::Catalog,
            start if start >= DATA_START && start < tail => Area::Data,
            _ => Area::Labels,
        }
    }

    /// True when `bug` affects a write to the data area.
    fn strikes_data(&self, bug: InjectedBug, often: u64, start: Lba) -> bool {
        self.area(start) == Area::Data && self.plant.triggers(bug, often)
    }

    /// Suppresses a write if the bug demands it; `None` when the write takes place.
    fn swallow(&self, start: Lba, data: &[u8]) -> Option<Written> {
        let is_replacement = || self.plant.replacements.borrow().contains(&self.path);
        let plant = &self.plant;
        let zeros = || data.iter().all(|&byte| byte == 0);
        let swallowed = match plant.bug {
            Some(InjectedBug::WriteLost) => self.strikes_data(InjectedBug::WriteLost, 40, start),
            // Conditions come before the draw, so that only writes that are really suppressed count as hits.
            Some(InjectedBug::ZerosSkipped) => zeros() && self.strikes_data(InjectedBug::ZerosSkipped, 1, start),
            Some(InjectedBug::RebuildLeavesGaps) => {
                is_replacement() && self.strikes_data(InjectedBug::RebuildLeavesGaps, 4, start)
            }
            Some(InjectedBug::CopyLeavesGaps) => {
                plant.copies.borrow().contains(&self.path) && self.strikes_data(InjectedBug::CopyLeavesGaps, 4, start)
            }
            Some(InjectedBug::ReturnLeavesGaps) => {
                self.is_back && self.strikes_data(InjectedBug::ReturnLeavesGaps, 4, start)
            }
            Some(InjectedBug::LogWriteLost) => {
                plant.logs.borrow().contains(&self.path) && self.strikes_data(InjectedBug::LogWriteLost, 2, start)
            }
            Some(InjectedBug::NewRoomLost) => {
                // Blocks beyond the original size of the members.
                start.0 >= plant.member_mib.get() * MIB_BLOCKS && self.strikes_data(InjectedBug::NewRoomLost, 1, start)
            }
            Some(InjectedBug::CatalogLost) => {
                self.area(start) == Area::Catalog && plant.triggers(InjectedBug::CatalogLost, 1)
            }
            Some(InjectedBug::LabelsLost) => {
                self.area(start) == Area::Labels && !zeros() && plant.triggers(InjectedBug::LabelsLost, 1)
            }
            _ => false,
        };
        swallowed.then(Written::attest)
    }

    /// Returns the block and the data that are written instead.
    fn alter_write(&self, start: Lba, data: View) -> (Lba, View) {
        let blocks = data.len() / BLOCK;
        match self.plant.bug {
            Some(InjectedBug::WriteElsewhere) if self.strikes_data(InjectedBug::WriteElsewhere, 40, start) => {
                (Lba(start.0 + 1), data)
            }
            Some(InjectedBug::WriteHalf) if blocks > 1 && self.strikes_data(InjectedBug::WriteHalf, 10, start) => {
                (start, data.slice(..blocks / 2 * BLOCK))
            }
            Some(InjectedBug::CatalogInOneSlot)
                if start.0 == SLOTS[1] && self.plant.triggers(InjectedBug::CatalogInOneSlot, 1) =>
            {
                (Lba(SLOTS[0]), data)
            }
            _ => (start, data),
        }
    }

    /// Records the content of the extent for a bug that returns it later.
    async fn remember(&self, start: Lba, blocks: usize) {
        if self.plant.bug != Some(InjectedBug::ReadOld) || self.area(start) != Area::Data {
            return;
        }
        // A read error leaves nothing to return later; the write itself is not affected.
        let Ok(old) = self.inner.read(Extent::new(start.0, blocks as u64)).await else { return };
        let old = old.into_view();
        let mut before = self.plant.before.borrow_mut();
        for (lba, at) in (start.0..).zip(0..blocks) {
            before.insert((self.path.clone(), lba), old.slice(at * BLOCK..(at + 1) * BLOCK));
        }
    }

    fn older(&self, extent: Extent, now: &View) -> Buf {
        let before = self.plant.before.borrow();
        // Blocks that were not overwritten in this life have no earlier content and stay as they are.
        let mut old = Buf::copy_of(now);
        for (lba, block) in (extent.start.0..).zip(old.chunks_exact_mut(BLOCK)) {
            if let Some(content) = before.get(&(self.path.clone(), lba)) {
                block.copy_from_slice(content);
            }
        }
        old
    }

    /// Awaits `work`; returns `done` when it takes too long and the bug takes effect.
    async fn unless_silent<T: 'static>(
        &self,
        work: impl Future<Output = Result<T, IoError>> + 'static,
        done: fn() -> T,
    ) -> Result<T, IoError> {
        if self.plant.bug != Some(InjectedBug::SilenceHidden) {
            return work.await;
        }
        match select(Box::pin(work), self.machine.sleep(SILENCE)).await {
            Either::Left((ended, _)) => ended,
            Either::Right((_, work)) if self.plant.triggers(InjectedBug::SilenceHidden, 1) => {
                // The operation goes on without a waiter, since the disk may still execute it.
                self.machine.spawn(async move { drop(work.await) });
                Ok(done())
            }
            Either::Right((_, work)) => work.await,
        }
    }

    /// Executes the write later, without a waiter.
    fn write_later(&self, start: Lba, data: View, after: Duration) {
        let (inner, machine) = (self.inner.clone(), self.machine.clone());
        self.machine.spawn(async move {
            machine.sleep(after).await;
            drop(inner.write(start, data).await);
        });
    }
}

impl Drop for BuggyDisk {
    fn drop(&mut self) {
        if self.is_written.get() {
            self.plant.record_closed(&self.path, self.life);
        }
    }
}

impl BlockDevice for BuggyDisk {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        match self.inner.read(extent).await {
            Ok(rope) if self.strikes_data(InjectedBug::ReadOld, 20, extent.start) => {
                Ok(self.older(extent, &rope.into_view()).into())
            }
            Err(_) if self.strikes_data(InjectedBug::ReadErrorIsZeros, 1, extent.start) => {
                Ok(Buf::zeroed(extent.len.0 as usize * BLOCK).into())
            }
            read => read,
        }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.is_written.set(self.is_written.get() || self.area(start) == Area::Data);
        if let Some(written) = self.swallow(start, &data) {
            return Ok(written);
        }
        // After `swallow`, so that a suppressed write is neither moved nor repeated.
        let (start, data) = self.alter_write(start, data);
        // Before the write, while the disk still holds the old content.
        self.remember(start, data.len() / BLOCK).await;
        if self.strikes_data(InjectedBug::WriteNotAwaited, 4, start) {
            self.write_later(start, data, Duration::ZERO);
            return Ok(Written::attest());
        }
        if self.strikes_data(InjectedBug::WriteTwice, 4, start) {
            self.write_later(start, data.clone(), self.plant.chance.moment(Duration::from_millis(50)));
        }
        let inner = self.inner.clone();
        let work = async move { inner.write(start, data).await };
        let written = self.unless_silent(work, Written::attest).await;
        match written {
            // The caller waits forever, as if it were never woken.
            Err(_) if self.strikes_data(InjectedBug::RefusalNotTold, 4, start) => std::future::pending().await,
            Err(_) if self.strikes_data(InjectedBug::WriteErrorHidden, 1, start) => Ok(Written::attest()),
            written => written,
        }
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        if self.plant.triggers(InjectedBug::FlushSkipped, 1) {
            return Ok(Stable::attest());
        }
        if self.plant.triggers(InjectedBug::FlushNotAwaited, 1) {
            let inner = self.inner.clone();
            self.machine.spawn(async move { drop(inner.flush(after).await) });
            return Ok(Stable::attest());
        }
        let inner = self.inner.clone();
        self.unless_silent(async move { inner.flush(after).await }, Stable::attest).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.inner.discard(extent).await
    }
}
