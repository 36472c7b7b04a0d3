//! Test bench: a protected array on recording disks, and an executor that runs commands in any order.

use crate::disk::{Content, Dice, Disk, Rack};
use block::{BlockDevice, Blocks, Extent, IoError, Lba, Stable, View, Written};
use raid::{
    Array, FailureLog, Finding, GrowError, Layout, Level, MemberState, OpenError, Opened, Options, Progress,
    RebuildOwner, Rebuilt, Repair, Scrubbed, Shape,
};
use shard::{Executor, Pause, Spawn};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Failed members, as the owner knows them after a crash.
#[derive(Default)]
pub(crate) struct Log {
    pub failed: RefCell<Vec<u16>>,
}

struct SharedLog(Rc<Log>);

impl FailureLog for SharedLog {
    fn record(&self, member: u16, _: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        let log = self.0.clone();
        Box::pin(async move {
            log.failed.borrow_mut().push(member);
            Ok(Stable::attest())
        })
    }
}

/// Rebuild owner without pauses.
pub(crate) struct Owner(pub Rc<Log>);

impl RebuildOwner for Owner {
    async fn pace(&mut self, _: Progress) {}

    async fn commit(&mut self, member: u16, _: Stable, _: &Rebuilt) -> Result<Stable, IoError> {
        self.0.failed.borrow_mut().retain(|&failed| failed != member);
        Ok(Stable::attest())
    }
}

/// Configuration of an array under test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub level: Level,
    pub members: usize,
    pub chunk_blocks: u64,
    pub stripes: u64,
    pub volatile: bool,
    pub atomic: bool,
    /// The owner accepts holes in the log.
    pub accepts_loss: bool,
    pub ring_blocks: u64,
    /// Blocks of each disk beyond the size for which the array is formatted.
    pub room: u64,
    /// One more disk, which the owner has recorded as the last member and may add.
    pub spare: bool,
    /// Memory for checksum pages, in bytes; little, so that pages are evicted and loaded again.
    pub page_bytes: usize,
    /// Writes are acknowledged from the log.
    pub behind: bool,
}

impl Plan {
    pub(crate) fn small(level: Level, members: usize, volatile: bool) -> Self {
        let stripes = match level {
            Level::Raid0 | Level::Raid1 => 6,
            _ => 4,
        };
        let (chunk_blocks, ring_blocks) = (1, 32);
        let (room, spare, page_bytes) = (0, false, 16 << 10);
        Self {
            level,
            members,
            chunk_blocks,
            stripes,
            volatile,
            atomic: true,
            accepts_loss: false,
            ring_blocks,
            room,
            spare,
            page_bytes,
            behind: volatile,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        let data = self.stripes * self.chunk_blocks;
        let pages = data.div_ceil(504);
        let start = (8 + self.ring_blocks + self.ring_blocks / 8 + 2 * pages).next_multiple_of(self.chunk_blocks);
        Shape {
            id: [7; 16],
            level: self.level,
            members: self.members,
            chunk_bytes: self.chunk_blocks as u32 * 4096,
            member_blocks: Blocks(start + data),
            ring_blocks: self.ring_blocks,
        }
    }

    /// Number of disks.
    pub(crate) fn disks(&self) -> usize {
        self.members + usize::from(self.spare)
    }

    pub(crate) fn disk_blocks(&self) -> u64 {
        self.shape().member_blocks.0 + self.room
    }
}

pub(crate) struct Bench {
    pub plan: Plan,
    pub rack: Rc<Rack>,
    pub array: Rc<Array<Disk>>,
    pub log: Rc<Log>,
    pub executor: Tasks,
    pub findings: Rc<RefCell<Vec<Finding>>>,
}

fn options(plan: &Plan, findings: &Rc<RefCell<Vec<Finding>>>, executor: &Executor, rack: &Rc<Rack>) -> Options {
    let (findings, executor) = (findings.clone(), executor.clone());
    let (spawn, rack): (Spawn, _) = (Rc::new(move |task| executor.spawn(task)), Rc::downgrade(rack));
    let pause: Pause = Rc::new(move |_| {
        let rack = rack.clone();
        Box::pin(async move {
            shard::yield_now().await;
            rack.upgrade().iter().for_each(|rack| rack.pass());
        })
    });
    Options {
        page_bytes: plan.page_bytes,
        blocks_are_atomic: plan.atomic,
        accept_log_loss: plan.accepts_loss,
        findings: Some(Rc::new(move |finding| findings.borrow_mut().push(finding))),
        spawn: plan.behind.then_some(spawn),
        pause: Some(pause),
    }
}

/// Executor of an array; its tasks end with it, because they hold the array, which holds the executor.
pub(crate) struct Tasks(Executor);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl std::ops::Deref for Tasks {
    type Target = Executor;
    fn deref(&self) -> &Executor {
        &self.0
    }
}

fn drive<T: 'static>(executor: &Executor, dice: &Dice, command: impl Future<Output = T> + 'static) -> Option<T> {
    let result = Rc::new(Cell::new(None));
    let tell = result.clone();
    executor.spawn(async move { tell.set(Some(command.await)) });
    while executor.run_one(|woken| dice.roll(woken as u64) as usize) {}
    result.take()
}

impl Bench {
    /// Formats an array on blank disks.
    pub(crate) fn format(plan: Plan, seed: u64) -> Self {
        let rack = Rack::new(Dice::new(seed));
        let shape = plan.shape();
        let mut disks: Vec<Disk> =
            (0..plan.disks()).map(|_| rack.add(plan.disk_blocks(), plan.volatile, Content::new())).collect();
        disks.truncate(plan.members);
        let (executor, log) = (Tasks(Executor::new(Box::new(|| {}))), Rc::new(Log::default()));
        let findings = Rc::default();
        let format = {
            let (log, options) = (Rc::new(SharedLog(log.clone())), options(&plan, &findings, &executor, &rack));
            async move { Array::format(&shape, disks, log, options).await }
        };
        let array = drive(&executor, &rack.dice, format).expect("it ends").expect("disks are well");
        Self { plan, rack, array: Rc::new(array), log, executor, findings }
    }

    /// Opens the array on these disks; members in `failed` are known to have failed, those in `lost` are missing.
    pub(crate) fn open(plan: Plan, rack: Rc<Rack>, failed: &[u16], lost: &[u16]) -> Result<(Self, Opened), OpenError> {
        let shape = Shape { members: plan.disks(), ..plan.shape() };
        Self::open_those(shape, plan, rack, failed, lost)
    }

    /// Opens the array on all disks, with this shape recorded by the owner.
    pub(crate) fn open_as(shape: &Shape, plan: Plan, rack: Rc<Rack>) -> Result<(Self, Opened), OpenError> {
        Self::open_those(*shape, plan, rack, &[], &[])
    }

    fn open_those(
        shape: Shape,
        plan: Plan,
        rack: Rc<Rack>,
        failed: &[u16],
        lost: &[u16],
    ) -> Result<(Self, Opened), OpenError> {
        let (executor, log) = (Tasks(Executor::new(Box::new(|| {}))), Rc::new(Log::default()));
        log.failed.borrow_mut().extend(failed);
        let findings = Rc::default();
        let is_there = |member: u16| !failed.contains(&member) && !lost.contains(&member);
        let disks = rack.disks.borrow().clone();
        let members = (0..).zip(disks).map(|(member, disk)| is_there(member).then_some(disk)).collect();
        let open = {
            let log = Rc::new(SharedLog(log.clone()));
            let options = options(&plan, &findings, &executor, &rack);
            async move { Array::open(&shape, members, log, options).await }
        };
        let (array, opened) = drive(&executor, &rack.dice, open).expect("it ends")?;
        Ok((Self { plan, rack, array: Rc::new(array), log, executor, findings }, opened))
    }

    /// Reopens the same disks, as after the daemon was killed while nothing was in flight.
    pub(crate) fn reopen(self) -> (Self, Opened) {
        let failed = self.log.failed.borrow().clone();
        let (plan, rack) = (self.plan, self.rack.clone());
        drop(self);
        Self::open(plan, rack, &failed, &[]).expect("nothing is lost")
    }

    pub(crate) fn disk(&self, member: u16) -> Disk {
        self.rack.disks.borrow()[usize::from(member)].clone()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.array.layout()
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.layout().blocks().0
    }

    pub(crate) fn state(&self, member: u16) -> MemberState {
        self.array.status().members[usize::from(member)].state
    }

    /// Starts a command; [`Bench::settle`] runs it.
    pub(crate) fn begin<T: 'static>(&self, command: impl Future<Output = T> + 'static) -> Rc<Cell<Option<T>>> {
        let result = Rc::new(Cell::new(None));
        let tell = result.clone();
        self.executor.spawn(async move { tell.set(Some(command.await)) });
        result
    }

    pub(crate) fn settle(&self) {
        while self.executor.run_one(|woken| self.rack.dice.roll(woken as u64) as usize) {}
    }

    pub(crate) fn run<T: 'static>(&self, command: impl Future<Output = T> + 'static) -> T {
        let result = self.begin(command);
        self.settle();
        result.take().expect("the command ends")
    }

    pub(crate) fn write(&self, start: u64, data: View) -> Result<Written, IoError> {
        let array = self.array.clone();
        self.run(async move { array.write(Lba(start), data).await })
    }

    pub(crate) fn write_unlogged(&self, start: u64, data: View) -> Result<Written, IoError> {
        let array = self.array.clone();
        self.run(async move { array.write_unlogged(Lba(start), data).await })
    }

    pub(crate) fn read(&self, extent: Extent) -> Result<Vec<u8>, IoError> {
        let array = self.array.clone();
        self.run(async move { array.read(extent).await }).map(|rope| rope.into_view().to_vec())
    }

    pub(crate) fn flush(&self) {
        let array = self.array.clone();
        let _ = self.run(async move { array.flush(Written::attest()).await }).expect("serving");
    }

    pub(crate) fn discard(&self, extent: Extent) {
        let array = self.array.clone();
        let _ = self.run(async move { array.discard(extent).await }).expect("serving");
    }

    pub(crate) fn close(&self) {
        let array = self.array.clone();
        let _ = self.run(async move { array.close().await }).expect("serving");
    }

    pub(crate) fn scrub(&self, repair: Repair) -> Scrubbed {
        let (array, stripes) = (self.array.clone(), self.layout().stripes());
        self.run(async move { array.scrub(0..stripes, repair, async |_| {}).await }).expect("serving")
    }

    /// Number of copies of pages and anchors that had to be rewritten.
    pub(crate) fn scrub_metadata(&self) -> u64 {
        let array = self.array.clone();
        self.run(async move { array.scrub_metadata(async |_| {}).await }).expect("serving").healed
    }

    pub(crate) fn checkpoint(&self) {
        let array = self.array.clone();
        let _ = self.run(async move { array.checkpoint().await }).expect("serving");
    }

    pub(crate) fn fail(&self, member: u16) {
        let array = self.array.clone();
        self.run(async move { array.fail(member).await }).expect("it is spared");
    }

    pub(crate) fn rebuild(&self, member: u16, stripes: Vec<std::ops::Range<u64>>) -> Rebuilt {
        let (array, log) = (self.array.clone(), self.log.clone());
        self.run(async move { array.rebuild(member, &stripes, &mut Owner(log)).await }).expect("the others are well")
    }

    /// Replaces a failed member by a blank disk and rebuilds it.
    pub(crate) fn replace(&self, member: u16) -> Rebuilt {
        let disk = self.rack.add(self.plan.disk_blocks(), self.plan.volatile, Content::new());
        let mut disks = self.rack.disks.borrow_mut();
        disks.pop();
        disks[usize::from(member)] = disk.clone();
        drop(disks);
        self.array.replace(member, disk).expect("the member has failed");
        self.rebuild(member, vec![0..self.layout().stripes()])
    }

    /// Adds the spare disk as the last member.
    pub(crate) fn add_member(&self) -> Result<u16, GrowError> {
        let (array, disk) = (self.array.clone(), self.disk(self.plan.members as u16));
        self.run(async move { array.add_member(disk).await })
    }

    /// Reshapes the array over all members.
    pub(crate) fn reshape(&self) -> Result<(), GrowError> {
        let array = self.array.clone();
        self.run(async move { array.reshape(async |_| {}).await })
    }

    pub(crate) fn grow(&self, member_blocks: u64) -> Result<Blocks, GrowError> {
        let array = self.array.clone();
        self.run(async move { array.grow(Blocks(member_blocks)).await })
    }

    /// First block of a member's data area on its disk.
    pub(crate) fn data(&self) -> u64 {
        self.plan.shape().area().expect("a valid shape").data.start.0
    }
}

/// True when a scrub found nothing.
pub(crate) fn is_clean(scrubbed: &Scrubbed) -> bool {
    (scrubbed.mismatches, scrubbed.unreadable, scrubbed.unknown, scrubbed.parity, scrubbed.lost) == (0, 0, 0, 0, 0)
}
