//! Write merging: small adjacent writes in flight become one write below.
//!
//! Only a write that continues an earlier one waits, and only until the other commands of this executor turn were
//! polled: single and random writes pass without delay.

use crate::bug_injection::{InjectedBug, is_injected};
use block::{BlockDevice, Buf, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use shard::{Signal, yield_now};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Upper bound of a write that is merged: larger ones gain nothing and would be copied.
const PART_BYTES_MAX: usize = 64 << 10;
/// Upper bound of a merged write in bytes, or one full stripe where that is larger.
const MERGED_BYTES_MAX: u64 = 512 << 10;
/// Sequential streams that are tracked at a time.
const STREAMS: usize = 8;

/// Layer that merges small sequential writes. Each caller gets the result of its own blocks.
#[derive(Debug)]
pub struct Merged<D> {
    device: D,
    /// End addresses of recent writes.
    ends: Cell<[u64; STREAMS]>,
    turn: Cell<usize>,
    open: RefCell<Vec<Rc<Batch>>>,
    /// Batches in flight with a piece whose caller was dropped: later writes of these blocks wait for them.
    orphans: RefCell<Vec<Rc<Batch>>>,
    counters: Cell<MergeCounters>,
}

/// Counters of a [`Merged`] device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCounters {
    /// Writes that were merged with others.
    pub merged: u64,
    /// Merged writes that they became.
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
    /// The leader was dropped: each caller writes its own data.
    Abandoned,
}

/// Leader of a batch; on drop the batch is closed, and all callers in it are answered.
struct Leading<'a, D> {
    merged: &'a Merged<D>,
    batch: Rc<Batch>,
}

impl<D> Drop for Leading<'_, D> {
    fn drop(&mut self) {
        self.close();
        // Before the waiters are woken, because they look for orphans again.
        self.merged.orphans.borrow_mut().retain(|orphan| !Rc::ptr_eq(orphan, &self.batch));
        if self.batch.outcome.get().is_none() {
            self.batch.outcome.set(Some(Outcome::Abandoned));
        }
        self.batch.done.raise();
    }
}

impl<D> Leading<'_, D> {
    /// Closes the batch for further writes.
    fn close(&self) {
        self.merged.open.borrow_mut().retain(|open| !Rc::ptr_eq(open, &self.batch));
    }
}

/// Write that has joined another caller's batch.
struct Joined<'a, D> {
    merged: &'a Merged<D>,
    batch: &'a Rc<Batch>,
}

impl<D> Drop for Joined<'_, D> {
    fn drop(&mut self) {
        if self.batch.outcome.get().is_none() {
            // The write continues in the leader's batch although its caller was dropped.
            self.merged.orphans.borrow_mut().push(self.batch.clone());
        }
    }
}

impl<D: BlockDevice> Merged<D> {
    /// Wraps the device.
    pub fn new(device: D) -> Self {
        let (turn, counters) = (Cell::new(0), Cell::default());
        let (open, orphans) = (RefCell::default(), RefCell::default());
        // No write starts at `u64::MAX`, so unused entries match none.
        Self { device, ends: Cell::new([u64::MAX; STREAMS]), turn, open, orphans, counters }
    }

    /// Device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Counters so far.
    pub fn counters(&self) -> MergeCounters {
        self.counters.get()
    }

    /// Waits until no write of `extent` is in flight whose caller was dropped.
    async fn orphans_done(&self, extent: Extent) {
        loop {
            // The borrow ends before the wait, during which the list changes.
            let orphan = {
                let orphans = self.orphans.borrow();
                let over = |batch: &Batch| Extent::new(batch.start, batch.end.get() - batch.start).overlaps(extent);
                let Some(orphan) = orphans.iter().find(|batch| over(batch)) else { return };
                orphan.clone()
            };
            orphan.done.wait(|| orphan.outcome.get()).await;
        }
    }

    /// Records the start of a write of `extent`; true when it continues an earlier one.
    fn goes_on(&self, extent: Extent) -> bool {
        let mut ends = self.ends.get();
        let stream = ends.iter().position(|&end| end == extent.start.0);
        let at = stream.unwrap_or_else(|| {
            // Round-robin replacement of tracked streams.
            self.turn.set((self.turn.get() + 1) % STREAMS);
            self.turn.get()
        });
        ends[at] = extent.end().0;
        self.ends.set(ends);
        stream.is_some()
    }

    /// Finds an open batch that a write of `extent` continues, if the batch may grow to its end.
    fn batch_before(&self, extent: Extent) -> Option<Rc<Batch>> {
        let open = self.open.borrow();
        let batch = open.iter().find(|batch| batch.end.get() == extent.start.0)?;
        let geometry = self.device.geometry();
        // Rounded down to whole stripes, so that the bound of a batch never lies within one.
        let unit = MERGED_BYTES_MAX.max(u64::from(geometry.optimal_bytes)) / u64::from(geometry.optimal_bytes).max(1)
            * u64::from(geometry.optimal_bytes);
        // A batch ends at a stripe boundary, so that the next one starts a whole stripe.
        let unit_blocks = (unit / u64::from(geometry.block_bytes)).max(1);
        (extent.end().0 <= (batch.start / unit_blocks + 1) * unit_blocks).then(|| batch.clone())
    }

    /// Writes `data`, together with writes that join during this turn.
    async fn lead(&self, extent: Extent, data: View) -> Result<Written, IoError> {
        let mut parts = SmallVec::new();
        parts.push(data);
        let (end, parts) = (Cell::new(extent.end().0), RefCell::new(parts));
        let batch =
            Rc::new(Batch { start: extent.start.0, end, parts, outcome: Cell::default(), done: Signal::default() });
        self.open.borrow_mut().push(batch.clone());
        let leading = Leading { merged: self, batch };
        // The other commands of this turn run here and may join.
        yield_now().await;
        // Closed before the data is gathered: a later piece would be lost.
        leading.close();
        let data = self.gather(&leading.batch);
        let written = self.device.write(extent.start, data).await;
        let outcome = written.as_ref().map(|_| ()).map_err(|&error| error);
        leading.batch.outcome.set(Some(Outcome::Ended(outcome)));
        written.map_err(|error| of_own(error, extent))
    }

    /// Concatenates the pieces of a closed batch.
    fn gather(&self, batch: &Batch) -> View {
        let mut parts = batch.parts.take();
        if parts.len() == 1 {
            return parts.pop().expect("there is one part");
        }
        let counters = self.counters.get();
        let (merged, batches) = (counters.merged + parts.len() as u64, counters.batches + 1);
        self.counters.set(MergeCounters { merged, batches });
        // The one copy that merging costs; pieces are at most 64 KiB.
        let mut all = Buf::recycled(parts.iter().map(|part| part.len()).sum());
        let mut at = 0;
        for part in &parts {
            all[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let blocks = batch.end.get() - batch.start;
        let bytes = blocks * u64::from(self.device.geometry().block_bytes);
        assert_eq!(at as u64, bytes, "the parts of a batch are all of it");
        if is_injected(InjectedBug::MergeLosesPiece) {
            let lost = parts.last().map_or(0, |part| part.len());
            all.truncate(at - lost);
        }
        all.freeze()
    }
}

/// Maps the error of a merged write to the blocks of one caller.
fn of_own(error: IoError, own: Extent) -> IoError {
    let common = error.extent.intersection(own);
    // An error elsewhere in the batch leaves all blocks of this caller in doubt.
    error.at(if common.is_empty() { own } else { common })
}

impl<D: BlockDevice> BlockDevice for Merged<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        // Writes of open batches were not answered, so a read need not see them.
        self.device.read(extent).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.device.geometry().extent_of(start, data.len())?;
        // An orphaned write could land after this one and overwrite it.
        self.orphans_done(extent).await;
        if data.len() > PART_BYTES_MAX || extent.is_empty() || !self.goes_on(extent) {
            return self.device.write(start, data).await;
        }
        let Some(batch) = self.batch_before(extent) else { return self.lead(extent, data).await };
        // In the same poll as the lookup: the batch cannot be closed in between.
        batch.parts.borrow_mut().push(data.clone());
        batch.end.set(extent.end().0);
        let _joined = Joined { merged: self, batch: &batch };
        match batch.done.wait(|| batch.outcome.get()).await {
            Outcome::Ended(Ok(())) => Ok(Written::attest()),
            Outcome::Ended(Err(error)) => Err(of_own(error, extent)),
            // The leader was dropped before it wrote, or in the middle: each caller writes for itself.
            Outcome::Abandoned => self.device.write(start, data).await,
        }
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.orphans_done(self.device.geometry().extent_of(start, data.len())?).await;
        self.device.write_unlogged(start, data).await
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.orphans_done(self.device.geometry().extent_of(start, data.len())?).await;
        // Not merged: the device promises atomicity for one write, and a merged write may exceed its limit.
        self.device.write_atomic(start, data).await
    }

    fn atomic_bytes_max(&self) -> u32 {
        self.device.atomic_bytes_max()
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        // Writes of open batches were not answered, so the flush need not cover them.
        self.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.orphans_done(extent).await;
        self.device.discard(extent).await
    }
}
