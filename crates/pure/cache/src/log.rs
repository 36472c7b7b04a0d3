//! Write log: acknowledged writes in their order of arrival, stable on a device of their own until the volumes'
//! devices have them.
//!
//! `commit` writes batches, `trim` frees ring space, `replay` recovers after a crash, `format` is the byte layout.
//! Called by `WriteBack` for volumes with [`WritePolicy::Back`](crate::WritePolicy::Back). It must never reuse ring
//! space before the data in it is stable below.

mod commit;
mod format;
mod replay;
#[cfg(test)]
mod tests;
mod trim;

pub use format::{LogError, LogId};
pub use replay::{Recovery, Replayed};

use crate::VolumeId;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Stable, View};
use futures_util::future::LocalBoxFuture;
use shard::Signal;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

/// Unit of the log in bytes: everything in it starts at a multiple.
pub(crate) const UNIT_BYTES: usize = 4096;

/// Owner of a log: the pool's catalog, which outlives the log device.
pub trait LogOwner {
    /// Records durably that the log is never replayed again, and that `volumes` hold acknowledged data in memory
    /// only. After a power cut before [`LogOwner::all_destaged`] they are reported as having lost it.
    fn abandon(&self, error: IoError, volumes: Vec<VolumeId>) -> LocalBoxFuture<'static, Result<Stable, IoError>>;

    /// Notes that everything that was in the log is stable on the volumes' own devices.
    fn all_destaged(&self) -> LocalBoxFuture<'static, ()>;
}

/// Volume as the log sees it.
pub(crate) trait LogMember {
    /// Takes over a write that is stable in the log as dirty data. Called in the order of the log.
    fn accept(self: Rc<Self>, start: Lba, data: View, record_ref: RecordRef);
    /// Gives up a write of `bytes` bytes that will not be in the log.
    fn refuse(self: Rc<Self>, start: Lba, bytes: usize);
    /// Starts destaging everything, because the log has failed.
    fn log_failed(self: Rc<Self>);
    /// Waits until all dirty data is written below.
    fn destage_all(self: Rc<Self>) -> LocalBoxFuture<'static, Result<(), IoError>>;
    /// Flushes the device below.
    fn flush_below(self: Rc<Self>) -> LocalBoxFuture<'static, Result<Stable, IoError>>;
}

/// Reference that keeps a record in the log.
#[derive(Clone, Debug)]
pub(crate) struct RecordRef(#[expect(dead_code, reason = "it is held, not used")] Rc<BatchRef>);

#[derive(Debug)]
struct BatchRef {
    log: Weak<Shared>,
}

impl Drop for BatchRef {
    fn drop(&mut self) {
        if let Some(log) = self.log.upgrade() {
            // The trim task checks whether the batch of this record can be freed now.
            log.released.raise();
        }
    }
}

/// Content of a log record.
#[derive(Debug)]
pub(crate) enum Content {
    Write {
        start: Lba,
        data: View,
    },
    Discard {
        extent: Extent,
    },
    /// Invalidates all earlier records of the volume.
    Release,
}

/// Error: the log has failed and did not take the record; its owner is about to record that.
#[derive(Debug)]
pub(crate) struct LogFailed;

/// Counters and fill level of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Records written.
    pub records: u64,
    /// Bytes of volume data written.
    pub data_bytes: u64,
    /// Batches written.
    pub batches: u64,
    /// Times that the tail was moved.
    pub trims: u64,
    /// Fill level of the ring, in thousandths.
    pub fill: u64,
}

/// Write log of one shard, on one device, for many volumes. Cheap to clone.
///
/// [`WriteLog::format`] creates one, [`WriteLog::open`] recovers it.
#[derive(Clone)]
pub struct WriteLog(pub(crate) Rc<Shared>);

pub(crate) struct Shared {
    own: Weak<Shared>,
    state: RefCell<State>,
    members: RefCell<BTreeMap<VolumeId, Weak<dyn LogMember>>>,
    owner: Rc<dyn LogOwner>,
    /// Units of the ring.
    ring_units: u64,
    block_bytes: u32,
    /// Raised when an entry was queued, or ring space was freed.
    work: Signal,
    /// Raised when a batch has ended.
    done: Signal,
    /// Raised when a record is no longer needed.
    released: Signal,
    failed: Cell<Option<IoError>>,
    recorded: Cell<Option<Result<(), IoError>>>,
    closing: Cell<bool>,
    /// Number of tasks that run for the log.
    tasks: Cell<u32>,
    counters: Cell<LogCounters>,
}

struct State {
    queue: VecDeque<Entry>,
    /// Records without data. They go first and may use the reserve of the ring: writes queued before them may be
    /// waiting for the space that they free.
    control: VecDeque<Entry>,
    /// Positions of the tail and of the next batch; both only grow, and wrap modulo the ring.
    tail: u64,
    head: u64,
    epoch: u64,
    /// Number of the next batch.
    next_batch: u64,
    /// Number of the last stable batch; all before it are stable, too.
    stable: u64,
    next_record: u64,
    anchor_sequence: u64,
    log_id: LogId,
    batches: VecDeque<LiveBatch>,
    /// By volume, the last batch whose records its release covers.
    released_up_to: BTreeMap<VolumeId, u64>,
}

/// Batch in the ring.
struct LiveBatch {
    number: u64,
    end: u64,
    batch_ref: Weak<BatchRef>,
    volumes: Vec<VolumeId>,
}

struct Entry {
    volume: VolumeId,
    content: Content,
    completion: Rc<Completion>,
}

#[derive(Debug, Default)]
struct Completion(RefCell<Option<Result<Option<RecordRef>, LogFailed>>>);

impl WriteLog {
    /// Counters, and the current fill level.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        LogCounters { fill: self.fill(), ..self.0.counters.get() }
    }

    /// True when the log device has failed; volumes are written through then, and another log is needed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.failed.get().is_some()
    }

    /// Stops the log's tasks and waits for them. Records of its volumes remain for the next replay, unless their
    /// policy was changed before.
    pub async fn close(&self) {
        self.stop();
        self.0.done.wait(|| (self.0.tasks.get() == 0).then_some(())).await;
    }

    /// Tells the log's tasks to stop as [`WriteLog::close`], without waiting.
    pub fn stop(&self) {
        self.0.closing.set(true);
        self.0.work.raise();
        self.0.released.raise();
        // Also for callers that wait for a failure to be recorded: a closed log records none.
        self.0.done.raise();
    }

    /// Size of the ring, in bytes.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.0.ring_units * UNIT_BYTES as u64
    }

    /// Bytes of the ring in use: data that is not known to be stable below.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let state = self.0.state.borrow();
        assert!(state.tail <= state.head, "the tail of the ring is not ahead of its head");
        (state.head - state.tail) * UNIT_BYTES as u64
    }

    pub(crate) fn register(&self, volume: VolumeId, member: Weak<dyn LogMember>) {
        // Weak: a volume that is closed must not be kept alive by the log.
        self.0.members.borrow_mut().insert(volume, member);
    }

    /// Fill level of the ring, in thousandths.
    pub(crate) fn fill(&self) -> u64 {
        let state = self.0.state.borrow();
        assert!(state.head - state.tail <= self.0.ring_units, "what is in use fits into the ring");
        // Positions count on without wrapping, so their difference is what is in use.
        (state.head - state.tail) * 1000 / self.0.ring_units
    }

    /// Upper bound of data in one record, in bytes.
    pub(crate) fn record_bytes_max(&self) -> usize {
        format::record_bytes_max(self.0.ring_units)
    }

    /// Appends `content`; returns once it is stable in the log, and a write has been handed to its volume.
    ///
    /// It is appended even when the future is dropped.
    pub(crate) async fn append(&self, volume: VolumeId, content: Content) -> Result<Option<RecordRef>, LogFailed> {
        let completion = Rc::new(Completion::default());
        // Discards and releases carry no data and go to the queue with priority.
        let control = !matches!(content, Content::Write { .. });
        let entry = Entry { volume, content, completion: completion.clone() };
        if self.has_failed() || self.0.closing.get() {
            // A stopped log takes nothing more; the volume is answered as for a failed one.
            self.0.refuse(vec![entry]);
        } else {
            let mut state = self.0.state.borrow_mut();
            // Queued before the await below: a dropped future does not lose the record.
            if control { state.control.push_back(entry) } else { state.queue.push_back(entry) }
        }
        self.0.work.raise();
        // The entry is owned by the queue, so dropping this future only drops the answer.
        self.0.done.wait(|| completion.0.borrow_mut().take()).await
    }

    /// Waits, after a failure, until the owner has recorded it, so that writes may continue without the log.
    pub(crate) async fn failure_recorded(&self) -> Result<(), IoError> {
        if crate::bug_injection::is_injected(crate::bug_injection::InjectedBug::LogFailureNotRecorded) {
            return Ok(());
        }
        // A log that was closed will never record anything.
        let closed = IoError::new(IoErrorKind::ReadOnly, Extent::default());
        let look =
            || self.0.recorded.get().or_else(|| (self.0.closing.get() && !self.has_failed()).then_some(Err(closed)));
        self.0.done.wait(look).await
    }
}

impl Shared {
    fn member(&self, volume: VolumeId) -> Option<Rc<dyn LogMember>> {
        // `None` for a volume that is not open: its records stay in the ring until they are replayed or released.
        self.members.borrow().get(&volume).and_then(Weak::upgrade)
    }

    /// First block on the log device of `unit`.
    fn blocks(&self, unit: u64) -> Lba {
        Lba(unit * (UNIT_BYTES as u64 / u64::from(self.block_bytes)))
    }
}

/// Units of the ring that fit on `device`.
fn ring_units(device: &impl BlockDevice) -> Result<u64, LogError> {
    let units = device.geometry().bytes() / UNIT_BYTES as u64;
    // A device smaller than the two anchors has no ring.
    let ring = units.saturating_sub(format::RING_START);
    // A smaller ring could not hold several batches and the reserve.
    if ring < format::RING_UNITS_MIN { Err(LogError::TooSmall { units_min: format::RING_UNITS_MIN }) } else { Ok(ring) }
}
