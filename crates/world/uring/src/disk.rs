//! Disks, and files that are used as disks.
//!
//! Implements [`BlockDevice`] over the reactor. A failed flush is never retried, and bytes that were not read are never
//! returned.

mod error_state;
pub(crate) mod identity;
mod latency_model;
mod open;
mod opening;

pub use identity::locate;

use crate::abandoned_writes::AbandonedWrites;
use crate::operation::{Landed, Operation, Token};
use crate::operation_table::OnLanded;
use crate::world::Inner;
use block::{BlockDevice, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use error_state::ErrorState;
use latency_model::{LatencyModel, Passage};
use rustix::io::Errno;
use std::future::poll_fn;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Stands for the cache of the disk among the ranges of abandoned operations: no block has these bytes.
const CACHE: Range<u64> = u64::MAX - 1..u64::MAX;

/// Block device or regular file, held exclusively by this process.
pub struct Disk {
    world: Rc<Inner>,
    file: Arc<OwnedFd>,
    geometry: Geometry,
    access: Access,
    faults: Rc<ErrorState>,
    orphans: AbandonedWrites,
    latency_model: Option<Box<LatencyModel>>,
}

/// Properties of the access through the kernel.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// Required alignment of memory and addresses in bytes; 1 when the page cache is used.
    align: usize,
    is_file: bool,
    read_only: bool,
    can_punch: bool,
}

/// Operation, for the log.
#[derive(Clone, Copy, Debug)]
enum OperationKind {
    Read,
    Write,
    Flush,
    Discard,
    Reserve,
}

impl Disk {
    fn bytes(&self, extent: Extent) -> Range<u64> {
        // No overflow: `admit` has checked the extent against the size of the device.
        let block = self.geometry.block_bytes;
        extent.start.0 * u64::from(block)..extent.end().0 * u64::from(block)
    }

    /// Admits an operation on `extent` once no abandoned operation can still change those bytes.
    async fn enter(&self, extent: Extent) -> Result<Range<u64>, IoError> {
        self.geometry.admit(extent)?;
        let bytes = self.bytes(extent);
        // An abandoned write to this range must not land after this operation.
        self.orphans.until_clear(&bytes).await;
        // Checked after the wait: the disk may have failed meanwhile.
        self.faults.admit(extent)?;
        Ok(bytes)
    }

    async fn enter_writing(&self, extent: Extent) -> Result<Range<u64>, IoError> {
        // Refused before the kernel sees it: EBADF of a read-only descriptor would count as a failed disk.
        if self.access.read_only {
            return Err(IoError::new(IoErrorKind::ReadOnly, extent));
        }
        self.enter(extent).await
    }

    /// Starts the operation in the latency model, where there is one.
    fn pass(&self, bytes: &Range<u64>, write: bool) -> Option<Passage<'_>> {
        self.latency_model.as_ref().map(|pace| pace.begin(bytes, write))
    }

    async fn passed(&self, passage: Option<Passage<'_>>) {
        if let Some(passage) = passage {
            passage.end(&self.world).await;
        }
    }

    /// Runs `operation`. When this future is dropped, the operation keeps its memory until it has landed, and the range
    /// that it may change (`changes`) is closed to later operations. The error of a flush fails the disk even then.
    async fn carry(&self, operation: Operation, changes: Option<&Range<u64>>) -> Landed {
        let is_flush = matches!(operation, Operation::Flush { .. });
        let token = self.world.reactor.borrow_mut().start(operation);
        let mut flight = AbandonGuard { disk: self, token: Some(token), changes, is_flush };
        let landed = poll_fn(|cx| self.world.reactor.borrow_mut().poll(token, cx)).await;
        // Landed: nothing is left to abandon.
        flight.token = None;
        landed
    }
}

struct AbandonGuard<'a> {
    disk: &'a Disk,
    token: Option<Token>,
    changes: Option<&'a Range<u64>>,
    is_flush: bool,
}

impl AbandonGuard<'_> {
    /// Closes `bytes` to later operations until the operation has landed.
    fn on_landed(&self, bytes: &Range<u64>) -> OnLanded {
        let (faults, all, is_flush) = (self.disk.faults.clone(), self.disk.geometry.all(), self.is_flush);
        let range = self.disk.orphans.register(bytes.clone());
        Box::new(move |result| {
            // The kernel reports a write-back error once per open file: the next flush would succeed. A write without
            // a caller was not acknowledged, so its error needs no record.
            if let (true, Err(errno)) = (is_flush, result) {
                faults.record(OperationKind::Flush, errno, all);
            }
            // After the record: operations that this wakes must find the disk failed.
            drop(range);
        })
    }
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            // A read changes nothing, and its error concerns its caller alone.
            let on_landed = || self.changes.map(|bytes| self.on_landed(bytes));
            self.disk.world.reactor.borrow_mut().abandon_disk(token, on_landed);
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let bytes = self.enter(extent).await?;
        let passage = self.pass(&bytes, false);
        // The content of a recycled buffer is overwritten completely, or zeroed from `filled` on, before it is
        // returned.
        let len = usize::try_from(bytes.end - bytes.start).expect("a read fits into memory");
        let (offset, mut buf, mut filled) = (bytes.start, Buf::recycled(len), 0);
        while filled < len {
            // A read changes nothing on the disk, so an abandoned one needs no guard.
            let landed = self.carry(Operation::Read { file: self.file.clone(), offset, buf, filled }, None).await;
            let Operation::Read { buf: read, .. } = landed.operation else { unreachable!("a read lands as a read") };
            buf = read;
            match landed.result {
                Ok(0) => {
                    self.faults.end_reached(extent, self.access.is_file)?;
                    buf[filled..].fill(0);
                    filled = len;
                }
                Ok(count) => {
                    filled += count;
                    if filled < len && !filled.is_multiple_of(self.access.align) {
                        // Direct I/O ends within a block only at the end of a file.
                        self.faults.end_reached(extent, self.access.is_file)?;
                        buf[filled..].fill(0);
                        filled = len;
                    }
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(self.faults.record(OperationKind::Read, errno, extent)),
            }
        }
        self.passed(passage).await;
        Ok(buf.freeze().into())
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry.extent_of(start, data.len())?;
        let bytes = self.enter_writing(extent).await?;
        let passage = self.pass(&bytes, true);
        // Direct I/O needs aligned memory; an unaligned view is copied once.
        let mut data = if data.is_aligned(self.access.align) { data } else { Buf::copy_of(&data).freeze() };
        let (offset, len, mut written) = (bytes.start, data.len(), 0);
        while written < len {
            let operation = Operation::Write { file: self.file.clone(), offset, data, written };
            let landed = self.carry(operation, Some(&bytes)).await;
            let Operation::Write { data: kept, .. } = landed.operation else {
                unreachable!("a write lands as a write")
            };
            // The operation owned the data; it is needed again for the rest of a short write.
            data = kept;
            match landed.result {
                Ok(count) => {
                    // A short write within a block is repeated from the start of that block.
                    let next = (written + count) / self.access.align * self.access.align;
                    // No progress: the kernel wrote less than a block and would do so again. Reported as a full device.
                    if next == written {
                        return Err(self.faults.record(OperationKind::Write, Errno::NOSPC, extent));
                    }
                    written = next;
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(self.faults.record(OperationKind::Write, errno, extent)),
            }
        }
        self.passed(passage).await;
        Ok(Written::attest())
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        let all = self.geometry.all();
        self.faults.admit(all)?;
        // Without a volatile cache there is nothing to flush.
        if self.geometry.volatile_cache && !self.access.read_only {
            // No block is closed if this is abandoned: a flush does not change the content of the disk.
            let landed = self.carry(Operation::Flush { file: self.file.clone() }, Some(&CACHE)).await;
            if let Err(errno) = landed.result {
                return Err(self.faults.record(OperationKind::Flush, errno, all));
            }
            // Another flush may have failed meanwhile, and the kernel reports a write-back error once per open file. An
            // abandoned one may have received it, and not landed yet.
            self.orphans.until_clear(&CACHE).await;
            self.faults.admit(all)?;
        }
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let bytes = self.enter_writing(extent).await?;
        // A discard is a hint: without support it has no effect.
        if self.access.can_punch && !extent.is_empty() {
            let (offset, len) = (bytes.start, bytes.end - bytes.start);
            let operation = Operation::Punch { file: self.file.clone(), offset, len };
            if let Err(errno) = self.carry(operation, Some(&bytes)).await.result {
                return Err(self.faults.record(OperationKind::Discard, errno, extent));
            }
        }
        Ok(Written::attest())
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        let bytes = self.enter_writing(extent).await?;
        // A block device has all of its space; fallocate(2) rejects a length of zero.
        if !self.access.is_file || extent.is_empty() {
            return Ok(());
        }
        loop {
            let (offset, len) = (bytes.start, bytes.end - bytes.start);
            let operation = Operation::Allocate { file: self.file.clone(), offset, len };
            match self.carry(operation, Some(&bytes)).await.result {
                // A file system that cannot reserve: the trait allows a reservation to do nothing.
                Ok(_) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(self.faults.record(OperationKind::Reserve, errno, extent)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::run;
    use crate::options::{Io, Options};
    use crate::wake_event::new_wake_event;
    use crate::world::Uring;
    use block::Blocks;
    use shard::World;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    /// Disk whose flushes fail: an eventfd does not support fdatasync(2).
    fn disk_that_cannot_flush(world: &Uring) -> Disk {
        let geometry = Geometry {
            block_bytes: 512,
            blocks: Blocks(8),
            physical_block_bytes: 512,
            optimal_bytes: 512,
            volatile_cache: true,
            discard_zeroes: false,
            prefers_unlogged: false,
        };
        Disk {
            world: world.0.clone(),
            file: new_wake_event().expect("an eventfd"),
            geometry,
            access: Access { align: 1, is_file: true, read_only: false, can_punch: false },
            faults: Rc::new(ErrorState::none("test".to_owned())),
            orphans: AbandonedWrites::default(),
            latency_model: None,
        }
    }

    #[test]
    fn flush_that_fails_after_its_caller_was_dropped_fails_the_disk() {
        for (io, lands_first) in [(Io::Auto, false), (Io::Auto, true), (Io::Threads, false), (Io::Threads, true)] {
            let claim = async move |world: Uring| {
                let disk = disk_that_cannot_flush(&world);
                {
                    let mut flush = pin!(disk.flush(Written::attest()));
                    assert!(flush.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                    if lands_first {
                        world.sleep(Duration::from_millis(50)).await;
                    }
                }
                let mut turns = 0;
                while disk.faults.admit(disk.geometry.all()).is_ok() {
                    turns += 1;
                    assert!(turns < 5000, "the flush has failed");
                    world.sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(disk.read(Extent::new(0, 1)).await.map(drop).expect_err("gone").kind, IoErrorKind::Gone);
            };
            run(&Options { io, ..Options::default() }, claim).expect("the shard runs");
        }
    }
}
