//! Write-back layer of a volume: acknowledges writes as the policy says, and keeps dirty data until it is destaged.

mod device;

use super::dirty::Dirty;
use super::memory::WriteMemory;
use crate::bug_injection::{InjectedBug, is_injected};
use crate::log::{Content, LogFailed, LogMember, RecordRef, WriteLog};
use crate::policy::WritePolicy;
use crate::stalls::Stalls;
use crate::{Finding, Findings, Layer, Runtime, VolumeId};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Stable, View, Written};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, try_join_all};
use shard::RangeLocks;
use shard::Signal;
use simd::crc32c::crc32c;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Upper bound of a dirty piece, in bytes: a small read then verifies a small checksum.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Number of pieces refused by the device above which a volume refuses writes.
const REFUSED_MAX: usize = 64;

/// Layer over a device that acknowledges writes as its policy says. Cheap to clone.
pub struct WriteBack<D, R>(pub(super) Rc<Inner<D, R>>);

/// State and counters of a [`WriteBack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounters {
    /// Dirty bytes: data to be written below.
    pub dirty_bytes: u64,
    /// Destage writes: runs of blocks written below.
    pub destages: u64,
    /// Bytes written below.
    pub destaged_bytes: u64,
    /// Pieces that the device below refuses, or whose content was corrupted in memory.
    pub refused: u64,
}

pub(super) struct Inner<D, R> {
    pub(super) volume: VolumeId,
    pub(super) device: D,
    pub(super) runtime: R,
    pub(super) memory: WriteMemory,
    log: RefCell<Option<WriteLog>>,
    pub(super) findings: Findings,
    policy: Cell<WritePolicy>,
    /// True while a change of policy holds writes back.
    closed: Cell<bool>,
    /// Writes and discards in flight, past the gate.
    active: Cell<usize>,
    pub(super) dirty: RefCell<Dirty>,
    /// Dirty bytes that are counted in the shard's memory budget.
    counted: Cell<u64>,
    /// Held by every change of blocks on the device below while they have dirty data.
    pub(super) below: RangeLocks,
    /// Writes in flight into the log, also those whose caller was dropped.
    logging: RefCell<Vec<(Lba, usize)>>,
    /// Serializes changes of policy.
    switching: RangeLocks,
    /// Raised when a condition that a caller may wait for has changed.
    pub(super) changed: Signal,
    /// Destage everything up to this write now.
    pub(super) wanted_up_to: Cell<u64>,
    pub(super) running: Cell<bool>,
    pub(super) wake_pending: Cell<bool>,
    pub(super) wake_signal: Signal,
    pub(super) error: Cell<Option<IoError>>,
    pub(super) counters: Cell<WriteCounters>,
    stalls: Stalls,
}

impl<D, R> Clone for WriteBack<D, R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Write or discard in flight, past the gate.
struct Active<'a, D, R>(&'a Inner<D, R>);

impl<D, R> Drop for Active<'_, D, R> {
    fn drop(&mut self) {
        assert!(self.0.active.get() > 0, "every write ends once");
        self.0.active.set(self.0.active.get() - 1);
        self.0.changed.raise();
    }
}

/// Keeps the gate closed; opened on drop.
struct Closed<'a, D, R>(&'a Inner<D, R>);

impl<D, R> Drop for Closed<'_, D, R> {
    fn drop(&mut self) {
        assert!(self.0.closed.replace(false), "who opens the gate had closed it");
        self.0.changed.raise();
    }
}

impl<D: BlockDevice + 'static, R: Runtime> WriteBack<D, R> {
    /// Wraps the device; writes go through until another policy is set.
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
            wake_pending: Cell::new(false),
            wake_signal: Signal::default(),
            error: Cell::new(None),
            counters: Cell::default(),
            stalls: Stalls::default(),
        });
        inner.use_log(log);
        Self(inner)
    }

    /// Device below.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.0.device
    }

    /// Policy in force.
    #[must_use]
    pub fn policy(&self) -> WritePolicy {
        self.0.policy.get()
    }

    /// True when a write of some of these blocks waits for memory or log space.
    #[must_use]
    pub fn is_stalled(&self, extent: Extent) -> bool {
        self.0.stalls.contains(extent)
    }

    /// Amount of dirty data, and counters.
    #[must_use]
    pub fn counters(&self) -> WriteCounters {
        let dirty = self.0.dirty.borrow();
        WriteCounters { dirty_bytes: dirty.bytes(), refused: dirty.refused() as u64, ..self.0.counters.get() }
    }

    /// Changes the policy, after everything acknowledged so far is stable below.
    ///
    /// Writes continue meanwhile, except at the very end. *Errors*: those of the device below; the policy then stays
    /// as it was. `Unsupported` for `Back` without a working log.
    pub async fn set_policy(&self, policy: WritePolicy) -> Result<(), IoError> {
        let inner = &*self.0;
        // Serialized: each change waits until the volume is quiet, and relies on the policy that it has read.
        let _one = inner.switching.exclusive(0..1).await;
        let old = inner.policy.get();
        if old == policy {
            return Ok(());
        }
        // Refused rather than silently downgraded: the operator asked for durable acknowledgement.
        if policy == WritePolicy::Back && inner.log().is_none_or(|log| log.has_failed()) {
            return Err(IoError::new(IoErrorKind::Unsupported, Extent::default()));
        }
        // Destages most of the data while writes continue, so that the gate is closed only briefly.
        for _ in 0..2 {
            let newest = inner.dirty.borrow().newest();
            self.settle(newest).await?;
        }
        assert!(!inner.closed.replace(true), "a policy is changed by one at a time");
        let _closed = Closed(inner);
        let is_quiet = || inner.active.get() == 0 && inner.logging.borrow().is_empty();
        // Also writes whose caller was dropped: the log still hands them over.
        inner.changed.wait(|| is_quiet().then_some(())).await;
        self.settle(u64::MAX).await?;
        // Stable below before the release makes the log's copy void.
        let _: Stable = inner.device.flush(Written::attest()).await?;
        if old == WritePolicy::Back && !is_injected(InjectedBug::SwitchKeepsRecords) {
            self.release().await?;
        }
        assert!(inner.dirty.borrow().is_empty(), "a policy changes while nothing waits");
        inner.policy.set(policy);
        Ok(())
    }

    /// Changes the log that `WritePolicy::Back` acknowledges from; `None` makes that policy unavailable.
    ///
    /// *Panics*: while that policy is in force.
    pub async fn set_log(&self, log: Option<WriteLog>) {
        let _one = self.0.switching.exclusive(0..1).await;
        assert!(self.0.policy.get() != WritePolicy::Back, "a log is changed while nothing goes into it");
        self.0.use_log(log);
    }

    /// Discards all dirty data, and invalidates the volume's records in the log: the volume is being deleted.
    ///
    /// *Shape*: no writes are in flight. *Durability*: stable, also in the log.
    pub async fn discard_dirty(&self) {
        let inner = &*self.0;
        let _one = inner.switching.exclusive(0..1).await;
        inner.changed.wait(|| (inner.active.get() == 0 && inner.logging.borrow().is_empty()).then_some(())).await;
        // Pieces in flight below are dropped from the map, too; their result is ignored.
        inner.dirty.borrow_mut().clear();
        inner.account();
        // Writers of any volume may be waiting for this memory.
        inner.memory.look_again();
        inner.changed.raise();
        Inner::wake(&self.0);
        // A log that fails here is never replayed, which has the same effect.
        let _: Result<(), IoError> = self.release().await;
        inner.policy.set(WritePolicy::Through);
    }

    /// Invalidates the volume's records in the log; stable when it returns.
    async fn release(&self) -> Result<(), IoError> {
        let Some(log) = self.0.log() else { return Ok(()) };
        // The records of a failed log are void already: its owner has recorded that.
        match log.append(self.0.volume, Content::Release).await {
            Ok(_) => Ok(()),
            Err(LogFailed) => log.failure_recorded().await,
        }
    }

    /// Waits until everything up to write `number` is written below.
    async fn settle(&self, number: u64) -> Result<(), IoError> {
        let inner = &self.0;
        if inner.is_settled(number) {
            return Ok(());
        }
        // Pieces that were refused before are tried again, so that a flush reports the current state.
        inner.dirty.borrow_mut().retry_refused();
        inner.account();
        inner.error.set(None);
        // Never lowered: an earlier flush may still wait for its writes.
        // At most the newest write: those to come are destaged when they are due.
        inner.wanted_up_to.set(inner.wanted_up_to.get().max(number.min(inner.dirty.borrow().newest())));
        Inner::wake(inner);
        let look = || {
            if inner.is_settled(number) {
                return Some(Ok(()));
            }
            let refused = inner.dirty.borrow().refused_up_to(number)?;
            Some(Err(inner.error.get().unwrap_or(IoError::new(IoErrorKind::Medium, refused)).at(refused)))
        };
        inner.changed.wait(look).await
    }

    /// Waits until the gate is open, and passes it.
    async fn pass(&self) -> Active<'_, D, R> {
        let inner = &*self.0;
        let gate = || {
            (!inner.closed.get()).then(|| {
                // In the same poll as the check of the gate, so that a closing gate sees this write.
                inner.active.set(inner.active.get() + 1);
                Active(inner)
            })
        };
        inner.changed.wait(gate).await
    }

    /// Takes memory for a write of `extent`, waiting for it if necessary.
    async fn admit(&self, extent: Extent, bytes: u64) -> Result<(), IoError> {
        let inner = &*self.0;
        let log = inner.log();
        let log_fill = || match (&log, inner.policy.get()) {
            (Some(log), WritePolicy::Back) => log.fill(),
            _ => 0,
        };
        let refusal = || {
            // A bad block fails only its own flushes; a device that refuses everything must not fill the memory.
            let refused = inner.dirty.borrow().refused();
            let all = |error: &IoError| refused > REFUSED_MAX || (refused > 0 && error.kind != IoErrorKind::Medium);
            inner.error.get().filter(all).map(|error| error.at(extent))
        };
        let lose = || {
            if is_injected(InjectedBug::DirtyEvicted) && inner.dirty.borrow_mut().lose_one() {
                inner.account();
            }
        };
        // Counted as waiting only while it actually waits.
        let taking = inner.memory.take(&inner.runtime, bytes, log_fill, refusal, lose);
        inner.stalls.track(extent, taking).await
    }

    /// Writes to the device directly, for instance after the log failed; older dirty data of these blocks is destaged
    /// first.
    async fn write_past(&self, start: Lba, data: View, atomic: bool) -> Result<Written, IoError> {
        let inner = &*self.0;
        if let Some(log) = inner.log().filter(|_| inner.policy.get() == WritePolicy::Back) {
            // Until the failure is recorded, a crash would replay the log over this write.
            log.failure_recorded().await?;
        }
        let extent = inner.device.geometry().extent_of(start, data.len())?;
        self.clear_above(extent).await?;
        match atomic {
            true => inner.device.write_atomic(start, data).await,
            false => inner.device.write(start, data).await,
        }
    }

    /// Waits until no older dirty data overlaps `extent`.
    async fn clear_above(&self, extent: Extent) -> Result<(), IoError> {
        let newest = self.0.dirty.borrow().newest();
        // Everything older is settled, not only the overlapping pieces: simple, and rare.
        if self.0.dirty.borrow().overlaps(extent, newest) { self.settle(newest).await } else { Ok(()) }
    }

    async fn write_back(&self, start: Lba, data: View, logged: bool, atomic: bool) -> Result<Written, IoError> {
        let inner = &self.0;
        let extent = inner.device.geometry().extent_of(start, data.len())?;
        let bytes = data.len() as u64;
        // Memory first: a record that is stable in the log is handed over, and must have its place then.
        self.admit(extent, bytes).await?;
        let Some(log) = inner.log().filter(|_| logged) else {
            // Acknowledged from memory: the volume reports a volatile cache, and a flush makes it durable.
            inner.accept_pieces(start, &data, None);
            return Ok(Written::attest());
        };
        // From here on the log hands over the data once it is stable, even if this future is dropped.
        let block_bytes = inner.device.geometry().block_bytes as usize;
        // A write larger than a record is logged as several, which a crash may keep in part, as on any device.
        let step = log.record_bytes_max();
        let records = (0..data.len()).step_by(step).map(|at| {
            let (start, end) = (Lba(start.0 + (at / block_bytes) as u64), data.len().min(at + step));
            inner.append(&log, start, data.slice(at..end))
        });
        // Every record must be stable: the caller is answered for the whole write.
        match try_join_all(records).await {
            Ok(_) => Ok(Written::attest()),
            // Some records may be in the failed log. That does no harm: it is never replayed.
            Err(_) => self.write_past(start, data, atomic).await,
        }
    }

    /// Flips a bit of the dirty data at `block`, as faulty memory would; false when no piece starts there.
    #[cfg(test)]
    pub(crate) fn flip_bit(&self, block: Lba) -> bool {
        self.0.dirty.borrow_mut().flip_bit(block.0)
    }
}

impl<D, R> Inner<D, R> {
    pub(super) fn log(&self) -> Option<WriteLog> {
        self.log.borrow().clone()
    }

    /// True when nothing up to write `number` is dirty.
    pub(super) fn is_settled(&self, number: u64) -> bool {
        let dirty = self.dirty.borrow();
        dirty.oldest().is_none_or(|oldest| oldest > number)
            || (is_injected(InjectedBug::FlushForgetsOverwritten) && dirty.is_newer_than(number))
    }

    /// True when a flush must wait for dirty data.
    fn is_volatile(&self) -> bool {
        // With a failed log new writes go through, but older dirty data is in memory only.
        let failed = self.log.borrow().as_ref().is_none_or(WriteLog::has_failed);
        match self.policy.get() {
            WritePolicy::Through => false,
            WritePolicy::Back => failed,
            WritePolicy::BackVolatile => true,
        }
    }
}

impl<D: BlockDevice + 'static, R: Runtime> Inner<D, R> {
    /// Sets the log and registers this volume with it.
    fn use_log(self: &Rc<Self>, log: Option<WriteLog>) {
        if let Some(log) = &log {
            let member: Weak<dyn LogMember> = Rc::downgrade(&(self.clone() as Rc<dyn LogMember>));
            log.register(self.volume, member);
        }
        *self.log.borrow_mut() = log;
    }

    /// Adds `data`, for which memory was taken, to the dirty data.
    fn accept_pieces(self: &Rc<Self>, start: Lba, data: &View, record_ref: Option<&RecordRef>) {
        let now = self.runtime.now();
        let block_bytes = self.device.geometry().block_bytes as usize;
        for at in (0..data.len()).step_by(PIECE_BYTES_MAX) {
            let piece = data.slice(at..data.len().min(at + PIECE_BYTES_MAX));
            // Computed once on arrival; verified before every use of the piece.
            let guard = crc32c(&piece);
            let block = start.0 + (at / block_bytes) as u64;
            self.dirty.borrow_mut().insert(block, piece, guard, now, record_ref.cloned());
        }
        // The budget now counts it as dirty data and no longer as taken.
        self.account();
        self.memory.give(data.len() as u64);
        Self::wake_if_full(self);
    }

    /// Appends `data`, for which memory was taken, to the log.
    pub(super) fn append(
        &self,
        log: &WriteLog,
        start: Lba,
        data: View,
    ) -> impl Future<Output = Result<Option<RecordRef>, LogFailed>> + use<D, R> {
        assert!(data.len() <= log.record_bytes_max(), "a record fits into a batch");
        // Until the log answers, discards and record renewals of these blocks must wait.
        self.logging.borrow_mut().push((start, data.len()));
        let (log, volume) = (log.clone(), self.volume);
        async move { log.append(volume, Content::Write { start, data }).await }
    }

    /// Updates the shard's memory budget to the current amount of dirty data.
    pub(super) fn account(&self) {
        let waiting = self.dirty.borrow().destageable_bytes();
        self.memory.adjust(self.counted.replace(waiting), waiting);
    }

    /// Removes a write from those in flight into the log.
    fn answered(&self, start: Lba, bytes: usize) {
        let mut logging = self.logging.borrow_mut();
        // Equal writes may be in flight at once. Their entries are equal, too, so either one may go.
        let at = logging.iter().position(|&known| known == (start, bytes));
        logging.swap_remove(at.expect("a write is answered for once"));
        drop(logging);
        self.changed.raise();
    }

    /// True when a write overlapping `extent` is in flight into the log.
    pub(super) fn is_logging(&self, extent: Extent) -> bool {
        let block_bytes = u64::from(self.device.geometry().block_bytes);
        let of = |&(start, bytes): &(Lba, usize)| Extent::new(start.0, bytes as u64 / block_bytes);
        self.logging.borrow().iter().any(|write| of(write).overlaps(extent))
    }

    /// Returns the dirty parts of `extent` with their content, in order.
    fn waiting(&self, extent: Extent) -> Result<Vec<(Extent, View)>, IoError> {
        let dirty = self.dirty.borrow();
        let block_bytes = self.device.geometry().block_bytes as usize;
        let mut parts = Vec::new();
        for (start, piece) in dirty.over(extent) {
            let whole = Extent::new(start, (piece.data.len() / block_bytes) as u64);
            let part = whole.intersection(extent);
            // Corrupted in memory: the content below is older, so there is nothing correct to return.
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

impl<D: BlockDevice + 'static, R: Runtime> LogMember for Inner<D, R> {
    fn accept(self: Rc<Self>, start: Lba, data: View, record_ref: RecordRef) {
        self.answered(start, data.len());
        self.accept_pieces(start, &data, Some(&record_ref));
    }

    fn refuse(self: Rc<Self>, start: Lba, bytes: usize) {
        self.answered(start, bytes);
        self.memory.give(bytes as u64);
    }

    fn log_failed(self: Rc<Self>) {
        // The log cannot protect the data any more, so all of it is destaged at once.
        self.wanted_up_to.set(u64::MAX);
        Self::wake(&self);
    }

    fn destage_all(self: Rc<Self>) -> LocalBoxFuture<'static, Result<(), IoError>> {
        // Taken when it is called: writes that come later go past the failed log.
        let newest = self.dirty.borrow().newest();
        async move { WriteBack(self).settle(newest).await }.boxed_local()
    }

    fn flush_below(self: Rc<Self>) -> LocalBoxFuture<'static, Result<Stable, IoError>> {
        async move { self.device.flush(Written::attest()).await }.boxed_local()
    }
}
