//! Recording disks: for each block every version that a power cut could leave, since the last durable one.

use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

pub(crate) const BLOCK: usize = 4096;

/// Content of a disk; absent blocks are zeros.
pub(crate) type Content = BTreeMap<u64, View>;

/// Pseudo-random numbers; the seed determines the whole test.
#[derive(Clone)]
pub(crate) struct Dice(Rc<Cell<u64>>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)))
    }

    pub(crate) fn roll(&self, sides: u64) -> u64 {
        let state = self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.set(state);
        let mixed = (state ^ (state >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 33) % sides
    }
}

/// Possible content of one disk after a power cut.
#[derive(Clone)]
pub(crate) struct Left {
    pub durable: Content,
    /// For each undecided block the later versions in order, and whether the last of them was in flight.
    pub later: Vec<(u64, Vec<(View, bool)>)>,
}

/// Power cut between two events: possible content of every disk, and the test's knowledge at that time.
pub(crate) struct Cut<K> {
    pub disks: Vec<Left>,
    pub known: K,
}

/// Observer called after every event.
type Watcher = Box<dyn Fn()>;

/// Disks of one run.
pub(crate) struct Rack {
    pub disks: RefCell<Vec<Disk>>,
    pub dice: Dice,
    /// Number of waits so far, and the number after which disks refuse nothing any more.
    pub pauses: Cell<u64>,
    pub room_after: Cell<u64>,
    watcher: RefCell<Option<Watcher>>,
}

impl Rack {
    pub(crate) fn new(dice: Dice) -> Rc<Self> {
        Rc::new(Self {
            disks: RefCell::default(),
            dice,
            pauses: Cell::default(),
            room_after: Cell::new(u64::MAX),
            watcher: RefCell::default(),
        })
    }

    pub(crate) fn add(self: &Rc<Self>, blocks: u64, volatile: bool, content: Content) -> Disk {
        let disk = Disk(Rc::new(State {
            rack: Rc::downgrade(self),
            blocks,
            volatile: Cell::new(volatile),
            now: RefCell::new(content.clone()),
            durable: RefCell::new(content),
            pending: RefCell::default(),
            next: Cell::default(),
            gone: Cell::default(),
            is_late: Cell::default(),
            bad: RefCell::default(),
            stuck: RefCell::default(),
            refuses: Cell::default(),
            lose_next_write: Cell::default(),
            misdirect_next_write: Cell::default(),
            misdirect_next_read: Cell::default(),
            stall_next_read: Cell::default(),
            stall_next_write: Cell::default(),
            stalled: Cell::default(),
            stalled_waker: RefCell::default(),
            rots_every: Cell::default(),
            hung: Cell::default(),
            waiting: RefCell::default(),
            patient: Cell::new(true),
            counts: Counts::default(),
        }));
        self.disks.borrow_mut().push(disk.clone());
        disk
    }

    /// Advances time; space may be available after it.
    pub(crate) fn pass(&self) {
        self.pauses.set(self.pauses.get() + 1);
        if self.pauses.get() >= self.room_after.get() {
            self.disks.borrow().iter().for_each(|disk| disk.refuses.set(None));
        }
    }

    pub(crate) fn watch(&self, watcher: impl Fn() + 'static) {
        *self.watcher.borrow_mut() = Some(Box::new(watcher));
    }

    pub(crate) fn cut(&self) -> Vec<Left> {
        self.disks.borrow().iter().map(Disk::left).collect()
    }

    fn event(&self) {
        if let Some(watcher) = &*self.watcher.borrow() {
            watcher();
        }
    }
}

#[derive(Clone)]
pub(crate) struct Disk(Rc<State>);

#[derive(Default)]
pub(crate) struct Counts {
    pub reads: Cell<u64>,
    pub writes: Cell<u64>,
    pub flushes: Cell<u64>,
    pub blocks_written: Cell<u64>,
    pub blocks_read: Cell<u64>,
}

struct Pending {
    id: u64,
    block: u64,
    content: View,
    ended: bool,
}

pub(crate) struct State {
    rack: std::rc::Weak<Rack>,
    blocks: u64,
    volatile: Cell<bool>,
    now: RefCell<Content>,
    durable: RefCell<Content>,
    pending: RefCell<Vec<Pending>>,
    next: Cell<u64>,
    pub gone: Cell<bool>,
    /// Misses the deadline of every hedged read.
    pub is_late: Cell<bool>,
    /// Blocks that cannot be read until they are written.
    pub bad: RefCell<BTreeSet<u64>>,
    /// Blocks that cannot be written.
    pub stuck: RefCell<BTreeSet<u64>>,
    /// Error of writes from this block on.
    pub refuses: Cell<Option<(u64, IoErrorKind)>>,
    /// Lost write: the next write of this block is acknowledged and not executed.
    pub lose_next_write: Cell<Option<u64>>,
    /// Misdirected write: the next write of the first block lands on the second.
    pub misdirect_next_write: Cell<Option<(u64, u64)>>,
    /// Misdirected read: the next read of the first block returns the second.
    pub misdirect_next_read: Cell<Option<(u64, u64)>>,
    /// Stalls the next read of this block until it is released.
    pub stall_next_read: Cell<Option<u64>>,
    /// Stalls the next write of this block until it is released.
    pub stall_next_write: Cell<Option<u64>>,
    stalled: Cell<bool>,
    stalled_waker: RefCell<Option<Waker>>,
    /// One read in this many finds one of its blocks decayed just before; 0 for none.
    pub rots_every: Cell<u64>,
    /// Stalls writes until this is false again; then they fail.
    hung: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    /// Operations yield to others.
    pub patient: Cell<bool>,
    pub counts: Counts,
}

impl std::ops::Deref for Disk {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0
    }
}

fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

impl Disk {
    fn left(&self) -> Left {
        let mut later: BTreeMap<u64, Vec<(View, bool)>> = BTreeMap::new();
        for pending in self.pending.borrow().iter() {
            later.entry(pending.block).or_default().push((pending.content.clone(), !pending.ended));
        }
        Left { durable: self.durable.borrow().clone(), later: later.into_iter().collect() }
    }

    /// Current content of the disk.
    pub(crate) fn content(&self) -> Content {
        self.now.borrow().clone()
    }

    pub(crate) fn block(&self, block: u64) -> View {
        self.now.borrow().get(&block).cloned().unwrap_or_else(|| View::zeroed(BLOCK))
    }

    /// Changes a block on the disk directly.
    pub(crate) fn overwrite(&self, block: u64, content: View) {
        self.now.borrow_mut().insert(block, content.clone());
        self.durable.borrow_mut().insert(block, content);
    }

    /// Releases stalled operations.
    pub(crate) fn let_go(&self) {
        self.stalled.set(false);
        self.stall_next_read.set(None);
        self.stall_next_write.set(None);
        self.stalled_waker.take().into_iter().for_each(Waker::wake);
    }

    /// Waits to be released, if `extent` contains the block to be stalled.
    async fn stall(&self, next: &Cell<Option<u64>>, extent: Extent) {
        if !next.get().is_some_and(|block| extent.contains(Extent::new(block, 1))) {
            return;
        }
        next.set(None);
        self.stalled.set(true);
        poll_fn(|cx| {
            *self.stalled_waker.borrow_mut() = Some(cx.waker().clone());
            if self.stalled.get() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    async fn pause(&self) {
        let Some(rack) = self.rack.upgrade().filter(|_| self.patient.get()) else { return };
        rack.event();
        let mut yields = rack.dice.roll(3);
        poll_fn(|cx| {
            if yields == 0 {
                return Poll::Ready(());
            }
            yields -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Stalls writes that start from now on.
    pub(crate) fn hang(&self) {
        self.hung.set(true);
    }

    /// Removes the disk; operations in flight fail.
    pub(crate) fn give_up(&self) {
        self.gone.set(true);
        self.hung.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    async fn woken(&self) {
        poll_fn(|cx| {
            if !self.hung.get() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn event(&self) {
        if let Some(rack) = self.rack.upgrade().filter(|_| self.patient.get()) {
            rack.event();
        }
    }

    fn here(&self, extent: Extent) -> Result<(), IoError> {
        if self.gone.get() { Err(IoError::new(IoErrorKind::Gone, extent)) } else { Ok(()) }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: BLOCK as u32,
            blocks: Blocks(self.blocks),
            physical_block_bytes: 4096,
            optimal_bytes: 4096,
            volatile_cache: self.volatile.get(),
            discard_zeroes: false,
            prefers_unlogged: false,
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry().admit(extent)?;
        add(&self.counts.reads, 1);
        add(&self.counts.blocks_read, extent.len.0);
        self.here(extent)?;
        if self.bad.borrow().range(extent.start.0..extent.end().0).next().is_some() {
            return Err(IoError::new(IoErrorKind::Medium, extent));
        }
        self.stall(&self.stall_next_read, extent).await;
        if self.rots_every.get() > 0 && self.counts.reads.get().is_multiple_of(self.rots_every.get()) {
            let block = extent.start.0 + self.counts.reads.get() % extent.len.0;
            let mut rotten = self.block(block).into_buf();
            rotten[9] ^= 0x40;
            self.overwrite(block, rotten.freeze());
        }
        let mut bytes = Buf::zeroed(extent.len.0 as usize * BLOCK);
        let now = self.now.borrow();
        for (block, into) in (extent.start.0..).zip(bytes.chunks_mut(BLOCK)) {
            let from = match self.misdirect_next_read.get() {
                Some((one, other)) if one == block => {
                    self.misdirect_next_read.set(None);
                    other
                }
                _ => block,
            };
            if let Some(content) = now.get(&from) {
                into.copy_from_slice(content);
            }
        }
        Ok(bytes.into())
    }

    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        match self.is_late.get() {
            true => Err(IoError::new(IoErrorKind::TimedOut, extent)),
            false => self.read(extent).await,
        }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        add(&self.counts.writes, 1);
        add(&self.counts.blocks_written, extent.len.0);
        self.here(extent)?;
        self.stall(&self.stall_next_write, extent).await;
        let first = self.next.get();
        self.next.set(first + extent.len.0);
        for n in 0..extent.len.0 {
            let content = data.slice(n as usize * BLOCK..(n as usize + 1) * BLOCK);
            let mut block = extent.start.0 + n;
            if self.lose_next_write.get() == Some(block) {
                self.lose_next_write.set(None);
                continue;
            }
            if let Some((one, other)) = self.misdirect_next_write.get()
                && one == block
            {
                self.misdirect_next_write.set(None);
                block = other;
            }
            self.pending.borrow_mut().push(Pending { id: first + n, block, content, ended: false });
        }
        self.pause().await;
        self.woken().await;
        self.here(extent)?;
        if self.stuck.borrow().range(extent.start.0..extent.end().0).next().is_some() {
            return Err(IoError::new(IoErrorKind::Medium, extent));
        }
        if let Some((from, kind)) = self.refuses.get()
            && extent.end().0 > from
        {
            let ids = first..first + extent.len.0;
            self.pending.borrow_mut().retain(|one| !ids.contains(&one.id));
            return Err(IoError::new(kind, extent));
        }
        let ids = first..first + extent.len.0;
        let mut pending = self.pending.borrow_mut();
        for one in pending.iter_mut().filter(|one| ids.contains(&one.id)) {
            one.ended = true;
            self.now.borrow_mut().insert(one.block, one.content.clone());
        }
        if !self.volatile.get() {
            for one in pending.iter().filter(|one| ids.contains(&one.id)) {
                self.durable.borrow_mut().insert(one.block, one.content.clone());
            }
            let done: BTreeSet<u64> = pending.iter().filter(|one| ids.contains(&one.id)).map(|one| one.block).collect();
            pending.retain(|one| one.id >= ids.end || !done.contains(&one.block));
        }
        drop(pending);
        self.bad.borrow_mut().retain(|block| !(extent.start.0..extent.end().0).contains(block));
        self.event();
        Ok(Written::attest())
    }

    async fn flush(&self, _: Written) -> Result<Stable, IoError> {
        add(&self.counts.flushes, 1);
        self.here(Extent::default())?;
        let covered: BTreeSet<u64> = self.pending.borrow().iter().filter(|one| one.ended).map(|one| one.id).collect();
        self.pause().await;
        self.here(Extent::default())?;
        let mut pending = self.pending.borrow_mut();
        for one in pending.iter().filter(|one| covered.contains(&one.id)) {
            self.durable.borrow_mut().insert(one.block, one.content.clone());
        }
        pending.retain(|one| !covered.contains(&one.id));
        drop(pending);
        self.event();
        Ok(Stable::attest())
    }

    async fn discard(&self, _: Extent) -> Result<Written, IoError> {
        Ok(Written::attest())
    }
}
