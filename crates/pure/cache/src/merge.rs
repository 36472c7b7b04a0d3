//! Small neighbouring writes that are under way together become one write below.
//!
//! Only a write that goes on where an earlier one ended waits, and only until the other commands of
//! this turn have been looked at: a lone write and a random one pass at once.

use crate::sabotage::{Sabotage, is_planted};
use block::{BlockDevice, Buf, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use shard::{Signal, yield_now};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Larger writes gain nothing and are not copied.
const PART_BYTES_MAX: usize = 64 << 10;
/// A merged write has at most this many bytes, or one full stripe where that is more.
const MERGED_BYTES_MAX: u64 = 512 << 10;
/// Streams of writes that are followed at the same time.
const STREAMS: usize = 8;

/// A sleeve that merges small sequential writes. Each caller hears of its own write.
#[derive(Debug)]
pub struct Merged<D> {
    device: D,
    /// Where the newest writes ended.
    ends: Cell<[u64; STREAMS]>,
    turn: Cell<usize>,
    open: RefCell<Vec<Rc<Batch>>>,
    /// Batches under way with a piece whose caller has gone: nobody writes there before they have ended.
    orphans: RefCell<Vec<Rc<Batch>>>,
    counters: Cell<MergeCounters>,
}

/// What a [`Merged`] device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCounters {
    /// Writes that went below with others.
    pub merged: u64,
    /// The writes below that they became.
    pub batches: u64,
}

#[derive(Debug)]
struct Batch {
    start: u64,
    end: Cell<u64>,
    parts: RefCell<SmallVec<[View; 16]>>,
    outcome: Cell<Option<Outcome>>,
    done: Signal,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Ended(Result<(), IoError>),
    /// Whoever led the batch was dropped: everybody writes for himself.
    Abandoned,
}

/// A batch is closed, and everybody in it hears, whatever becomes of its leader.
struct Leading<'a, D> {
    merged: &'a Merged<D>,
    batch: Rc<Batch>,
}

impl<D> Drop for Leading<'_, D> {
    fn drop(&mut self) {
        self.close();
        self.merged.orphans.borrow_mut().retain(|orphan| !Rc::ptr_eq(orphan, &self.batch));
        if self.batch.outcome.get().is_none() {
            self.batch.outcome.set(Some(Outcome::Abandoned));
        }
        self.batch.done.raise();
    }
}

impl<D> Leading<'_, D> {
    /// Nobody joins any more.
    fn close(&self) {
        self.merged.open.borrow_mut().retain(|open| !Rc::ptr_eq(open, &self.batch));
    }
}

/// A write that went along in somebody else's batch.
struct Joined<'a, D> {
    merged: &'a Merged<D>,
    batch: &'a Rc<Batch>,
}

impl<D> Drop for Joined<'_, D> {
    fn drop(&mut self) {
        if self.batch.outcome.get().is_none() {
            self.merged.orphans.borrow_mut().push(self.batch.clone());
        }
    }
}

impl<D: BlockDevice> Merged<D> {
    /// The device with its small sequential writes merged.
    pub fn new(device: D) -> Self {
        let (turn, counters) = (Cell::new(0), Cell::default());
        let (open, orphans) = (RefCell::default(), RefCell::default());
        Self { device, ends: Cell::new([u64::MAX; STREAMS]), turn, open, orphans, counters }
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What was merged so far.
    pub fn counters(&self) -> MergeCounters {
        self.counters.get()
    }

    /// No write of `extent` is under way whose caller has gone.
    async fn orphans_done(&self, extent: Extent) {
        loop {
            let orphan = {
                let orphans = self.orphans.borrow();
                let over = |batch: &Batch| Extent::new(batch.start, batch.end.get() - batch.start).overlaps(extent);
                let Some(orphan) = orphans.iter().find(|batch| over(batch)) else { return };
                orphan.clone()
            };
            orphan.done.wait(|| orphan.outcome.get()).await;
        }
    }

    /// Notes that a write of `extent` begins; true when it goes on where an earlier one ended.
    fn goes_on(&self, extent: Extent) -> bool {
        let mut ends = self.ends.get();
        let stream = ends.iter().position(|&end| end == extent.start.0);
        let at = stream.unwrap_or_else(|| {
            self.turn.set((self.turn.get() + 1) % STREAMS);
            self.turn.get()
        });
        ends[at] = extent.end().0;
        self.ends.set(ends);
        stream.is_some()
    }

    /// The open batch that a write of `extent` goes on with, where it may become so long.
    fn batch_before(&self, extent: Extent) -> Option<Rc<Batch>> {
        let open = self.open.borrow();
        let batch = open.iter().find(|batch| batch.end.get() == extent.start.0)?;
        let geometry = self.device.geometry();
        let unit = MERGED_BYTES_MAX.max(u64::from(geometry.optimal_bytes)) / u64::from(geometry.optimal_bytes).max(1)
            * u64::from(geometry.optimal_bytes);
        // A batch ends where a stripe ends, so that the next one begins a whole one.
        let unit_blocks = (unit / u64::from(geometry.block_bytes)).max(1);
        (extent.end().0 <= (batch.start / unit_blocks + 1) * unit_blocks).then(|| batch.clone())
    }

    /// Writes `data` with whatever joins it in this turn.
    async fn lead(&self, extent: Extent, data: View) -> Result<Written, IoError> {
        let mut parts = SmallVec::new();
        parts.push(data);
        let (end, parts) = (Cell::new(extent.end().0), RefCell::new(parts));
        let batch =
            Rc::new(Batch { start: extent.start.0, end, parts, outcome: Cell::default(), done: Signal::default() });
        self.open.borrow_mut().push(batch.clone());
        let leading = Leading { merged: self, batch };
        yield_now().await;
        leading.close();
        let data = self.gather(&leading.batch);
        let written = self.device.write(extent.start, data).await;
        let outcome = written.as_ref().map(|_| ()).map_err(|&error| error);
        leading.batch.outcome.set(Some(Outcome::Ended(outcome)));
        written.map_err(|error| of_own(error, extent))
    }

    /// The bytes of a closed batch in one piece.
    fn gather(&self, batch: &Batch) -> View {
        let mut parts = batch.parts.take();
        if parts.len() == 1 {
            return parts.pop().expect("there is one part");
        }
        let counters = self.counters.get();
        let (merged, batches) = (counters.merged + parts.len() as u64, counters.batches + 1);
        self.counters.set(MergeCounters { merged, batches });
        let mut all = Buf::recycled(parts.iter().map(|part| part.len()).sum());
        let mut at = 0;
        for part in &parts {
            all[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let blocks = batch.end.get() - batch.start;
        let bytes = blocks * u64::from(self.device.geometry().block_bytes);
        assert_eq!(at as u64, bytes, "the parts of a batch are all of it");
        if is_planted(Sabotage::MergeLosesPiece) {
            let lost = parts.last().map_or(0, |part| part.len());
            all.truncate(at - lost);
        }
        all.freeze()
    }
}

/// The error of a merged write as one of its callers hears it: in his own blocks.
fn of_own(error: IoError, own: Extent) -> IoError {
    let common = error.extent.intersection(own);
    error.at(if common.is_empty() { own } else { common })
}

impl<D: BlockDevice> BlockDevice for Merged<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.device.read(extent).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.device.geometry().extent_of(start, data.len())?;
        self.orphans_done(extent).await;
        if data.len() > PART_BYTES_MAX || extent.is_empty() || !self.goes_on(extent) {
            return self.device.write(start, data).await;
        }
        let Some(batch) = self.batch_before(extent) else { return self.lead(extent, data).await };
        batch.parts.borrow_mut().push(data.clone());
        batch.end.set(extent.end().0);
        let _joined = Joined { merged: self, batch: &batch };
        match batch.done.wait(|| batch.outcome.get()).await {
            Outcome::Ended(Ok(())) => Ok(Written::attest()),
            Outcome::Ended(Err(error)) => Err(of_own(error, extent)),
            Outcome::Abandoned => self.device.write(start, data).await,
        }
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.orphans_done(self.device.geometry().extent_of(start, data.len())?).await;
        self.device.write_fresh(start, data).await
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.orphans_done(self.device.geometry().extent_of(start, data.len())?).await;
        self.device.write_atomic(start, data).await
    }

    fn atomic_bytes_max(&self) -> u32 {
        self.device.atomic_bytes_max()
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.orphans_done(extent).await;
        self.device.discard(extent).await
    }
}
