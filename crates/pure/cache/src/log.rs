//! The write log: acknowledged writes in the order in which they came, stable on a device of their own,
//! until the devices below have them.

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

/// The unit of the log in bytes: everything in it begins at a multiple.
pub(crate) const UNIT_BYTES: usize = 4096;

/// The owner of a log: the pool's catalog, which outlives the log device.
pub trait LogOwner {
    /// When it is ready, it is stable that the log is never replayed again, and that `volumes` hold acknowledged
    /// data in memory alone. If the power fails before [`LogOwner::settled`], they are to be named as having lost it.
    fn abandon(&self, error: IoError, volumes: Vec<VolumeId>) -> LocalBoxFuture<'static, Result<Stable, IoError>>;

    /// Everything that was in the log is stable on the volumes' own devices.
    fn settled(&self) -> LocalBoxFuture<'static, ()>;
}

/// What the log needs of a volume.
pub(crate) trait LogMember {
    /// A write is stable in the log: it waits above the device from now on. Called in the order of the log.
    fn accept(self: Rc<Self>, start: Lba, data: View, hold: Hold);
    /// A write of so many bytes will not be in the log.
    fn refuse(self: Rc<Self>, start: Lba, bytes: usize);
    /// The log has failed: everything that waits goes below now.
    fn log_failed(self: Rc<Self>);
    /// Is ready when everything that waits is below.
    fn settled(self: Rc<Self>) -> LocalBoxFuture<'static, Result<(), IoError>>;
    /// Flushes the device below.
    fn flush_below(self: Rc<Self>) -> LocalBoxFuture<'static, Result<Stable, IoError>>;
}

/// Keeps a record in the log while it lives.
#[derive(Clone, Debug)]
pub(crate) struct Hold(#[expect(dead_code, reason = "it is held, not used")] Rc<Held>);

#[derive(Debug)]
struct Held {
    log: Weak<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(log) = self.log.upgrade() {
            log.released.raise();
        }
    }
}

/// What is put into the log.
#[derive(Debug)]
pub(crate) enum Content {
    Write {
        start: Lba,
        data: View,
    },
    Discard {
        extent: Extent,
    },
    /// Everything that the log has of the volume is void.
    Release,
}

/// The log did not take it; its owner is about to record that.
#[derive(Debug)]
pub(crate) struct LogFailed;

/// What a log has done, and how full it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Records written.
    pub records: u64,
    /// Bytes of volumes' data written.
    pub data_bytes: u64,
    /// The batches that they were written in.
    pub batches: u64,
    /// How often the tail was moved.
    pub trims: u64,
    /// How full the ring is, in thousandths.
    pub fill: u64,
}

/// The write log of one shard, on one device, for many volumes. Cheap to clone.
///
/// [`WriteLog::format`] makes one, [`WriteLog::open`] finds it again and replays it.
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
    /// Something was queued, or room was made.
    work: Signal,
    /// A batch has ended.
    done: Signal,
    /// A record is not needed any more.
    released: Signal,
    failed: Cell<Option<IoError>>,
    recorded: Cell<Option<Result<(), IoError>>>,
    closing: Cell<bool>,
    /// Tasks that run for the log.
    tasks: Cell<u32>,
    counters: Cell<LogCounters>,
}

struct State {
    queue: VecDeque<Entry>,
    /// Records without data; they go first and may use the reserve, so that nobody waits for whom he holds up.
    control: VecDeque<Entry>,
    /// Where the ring begins to be in use, and where the next batch goes; both only grow.
    tail: u64,
    head: u64,
    epoch: u64,
    /// The number of the next batch.
    next_batch: u64,
    /// The last batch that is stable, with all before it.
    stable: u64,
    next_record: u64,
    anchor_sequence: u64,
    log_id: LogId,
    batches: VecDeque<LiveBatch>,
    /// The last batch of which a volume has let go, with everything before.
    let_go: BTreeMap<VolumeId, u64>,
}

/// A batch in the ring.
struct LiveBatch {
    number: u64,
    end: u64,
    held: Weak<Held>,
    volumes: Vec<VolumeId>,
}

struct Entry {
    volume: VolumeId,
    content: Content,
    ticket: Rc<Ticket>,
}

#[derive(Debug, Default)]
struct Ticket(RefCell<Option<Result<Option<Hold>, LogFailed>>>);

impl WriteLog {
    /// What the log has done, and how full it is.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        LogCounters { fill: self.fill(), ..self.0.counters.get() }
    }

    /// True when the log device has failed; volumes are written through since, and another log is needed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.failed.get().is_some()
    }

    /// The log's tasks have ended: what its volumes had in it stays there for the next replay, unless their policy was
    /// changed to another one before.
    pub async fn close(&self) {
        self.stop();
        self.0.done.wait(|| (self.0.tasks.get() == 0).then_some(())).await;
    }

    /// The log's tasks end as [`WriteLog::close`] has it, which nobody waits for.
    pub fn stop(&self) {
        self.0.closing.set(true);
        self.0.work.raise();
        self.0.released.raise();
        self.0.done.raise();
    }

    /// Bytes that the ring has room for.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.0.ring_units * UNIT_BYTES as u64
    }

    /// Bytes of the ring that hold something which is not known to be below.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let state = self.0.state.borrow();
        assert!(state.tail <= state.head, "the tail of the ring is not ahead of its head");
        (state.head - state.tail) * UNIT_BYTES as u64
    }

    pub(crate) fn register(&self, volume: VolumeId, member: Weak<dyn LogMember>) {
        self.0.members.borrow_mut().insert(volume, member);
    }

    /// How full the ring is, in thousandths; what is queued counts.
    pub(crate) fn fill(&self) -> u64 {
        let state = self.0.state.borrow();
        assert!(state.head - state.tail <= self.0.ring_units, "what is in use fits into the ring");
        (state.head - state.tail) * 1000 / self.0.ring_units
    }

    /// The longest data of one record.
    pub(crate) fn record_bytes_max(&self) -> usize {
        format::record_bytes_max(self.0.ring_units)
    }

    /// When it is ready, `content` is stable in the log, and a write has been given to its volume.
    ///
    /// It goes on to be so when the future is dropped.
    pub(crate) async fn append(&self, volume: VolumeId, content: Content) -> Result<Option<Hold>, LogFailed> {
        let ticket = Rc::new(Ticket::default());
        let control = !matches!(content, Content::Write { .. });
        let entry = Entry { volume, content, ticket: ticket.clone() };
        if self.has_failed() || self.0.closing.get() {
            self.0.refuse(vec![entry]);
        } else {
            let mut state = self.0.state.borrow_mut();
            if control { state.control.push_back(entry) } else { state.queue.push_back(entry) }
        }
        self.0.work.raise();
        self.0.done.wait(|| ticket.0.borrow_mut().take()).await
    }

    /// After a failure: it is ready when the owner has recorded it, and writes may go on without the log.
    pub(crate) async fn failure_recorded(&self) -> Result<(), IoError> {
        if crate::sabotage::is_planted(crate::sabotage::Sabotage::LogFailureNotRecorded) {
            return Ok(());
        }
        let closed = IoError::new(IoErrorKind::ReadOnly, Extent::default());
        let look =
            || self.0.recorded.get().or_else(|| (self.0.closing.get() && !self.has_failed()).then_some(Err(closed)));
        self.0.done.wait(look).await
    }
}

impl Shared {
    fn member(&self, volume: VolumeId) -> Option<Rc<dyn LogMember>> {
        self.members.borrow().get(&volume).and_then(Weak::upgrade)
    }

    /// The blocks of the log device that hold `units` from `unit` of the device on.
    fn blocks(&self, unit: u64) -> Lba {
        Lba(unit * (UNIT_BYTES as u64 / u64::from(self.block_bytes)))
    }
}

/// The units of the ring of a log on `device`.
fn ring_units(device: &impl BlockDevice) -> Result<u64, LogError> {
    let units = device.geometry().bytes() / UNIT_BYTES as u64;
    let ring = units.saturating_sub(format::RING_START);
    if ring < format::RING_UNITS_MIN { Err(LogError::TooSmall { units_min: format::RING_UNITS_MIN }) } else { Ok(ring) }
}
