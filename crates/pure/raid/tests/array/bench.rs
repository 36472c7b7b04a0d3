//! Test bench: an array on scripted disks, and an executor that runs commands in any order.

use crate::disk::{BLOCK, Disk, Operation};
use block::{BlockDevice, Buf, Extent, IoError, IoErrorKind, Lba, Stable, View, Written};
use raid::geometry::{Role, Rows, StripePosition};
use raid::{Array, FailureLog, Layout, Level, MemberState, Progress, RebuildOwner, Rebuilt, Status};
use shard::Executor;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Failed members, as the owner's superblocks would name them after a crash.
#[derive(Default)]
pub(crate) struct Log {
    pub recorded: RefCell<Vec<u16>>,
    pub held: Cell<bool>,
    pub fails: Cell<bool>,
    /// Released when a failure is recorded: a flush had waited for the flush of the record.
    pub lets_go: RefCell<Option<Disk>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Log {
    pub(crate) fn release(&self) {
        self.held.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}

/// The log is shared by the array and the test.
pub(crate) struct SharedLog(pub Rc<Log>);

impl FailureLog for SharedLog {
    fn record(&self, member: u16, _error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        let log = self.0.clone();
        Box::pin(async move {
            poll_fn(|cx| {
                log.waiting.borrow_mut().push(cx.waker().clone());
                if log.held.get() { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            if log.fails.get() {
                return Err(IoError::new(IoErrorKind::ReadOnly, Extent::default()));
            }
            log.recorded.borrow_mut().push(member);
            log.lets_go.take().inspect(|disk| disk.release());
            Ok(Stable::attest())
        })
    }
}

/// Rebuild owner without pauses that records the end of the rebuild in the log.
pub(crate) struct Owner(pub Rc<Log>);

impl RebuildOwner for Owner {
    async fn pace(&mut self, _: Progress) {}

    async fn commit(&mut self, member: u16, _: Stable, _: &Rebuilt) -> Result<Stable, IoError> {
        self.0.recorded.borrow_mut().retain(|&recorded| recorded != member);
        Ok(Stable::attest())
    }
}

pub(crate) struct Bench {
    pub array: Rc<Array<Disk>>,
    pub disks: RefCell<Vec<Disk>>,
    pub log: Rc<Log>,
    pub executor: Executor,
}

impl Bench {
    /// Zeroed disks with room for `stripes` chunks.
    pub(crate) fn new(level: Level, members: usize, chunk_blocks: u32, stripes: u64) -> Self {
        let blocks = stripes * u64::from(chunk_blocks);
        let layout = Layout::new(level, members, chunk_blocks * 4096, block::Blocks(blocks)).expect("a valid shape");
        let disks: Vec<Disk> = (0..members).map(|_| Disk::new(blocks)).collect();
        Self::assemble(layout, disks, &[])
    }

    /// Assembles the array as after a restart, without the disks that `failed` names as not current.
    pub(crate) fn assemble(layout: Layout, disks: Vec<Disk>, failed: &[u16]) -> Self {
        let log = Rc::new(Log::default());
        log.recorded.borrow_mut().extend(failed);
        let present = (0..).zip(&disks).map(|(member, disk)| (!failed.contains(&member)).then(|| disk.clone()));
        let array = Array::new(layout, present.collect(), Rc::new(SharedLog(log.clone()))).expect("enough members");
        let executor = Executor::new(Box::new(|| {}));
        Self { array: Rc::new(array), disks: RefCell::new(disks), log, executor }
    }

    pub(crate) fn disk(&self, member: u16) -> Disk {
        self.disks.borrow()[usize::from(member)].clone()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.array.layout()
    }

    pub(crate) fn status(&self) -> Status {
        self.array.status()
    }

    pub(crate) fn state(&self, member: u16) -> MemberState {
        self.status().members[usize::from(member)].state
    }

    /// Starts `command`; its result appears when it is done.
    pub(crate) fn begin<T: 'static>(&self, command: impl Future<Output = T> + 'static) -> Rc<Cell<Option<T>>> {
        let result = Rc::new(Cell::new(None));
        let tell = result.clone();
        self.executor.spawn(async move { tell.set(Some(command.await)) });
        result
    }

    /// Runs until no task makes progress.
    pub(crate) fn settle(&self) {
        while self.executor.run_one(|_| 0) {}
    }

    /// Runs `command` to completion.
    pub(crate) fn run<T: 'static>(&self, command: impl Future<Output = T> + 'static) -> T {
        let result = self.begin(command);
        self.settle();
        result.take().expect("nothing is held, so the command ends")
    }

    pub(crate) fn write(&self, start: u64, data: View) -> Result<Written, IoError> {
        let array = self.array.clone();
        self.run(async move { array.write(Lba(start), data).await })
    }

    pub(crate) fn read(&self, extent: Extent) -> Result<Vec<u8>, IoError> {
        let array = self.array.clone();
        self.run(async move { array.read(extent).await }).map(|rope| rope.into_view().to_vec())
    }

    pub(crate) fn flush(&self) -> Result<Stable, IoError> {
        let array = self.array.clone();
        self.run(async move { array.flush(Written::attest()).await })
    }

    pub(crate) fn mismatches(&self) -> u64 {
        let (array, stripes) = (self.array.clone(), self.layout().stripes());
        self.run(async move { array.scrub_check(0..stripes, async |_| {}).await }).expect("serving").mismatches
    }

    /// Fails a member, puts a used disk in its place and rebuilds it.
    pub(crate) fn replace(&self, member: u16) {
        let disk = Disk::used(self.layout().member_blocks().0);
        self.array.replace(member, disk.clone()).expect("the member has failed");
        self.disks.borrow_mut()[usize::from(member)] = disk;
    }

    pub(crate) fn rebuild(&self, member: u16) -> Result<Rebuilt, raid::RebuildError> {
        let (array, log, stripes) = (self.array.clone(), self.log.clone(), self.layout().stripes());
        self.run(async move { array.rebuild(member, &[0..stripes], &mut Owner(log)).await })
    }

    /// Forgets the operations recorded by the disks.
    pub(crate) fn forget(&self) {
        self.disks.borrow().iter().for_each(|disk| drop(disk.take_seen()));
    }

    /// Reads and writes recorded by the disks since then.
    pub(crate) fn seen(&self) -> (usize, usize) {
        let seen: Vec<Operation> = self.disks.borrow().iter().flat_map(|disk| disk.take_seen()).collect();
        let reads = seen.iter().filter(|seen| matches!(seen, Operation::Read(_))).count();
        (reads, seen.iter().filter(|seen| matches!(seen, Operation::Write(_))).count())
    }

    /// The disk's chunk of `stripe` that has `role`.
    pub(crate) fn chunk(&self, stripe: u64, role: Role) -> Vec<u8> {
        let layout = self.layout();
        let member = layout.member_of(stripe, role);
        self.disk(member).bytes(layout.member_extent(stripe, Rows::new(0, layout.chunk_blocks())))
    }

    /// Location of a block of the array: the member, and its block there.
    pub(crate) fn home(&self, lba: u64) -> (u16, u64) {
        let layout = self.layout();
        let StripePosition { stripe, column, row } = layout.locate(Lba(lba));
        let member = layout.member_of(stripe, Role::Data { column, copy: 0 });
        (member, layout.member_extent(stripe, Rows::new(row, row + 1)).start.0)
    }
}

/// Blocks with content that differs between blocks and between seeds.
pub(crate) fn noise(seed: u64, blocks: u64) -> View {
    let mut buf = Buf::zeroed(blocks as usize * BLOCK);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buf.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    buf.freeze()
}
