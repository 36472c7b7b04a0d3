//! A volume whose writes may be acknowledged before the device below has them.

use super::dirty::Dirty;
use super::memory::WriteMemory;
use crate::holds::Holds;
use crate::log::{Content, Hold, LogFailed, LogMember, WriteLog};
use crate::policy::WritePolicy;
use crate::sabotage::{Sabotage, is_planted};
use crate::{Finding, Findings, Layer, Runtime, VolumeId};
use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, try_join_all};
use shard::RangeLocks;
use shard::Signal;
use simd::crc32c::crc32c;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// A piece that waits has at most this many bytes, so that a small read checks a small guard.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// A volume with more pieces that are refused below takes no more.
const STUCK_MAX: usize = 64;

/// A sleeve over a device that acknowledges writes as its policy says. Cheap to clone.
pub struct WriteBack<D, R>(pub(super) Rc<Inner<D, R>>);

/// What a [`WriteBack`] holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounters {
    /// Bytes that wait to be written below.
    pub dirty_bytes: u64,
    /// Runs of blocks that were written below.
    pub moves: u64,
    /// Bytes that were written below.
    pub moved_bytes: u64,
    /// Pieces that the device below refuses or whose content is lost.
    pub stuck: u64,
}

pub(super) struct Inner<D, R> {
    pub(super) volume: VolumeId,
    pub(super) device: D,
    pub(super) runtime: R,
    pub(super) memory: WriteMemory,
    log: RefCell<Option<WriteLog>>,
    pub(super) findings: Findings,
    policy: Cell<WritePolicy>,
    /// Writes wait while the policy changes.
    closed: Cell<bool>,
    /// Writes and discards that have passed the gate and have not ended.
    active: Cell<usize>,
    pub(super) dirty: RefCell<Dirty>,
    /// Bytes of it that the shard's memory counts.
    counted: Cell<u64>,
    /// Held by whatever changes blocks of the device below while something waits above them.
    pub(super) below: RangeLocks,
    /// Writes that the log has and has not answered for; also those whose caller has gone.
    logging: RefCell<Vec<(Lba, usize)>>,
    /// One change of policy at a time.
    switching: RangeLocks,
    /// Something that a caller may wait for has happened.
    pub(super) changed: Signal,
    /// Everything up to this write shall go below now.
    pub(super) wanted_up_to: Cell<u64>,
    pub(super) running: Cell<bool>,
    pub(super) poked: Cell<bool>,
    pub(super) poke: Signal,
    pub(super) error: Cell<Option<IoError>>,
    pub(super) counters: Cell<WriteCounters>,
    holds: Holds,
}

impl<D, R> Clone for WriteBack<D, R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A write or discard that has passed the gate.
struct Active<'a, D, R>(&'a Inner<D, R>);

impl<D, R> Drop for Active<'_, D, R> {
    fn drop(&mut self) {
        assert!(self.0.active.get() > 0, "every write ends once");
        self.0.active.set(self.0.active.get() - 1);
        self.0.changed.raise();
    }
}

/// The gate is closed while this lives.
struct Closed<'a, D, R>(&'a Inner<D, R>);

impl<D, R> Drop for Closed<'_, D, R> {
    fn drop(&mut self) {
        assert!(self.0.closed.replace(false), "who opens the gate had closed it");
        self.0.changed.raise();
    }
}

impl<D: BlockDevice + 'static, R: Runtime> WriteBack<D, R> {
    /// The device, written through until another policy is set.
    pub fn new(
        volume: VolumeId,
        device: D,
        runtime: R,
        memory: &WriteMemory,
        log: Option<WriteLog>,
        findings: Findings,
    ) -> Self {
        let dirty = RefCell::new(Dirty::new(device.geometry().block_bytes));
        let inner = Rc::new(Inner {
            volume,
            device,
            runtime,
            memory: memory.clone(),
            log: RefCell::default(),
            findings,
            policy: Cell::new(WritePolicy::Through),
            closed: Cell::new(false),
            active: Cell::new(0),
            dirty,
            counted: Cell::new(0),
            below: RangeLocks::new(),
            logging: RefCell::default(),
            switching: RangeLocks::new(),
            changed: Signal::default(),
            wanted_up_to: Cell::new(0),
            running: Cell::new(false),
            poked: Cell::new(false),
            poke: Signal::default(),
            error: Cell::new(None),
            counters: Cell::default(),
            holds: Holds::default(),
        });
        inner.use_log(log);
        Self(inner)
    }

    /// The device below.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.0.device
    }

    /// The policy that is in force.
    #[must_use]
    pub fn policy(&self) -> WritePolicy {
        self.0.policy.get()
    }

    /// True when a write of some of the blocks waits for room.
    #[must_use]
    pub fn holds(&self, extent: Extent) -> bool {
        self.0.holds.holds(extent)
    }

    /// What waits, and what has been done.
    #[must_use]
    pub fn counters(&self) -> WriteCounters {
        let dirty = self.0.dirty.borrow();
        WriteCounters { dirty_bytes: dirty.bytes(), stuck: dirty.stuck() as u64, ..self.0.counters.get() }
    }

    /// The volume is written by `policy` from now on; everything acknowledged before is stable below.
    ///
    /// Writes go on meanwhile, but for the end of it. *Errors*: what the device below says; the policy is then
    /// what it was. Without a log, `Back` is `Unsupported`.
    pub async fn set_policy(&self, policy: WritePolicy) -> Result<(), IoError> {
        let inner = &*self.0;
        let _one = inner.switching.exclusive(0..1).await;
        let old = inner.policy.get();
        if old == policy {
            return Ok(());
        }
        if policy == WritePolicy::Back && inner.log().is_none_or(|log| log.has_failed()) {
            return Err(IoError::new(IoErrorKind::Unsupported, Extent::default()));
        }
        // Most of what waits goes below while writes go on, so that the gate is closed for a moment only.
        for _ in 0..2 {
            let newest = inner.dirty.borrow().newest();
            self.settle(newest).await?;
        }
        assert!(!inner.closed.replace(true), "a policy is changed by one at a time");
        let _closed = Closed(inner);
        let is_quiet = || inner.active.get() == 0 && inner.logging.borrow().is_empty();
        inner.changed.wait(|| is_quiet().then_some(())).await;
        self.settle(u64::MAX).await?;
        let _: Stable = inner.device.flush(Written::attest()).await?;
        if old == WritePolicy::Back && !is_planted(Sabotage::SwitchKeepsRecords) {
            self.release().await?;
        }
        assert!(inner.dirty.borrow().is_empty(), "a policy changes while nothing waits");
        inner.policy.set(policy);
        Ok(())
    }

    /// `WritePolicy::Back` acknowledges from `log` from now on; without one there is no such policy.
    ///
    /// *Panics*: while that is the policy.
    pub async fn set_log(&self, log: Option<WriteLog>) {
        let _one = self.0.switching.exclusive(0..1).await;
        assert!(self.0.policy.get() != WritePolicy::Back, "a log is changed while nothing goes into it");
        self.0.use_log(log);
    }

    /// What waits is thrown away, and nothing of the volume in the log counts any more: it is gone for good.
    ///
    /// *Shape*: nobody writes any more. *Durability*: stable, also where it was in the log.
    pub async fn throw_away(&self) {
        let inner = &*self.0;
        let _one = inner.switching.exclusive(0..1).await;
        inner.changed.wait(|| (inner.active.get() == 0 && inner.logging.borrow().is_empty()).then_some(())).await;
        inner.dirty.borrow_mut().clear();
        inner.account();
        inner.memory.look_again();
        inner.changed.raise();
        Inner::wake(&self.0);
        // A log that fails meanwhile is never replayed, which is as good.
        let _: Result<(), IoError> = self.release().await;
        inner.policy.set(WritePolicy::Through);
    }

    /// Nothing of the volume in the log counts any more, which is stable.
    async fn release(&self) -> Result<(), IoError> {
        let Some(log) = self.0.log() else { return Ok(()) };
        // The records of a log that failed are void already: its owner has recorded that.
        match log.append(self.0.volume, Content::Release).await {
            Ok(_) => Ok(()),
            Err(LogFailed) => log.failure_recorded().await,
        }
    }

    /// Everything up to the write `number` is below.
    async fn settle(&self, number: u64) -> Result<(), IoError> {
        let inner = &self.0;
        if inner.is_settled(number) {
            return Ok(());
        }
        inner.dirty.borrow_mut().unstick();
        inner.account();
        inner.error.set(None);
        inner.wanted_up_to.set(inner.wanted_up_to.get().max(number.min(inner.dirty.borrow().newest())));
        Inner::wake(inner);
        let look = || {
            if inner.is_settled(number) {
                return Some(Ok(()));
            }
            let stuck = inner.dirty.borrow().stuck_up_to(number)?;
            Some(Err(inner.error.get().unwrap_or(IoError::new(IoErrorKind::Medium, stuck)).at(stuck)))
        };
        inner.changed.wait(look).await
    }

    /// Waits for the gate and passes it.
    async fn pass(&self) -> Active<'_, D, R> {
        let inner = &*self.0;
        let gate = || {
            (!inner.closed.get()).then(|| {
                inner.active.set(inner.active.get() + 1);
                Active(inner)
            })
        };
        inner.changed.wait(gate).await
    }

    /// Takes memory for a write of `extent`.
    async fn admit(&self, extent: Extent, bytes: u64) -> Result<(), IoError> {
        let inner = &*self.0;
        let log = inner.log();
        let log_fill = || match (&log, inner.policy.get()) {
            (Some(log), WritePolicy::Back) => log.fill(),
            _ => 0,
        };
        let refusal = || {
            // A bad block is its own affair; a device that refuses everything must not fill the memory.
            let stuck = inner.dirty.borrow().stuck();
            let all = |error: &IoError| stuck > STUCK_MAX || (stuck > 0 && error.kind != IoErrorKind::Medium);
            inner.error.get().filter(all).map(|error| error.at(extent))
        };
        let lose = || {
            if is_planted(Sabotage::DirtyEvicted) && inner.dirty.borrow_mut().lose_one() {
                inner.account();
            }
        };
        let taking = inner.memory.take(&inner.runtime, bytes, log_fill, refusal, lose);
        inner.holds.pass(extent, taking).await
    }

    /// Writes past what acknowledges, perhaps a log that failed: what waits above the blocks goes below first.
    async fn write_past(&self, start: Lba, data: View, atomic: bool) -> Result<Written, IoError> {
        let inner = &*self.0;
        if let Some(log) = inner.log().filter(|_| inner.policy.get() == WritePolicy::Back) {
            log.failure_recorded().await?;
        }
        let extent = inner.device.geometry().extent_of(start, data.len())?;
        self.clear_above(extent).await?;
        match atomic {
            true => inner.device.write_atomic(start, data).await,
            false => inner.device.write(start, data).await,
        }
    }

    /// Nothing that came before waits above `extent`.
    async fn clear_above(&self, extent: Extent) -> Result<(), IoError> {
        let newest = self.0.dirty.borrow().newest();
        if self.0.dirty.borrow().overlaps(extent, newest) { self.settle(newest).await } else { Ok(()) }
    }

    async fn write_back(&self, start: Lba, data: View, logged: bool, atomic: bool) -> Result<Written, IoError> {
        let inner = &self.0;
        let extent = inner.device.geometry().extent_of(start, data.len())?;
        let bytes = data.len() as u64;
        self.admit(extent, bytes).await?;
        let Some(log) = inner.log().filter(|_| logged) else {
            inner.accept_pieces(start, &data, None);
            return Ok(Written::attest());
        };
        // From here on the log has the data, and gives it to us when it is stable, even if this future is dropped.
        let block_bytes = inner.device.geometry().block_bytes as usize;
        let step = log.record_bytes_max();
        let records = (0..data.len()).step_by(step).map(|at| {
            let (start, end) = (Lba(start.0 + (at / block_bytes) as u64), data.len().min(at + step));
            inner.append(&log, start, data.slice(at..end))
        });
        match try_join_all(records).await {
            Ok(_) => Ok(Written::attest()),
            Err(_) => self.write_past(start, data, atomic).await,
        }
    }

    /// Flips a bit of what waits at `block`, as bad memory would; false when nothing begins there.
    #[cfg(test)]
    pub(crate) fn flip_bit(&self, block: Lba) -> bool {
        self.0.dirty.borrow_mut().flip_bit(block.0)
    }
}

impl<D, R> Inner<D, R> {
    pub(super) fn log(&self) -> Option<WriteLog> {
        self.log.borrow().clone()
    }

    /// True when nothing up to the write `number` waits.
    pub(super) fn is_settled(&self, number: u64) -> bool {
        let dirty = self.dirty.borrow();
        dirty.oldest().is_none_or(|oldest| oldest > number)
            || (is_planted(Sabotage::FlushForgetsOverwritten) && dirty.is_newer_than(number))
    }

    /// True when a flush must wait for what is in memory.
    fn is_volatile(&self) -> bool {
        let failed = self.log.borrow().as_ref().is_none_or(WriteLog::has_failed);
        match self.policy.get() {
            WritePolicy::Through => false,
            WritePolicy::Back => failed,
            WritePolicy::BackVolatile => true,
        }
    }
}

impl<D: BlockDevice + 'static, R: Runtime> Inner<D, R> {
    /// Writes can go into `log` from now on, which knows to whom it answers.
    fn use_log(self: &Rc<Self>, log: Option<WriteLog>) {
        if let Some(log) = &log {
            let member: Weak<dyn LogMember> = Rc::downgrade(&(self.clone() as Rc<dyn LogMember>));
            log.register(self.volume, member);
        }
        *self.log.borrow_mut() = log;
    }

    /// `data`, for which memory was taken, waits from now on.
    fn accept_pieces(self: &Rc<Self>, start: Lba, data: &View, hold: Option<&Hold>) {
        let now = self.runtime.now();
        let block_bytes = self.device.geometry().block_bytes as usize;
        for at in (0..data.len()).step_by(PIECE_BYTES_MAX) {
            let piece = data.slice(at..data.len().min(at + PIECE_BYTES_MAX));
            let guard = crc32c(&piece);
            let block = start.0 + (at / block_bytes) as u64;
            self.dirty.borrow_mut().insert(block, piece, guard, now, hold.cloned());
        }
        self.account();
        self.memory.give(data.len() as u64);
        Self::stir(self);
    }

    /// Puts `data`, for which memory was taken, into the log.
    pub(super) fn append(
        &self,
        log: &WriteLog,
        start: Lba,
        data: View,
    ) -> impl Future<Output = Result<Option<Hold>, LogFailed>> + use<D, R> {
        assert!(data.len() <= log.record_bytes_max(), "a record fits into a batch");
        self.logging.borrow_mut().push((start, data.len()));
        let (log, volume) = (log.clone(), self.volume);
        async move { log.append(volume, Content::Write { start, data }).await }
    }

    /// The shard's memory counts what waits now.
    pub(super) fn account(&self) {
        let waiting = self.dirty.borrow().moving_bytes();
        self.memory.adjust(self.counted.replace(waiting), waiting);
    }

    /// The log has answered for a write.
    fn answered(&self, start: Lba, bytes: usize) {
        let mut logging = self.logging.borrow_mut();
        let at = logging.iter().position(|&known| known == (start, bytes));
        logging.swap_remove(at.expect("a write is answered for once"));
        drop(logging);
        self.changed.raise();
    }

    /// True when a write of some of `extent` is on its way into the log.
    pub(super) fn is_logging(&self, extent: Extent) -> bool {
        let block_bytes = u64::from(self.device.geometry().block_bytes);
        let of = |&(start, bytes): &(Lba, usize)| Extent::new(start.0, bytes as u64 / block_bytes);
        self.logging.borrow().iter().any(|write| of(write).overlaps(extent))
    }

    /// The parts of `extent` that wait, and what they hold, in order.
    fn waiting(&self, extent: Extent) -> Result<Vec<(Extent, View)>, IoError> {
        let dirty = self.dirty.borrow();
        let block_bytes = self.device.geometry().block_bytes as usize;
        let mut parts = Vec::new();
        for (start, piece) in dirty.over(extent) {
            let whole = Extent::new(start, (piece.data.len() / block_bytes) as u64);
            let part = whole.intersection(extent);
            if piece.bad || crc32c(&piece.data) != piece.guard {
                let finding = Finding { layer: Layer::WriteCache, volume: self.volume, extent: whole, healed: false };
                self.findings.report(finding);
                return Err(IoError::new(IoErrorKind::Medium, part));
            }
            let from = (part.start - whole.start).0 as usize * block_bytes;
            parts.push((part, piece.data.slice(from..from + part.len.0 as usize * block_bytes)));
        }
        Ok(parts)
    }
}

impl<D: BlockDevice + 'static, R: Runtime> BlockDevice for WriteBack<D, R> {
    fn geometry(&self) -> Geometry {
        let below = self.0.device.geometry();
        let volatile_cache = match self.0.policy.get() {
            WritePolicy::BackVolatile => true,
            WritePolicy::Back if !self.0.is_volatile() => false,
            _ => below.volatile_cache,
        };
        Geometry { volatile_cache, ..below }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let inner = &*self.0;
        if inner.dirty.borrow().is_empty() {
            return inner.device.read(extent).await;
        }
        inner.device.geometry().admit(extent)?;
        let mut rope = Rope::new();
        let mut at = extent.start;
        // What lies between is read below by itself: an error under a block that waits is nobody's.
        for (part, data) in inner.waiting(extent)? {
            if at < part.start {
                rope.append(inner.device.read(Extent { start: at, len: part.start - at }).await?);
            }
            rope.push(data);
            at = part.end();
        }
        if at < extent.end() {
            rope.append(inner.device.read(Extent { start: at, len: extent.end() - at }).await?);
        }
        let bytes = extent.len.bytes(inner.device.geometry().block_bytes);
        assert_eq!(rope.len() as u64, bytes, "what waits and what lies below are all of a read");
        Ok(rope)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let _active = self.pass().await;
        match self.0.policy.get() {
            WritePolicy::Through => self.0.device.write(start, data).await,
            WritePolicy::Back if self.0.is_volatile() => self.write_past(start, data, false).await,
            WritePolicy::Back => self.write_back(start, data, true, false).await,
            WritePolicy::BackVolatile => self.write_back(start, data, false, false).await,
        }
    }

    /// A record of the log is there after a crash or not, and is replayed until all of it is below; without a log the
    /// device below makes it whole.
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        if data.len() > self.atomic_bytes_max() as usize {
            let extent = self.0.device.geometry().extent_of(start, data.len())?;
            return Err(IoError::new(IoErrorKind::Unsupported, extent));
        }
        let _active = self.pass().await;
        match self.0.policy.get() {
            WritePolicy::Through => self.0.device.write_atomic(start, data).await,
            WritePolicy::Back if !self.0.is_volatile() => self.write_back(start, data, true, true).await,
            WritePolicy::Back | WritePolicy::BackVolatile => self.write_past(start, data, true).await,
        }
    }

    fn atomic_bytes_max(&self) -> u32 {
        let below = self.0.device.atomic_bytes_max();
        let record = self.0.log().map_or(usize::MAX, |log| log.record_bytes_max());
        below.min(u32::try_from(record).unwrap_or(u32::MAX))
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        {
            let _active = self.pass().await;
            if self.0.policy.get() == WritePolicy::Through {
                return self.0.device.write_fresh(start, data).await;
            }
        }
        self.write(start, data).await
    }

    /// Everything written before this call survives power loss; what waits in memory is written below first,
    /// what the log has is stable already.
    ///
    /// *Errors*: as of any device; also for blocks that the device below refuses or whose content was lost in
    /// memory, at each flush until they are written over.
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        let inner = &self.0;
        if inner.policy.get() == WritePolicy::Back && !inner.is_volatile() {
            return Ok(Stable::attest());
        }
        let newest = inner.dirty.borrow().newest();
        self.settle(newest).await?;
        if is_planted(Sabotage::FlushNotPassedOn) {
            return Ok(Stable::attest());
        }
        inner.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let inner = &*self.0;
        inner.device.geometry().admit(extent)?;
        let _active = self.pass().await;
        if inner.policy.get() == WritePolicy::Through {
            return inner.device.discard(extent).await;
        }
        // What the log has before the discard must be below before it, or a replay would undo what readers have seen. What
        // comes from here on is in the log, and goes below, behind the discard.
        let _lock = loop {
            // A write whose caller has gone may still be on its way into the log.
            inner.changed.wait(|| (!inner.is_logging(extent)).then_some(())).await;
            self.clear_above(extent).await?;
            let lock = inner.below.exclusive(extent.start.0..extent.end().0).await;
            let is_clear = !inner.is_logging(extent) && !inner.dirty.borrow().overlaps(extent, u64::MAX);
            if is_clear || is_planted(Sabotage::DiscardOvertaken) {
                break lock;
            }
        };
        let mut _hold = None;
        if inner.policy.get() == WritePolicy::Back
            && let Some(log) = inner.log()
        {
            // Without its own record the discard would be undone by the replay of older ones.
            match log.append(inner.volume, Content::Discard { extent }).await {
                Ok(hold) => _hold = hold,
                Err(_) => log.failure_recorded().await?,
            }
        }
        inner.device.discard(extent).await
    }
}

impl<D: BlockDevice + 'static, R: Runtime> LogMember for Inner<D, R> {
    fn accept(self: Rc<Self>, start: Lba, data: View, hold: Hold) {
        self.answered(start, data.len());
        self.accept_pieces(start, &data, Some(&hold));
    }

    fn refuse(self: Rc<Self>, start: Lba, bytes: usize) {
        self.answered(start, bytes);
        self.memory.give(bytes as u64);
    }

    fn log_failed(self: Rc<Self>) {
        self.wanted_up_to.set(u64::MAX);
        Self::wake(&self);
    }

    fn settled(self: Rc<Self>) -> LocalBoxFuture<'static, Result<(), IoError>> {
        let newest = self.dirty.borrow().newest();
        async move { WriteBack(self).settle(newest).await }.boxed_local()
    }

    fn flush_below(self: Rc<Self>) -> LocalBoxFuture<'static, Result<Stable, IoError>> {
        async move { self.device.flush(Written::attest()).await }.boxed_local()
    }
}
