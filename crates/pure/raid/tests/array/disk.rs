//! Disk in memory with scripted faults.

use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

pub(crate) const BLOCK: usize = 4096;

/// Read or write recorded by the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read(Extent),
    Write(Extent),
    Flush,
    Discard(Extent),
}

#[derive(Clone)]
pub(crate) struct Disk(Rc<State>);

pub(crate) struct State {
    data: RefCell<Vec<u8>>,
    /// Content that survives a power cut at least.
    stable: RefCell<Vec<u8>>,
    /// Flushes started, and the last started among those that have ended.
    flushes: Cell<(u64, u64)>,
    pub seen: RefCell<Vec<Operation>>,
    pub gone: Cell<bool>,
    /// Misses the deadline of every hedged read.
    pub is_late: Cell<bool>,
    pub flush_fails: Cell<bool>,
    /// True when the test is about to fail the disk.
    pub doomed: Cell<bool>,
    pub discard_zeroes: Cell<bool>,
    pub block_bytes: Cell<u32>,
    /// Blocks that cannot be read until they are written.
    pub bad: RefCell<BTreeSet<u64>>,
    /// Blocks that cannot be written.
    pub stuck: RefCell<BTreeSet<u64>>,
    /// Stalls operations while set.
    held: Cell<bool>,
    flushes_held: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    /// Number of times an operation yields before it ends.
    pub yields: Cell<u32>,
}

impl std::ops::Deref for Disk {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0
    }
}

impl Disk {
    pub(crate) fn new(blocks: u64) -> Self {
        let bytes = blocks as usize * BLOCK;
        Self(Rc::new(State {
            data: RefCell::new(vec![0; bytes]),
            stable: RefCell::new(vec![0; bytes]),
            flushes: Cell::default(),
            seen: RefCell::default(),
            gone: Cell::default(),
            is_late: Cell::default(),
            flush_fails: Cell::default(),
            doomed: Cell::default(),
            discard_zeroes: Cell::new(true),
            block_bytes: Cell::new(BLOCK as u32),
            bad: RefCell::default(),
            stuck: RefCell::default(),
            held: Cell::default(),
            flushes_held: Cell::default(),
            waiting: RefCell::default(),
            yields: Cell::default(),
        }))
    }

    /// Creates a used disk, full of bytes that no test writes.
    pub(crate) fn used(blocks: u64) -> Self {
        let disk = Self::new(blocks);
        disk.data.borrow_mut().fill(0xdd);
        disk.stable.borrow_mut().fill(0xdd);
        disk
    }

    pub(crate) fn hold(&self) {
        self.held.set(true);
    }

    /// Stalls flushes from now on; reads and writes proceed.
    pub(crate) fn hold_flushes(&self) {
        self.flushes_held.set(true);
    }

    pub(crate) fn release(&self) {
        self.held.set(false);
        self.flushes_held.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn bytes(&self, extent: Extent) -> Vec<u8> {
        self.data.borrow()[range(extent)].to_vec()
    }

    pub(crate) fn overwrite(&self, extent: Extent, byte: u8) {
        self.data.borrow_mut()[range(extent)].fill(byte);
    }

    /// Takes the operations recorded since the last call.
    pub(crate) fn take_seen(&self) -> Vec<Operation> {
        self.seen.take()
    }

    /// Cuts the power: each block keeps its stable or its last content, as `keeps_last` says.
    pub(crate) fn cut_power(&self, mut keeps_last: impl FnMut() -> bool) {
        let (mut data, mut stable) = (self.data.borrow_mut(), self.stable.borrow_mut());
        for (last, stable) in data.chunks_mut(BLOCK).zip(stable.chunks_mut(BLOCK)) {
            if keeps_last() { stable.copy_from_slice(last) } else { last.copy_from_slice(stable) }
        }
    }

    async fn pause(&self, extent: Extent, held: impl Fn() -> bool) -> Result<(), IoError> {
        let mut yields = self.yields.get();
        poll_fn(|cx| {
            if held() {
                self.waiting.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            if yields > 0 {
                yields -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        if self.gone.get() { Err(IoError::new(IoErrorKind::Gone, extent)) } else { Ok(()) }
    }

    fn judge(&self, extent: Extent, faults: &RefCell<BTreeSet<u64>>) -> Result<(), IoError> {
        match faults.borrow().range(extent.start.0..extent.end().0).next() {
            Some(_) => Err(IoError::new(IoErrorKind::Medium, extent)),
            None => Ok(()),
        }
    }
}

fn range(extent: Extent) -> std::ops::Range<usize> {
    extent.start.0 as usize * BLOCK..extent.end().0 as usize * BLOCK
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes.get(),
            blocks: Blocks((self.data.borrow().len() / BLOCK) as u64),
            physical_block_bytes: 4096,
            optimal_bytes: 4096,
            volatile_cache: true,
            discard_zeroes: self.discard_zeroes.get(),
            prefers_unlogged: false,
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.seen.borrow_mut().push(Operation::Read(extent));
        self.pause(extent, || self.held.get()).await?;
        self.judge(extent, &self.bad)?;
        Ok(block::Buf::copy_of(&self.data.borrow()[range(extent)]).into())
    }

    /// A write dropped half way has written its first half.
    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        match self.is_late.get() {
            true => Err(IoError::new(IoErrorKind::TimedOut, extent)),
            false => self.read(extent).await,
        }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = Extent::new(start.0, (data.len() / BLOCK) as u64);
        self.seen.borrow_mut().push(Operation::Write(extent));
        self.pause(extent, || self.held.get()).await?;
        self.judge(extent, &self.stuck)?;
        let half = data.len() / BLOCK / 2 * BLOCK;
        let (from, to) = (range(extent).start, range(extent).end);
        self.data.borrow_mut()[from..from + half].copy_from_slice(&data[..half]);
        self.pause(extent, || self.held.get()).await?;
        self.data.borrow_mut()[from + half..to].copy_from_slice(&data[half..]);
        self.bad.borrow_mut().retain(|block| !(extent.start.0..extent.end().0).contains(block));
        Ok(Written::attest())
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        self.seen.borrow_mut().push(Operation::Flush);
        let (begun, _) = self.flushes.get();
        self.flushes.set((begun + 1, self.flushes.get().1));
        let covered = self.data.borrow().clone();
        self.pause(Extent::default(), || self.held.get() || self.flushes_held.get()).await?;
        if self.flush_fails.get() {
            self.gone.set(true);
            return Err(IoError::new(IoErrorKind::Gone, Extent::default()));
        }
        // A flush that started later and has ended already covers more.
        if self.flushes.get().1 <= begun {
            self.flushes.set((self.flushes.get().0, begun + 1));
            *self.stable.borrow_mut() = covered;
        }
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.seen.borrow_mut().push(Operation::Discard(extent));
        self.pause(extent, || self.held.get()).await?;
        if self.discard_zeroes.get() {
            self.overwrite(extent, 0);
        }
        Ok(Written::attest())
    }
}
