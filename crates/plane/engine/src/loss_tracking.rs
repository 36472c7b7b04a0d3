//! Array of a group with its list of lost blocks.
//!
//! All reads, writes and discards of volumes pass here ([`crate::pool`] hands these arrays to `volume::Pool`). A read
//! that ends with a medium error enters its blocks in the list; a write, a discard or a good read removes them. Without
//! lost blocks this costs one lookup in an empty map.

use block::{
    BestCopy, BlockDevice, Extent, GenerationFn, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written,
};
use futures_util::future::LocalBoxFuture;
use raid::Array;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use volume::LostRecord;

/// Runs of lost blocks kept in memory; blocks beyond that are only counted.
const RUNS_MAX: usize = 1 << 16;

/// Operation that must succeed before the first write.
pub(crate) type BeforeWrites = Rc<dyn Fn() -> LocalBoxFuture<'static, Result<(), IoError>>>;

/// An array with a list of its lost blocks.
pub struct LossTrackingArray<D: BlockDevice + 'static> {
    array: Array<D>,
    /// Operation to await before each write and discard, while it is set.
    before_writes: RefCell<Option<BeforeWrites>>,
    /// Lost blocks of the array.
    pub losses: Losses,
}

/// Lost blocks of one group.
#[derive(Default)]
pub struct Losses {
    /// Length of each run by its first block. Runs neither overlap nor touch.
    runs: RefCell<BTreeMap<u64, u64>>,
    /// Number of lost blocks beyond the listed runs.
    more: Cell<u64>,
    /// Runs that were entered because of one failed read; the member may have been unavailable for a moment only.
    unproven: RefCell<Vec<Extent>>,
    /// True if the list has changed since the last [`Losses::take_changed`].
    changed: Cell<bool>,
}

impl Losses {
    /// Loads the list from the catalog.
    pub fn load(&self, record: &LostRecord) {
        record.runs.iter().for_each(|run| {
            self.insert(*run);
        });
        self.more.set(record.more);
        // The record may be older than the last writes before a crash: every listed block is read once.
        self.doubt();
    }

    /// Marks every listed run for another read.
    pub fn doubt(&self) {
        *self.unproven.borrow_mut() = self.record().runs;
    }

    /// Takes the runs that must be read again before they are reported.
    pub fn take_unproven(&self) -> Vec<Extent> {
        self.unproven.take()
    }

    /// List in the form of the catalog.
    #[must_use]
    pub fn record(&self) -> LostRecord {
        let runs = self.runs.borrow();
        LostRecord { runs: runs.iter().map(|(&start, &len)| Extent::new(start, len)).collect(), more: self.more.get() }
    }

    /// Number of lost blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.borrow().values().sum::<u64>() + self.more.get()
    }

    /// True if the list has changed, or runs must be read again.
    #[must_use]
    pub fn is_to_be_settled(&self) -> bool {
        self.changed.get() || !self.unproven.borrow().is_empty()
    }

    /// Enters blocks that a read failed to return. Returns how many of them were not listed before.
    pub fn suspect(&self, extent: Extent) -> u64 {
        let entered = self.enter(extent);
        // One failed read is weak evidence: the run is read again before it is reported.
        if entered > 0 {
            self.unproven.borrow_mut().push(extent);
        }
        entered
    }

    /// Enters lost blocks. Returns how many of them were not listed before.
    pub fn enter(&self, extent: Extent) -> u64 {
        let before = self.within(extent);
        assert!(before <= extent.len.0, "no more blocks are listed than there are");
        let entered = extent.len.0 - before;
        if entered == 0 {
            return 0;
        }
        // At the limit the blocks are only counted; a scrub finds them again.
        let has_room = self.runs.borrow().len() < RUNS_MAX;
        match has_room {
            true => self.insert(extent),
            false => self.more.set(self.more.get().saturating_add(entered)),
        }
        self.changed.set(true);
        entered
    }

    /// Removes blocks that have valid content again.
    pub fn remove(&self, extent: Extent) {
        // The usual case without lost blocks ends here, before anything is borrowed mutably.
        if self.runs.borrow().is_empty() || self.within(extent) == 0 {
            return;
        }
        let mut runs = self.runs.borrow_mut();
        for run in overlapping(&runs, extent) {
            runs.remove(&run.start.0);
            // A run that is removed in part leaves the blocks before and behind.
            let (before, behind) =
                (extent.start.0.saturating_sub(run.start.0), run.end().0.saturating_sub(extent.end().0));
            if before > 0 {
                runs.insert(run.start.0, before);
            }
            if behind > 0 {
                runs.insert(extent.end().0, behind);
            }
        }
        self.changed.set(true);
    }

    /// Clears the count of unlisted blocks, at the start of a scrub that will find them again.
    pub fn forget_unnamed(&self) {
        if self.more.take() > 0 {
            self.changed.set(true);
        }
    }

    /// True if the list has changed since the last call.
    pub fn take_changed(&self) -> bool {
        self.changed.take()
    }

    /// Number of listed blocks within `extent`.
    fn within(&self, extent: Extent) -> u64 {
        // Runs do not overlap each other, so no block is counted twice.
        overlapping(&self.runs.borrow(), extent).iter().map(|run| run.intersection(extent).len.0).sum()
    }

    fn insert(&self, extent: Extent) {
        let mut runs = self.runs.borrow_mut();
        let (mut start, mut end) = (extent.start.0, extent.end().0);
        // Adjacent runs are merged as well.
        let around = Extent::new(start.saturating_sub(1), end + 1 - start.saturating_sub(1));
        for run in overlapping(&runs, around) {
            runs.remove(&run.start.0);
            (start, end) = (start.min(run.start.0), end.max(run.end().0));
        }
        assert!(start <= extent.start.0 && end >= extent.end().0, "a run holds what it was made for");
        runs.insert(start, end - start);
    }
}

/// Runs that overlap `extent`.
fn overlapping(runs: &BTreeMap<u64, u64>, extent: Extent) -> Vec<Extent> {
    // A run that starts before `extent` may reach into it.
    let first = runs.range(..=extent.start.0).next_back().map_or(extent.start.0, |(&start, _)| start);
    let all = runs.range(first..extent.end().0.max(first)).map(|(&start, &len)| Extent::new(start, len));
    all.filter(|run| !run.intersection(extent).is_empty()).collect()
}

impl<D: BlockDevice + 'static> LossTrackingArray<D> {
    /// Creates the array with an empty list.
    pub fn new(array: Array<D>) -> Self {
        Self { array, before_writes: RefCell::default(), losses: Losses::default() }
    }

    /// Sets the operation to await before each write and discard; `None` lets writes pass.
    pub(crate) fn set_write_gate(&self, first: Option<BeforeWrites>) {
        self.before_writes.replace(first);
    }

    async fn admit_write(&self) -> Result<(), IoError> {
        // Cloned, so that the borrow does not last while the operation runs.
        let first = self.before_writes.borrow().clone();
        match first {
            None => Ok(()),
            Some(first) => first().await,
        }
    }

    /// Updates the list by the result of a read.
    fn note<T>(&self, extent: Extent, read: &Result<T, IoError>) {
        match read {
            Ok(_) => self.losses.remove(extent),
            // Other errors may pass, for example when a member returns; only a medium error means lost data.
            Err(error) if error.kind == IoErrorKind::Medium => {
                // The error may cover more than the read; only blocks that were asked for are entered.
                self.losses.suspect(error.extent.intersection(extent));
            }
            Err(_) => {}
        }
    }

    fn note_written(&self, start: Lba, bytes: usize, written: &Result<Written, IoError>) {
        // After a failed write the blocks may have no valid content, so they stay listed.
        if written.is_ok() {
            self.losses.remove(Extent::new(start.0, bytes as u64 / u64::from(raid::BLOCK_BYTES)));
        }
    }
}

impl<D: BlockDevice + 'static> Deref for LossTrackingArray<D> {
    type Target = Array<D>;

    fn deref(&self) -> &Array<D> {
        &self.array
    }
}

impl<D: BlockDevice + 'static> BlockDevice for LossTrackingArray<D> {
    fn geometry(&self) -> Geometry {
        self.array.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let read = self.array.read(extent).await;
        self.note(extent, &read);
        read
    }

    async fn read_best(&self, extent: Extent, rank: GenerationFn<'_>) -> Result<BestCopy, IoError> {
        let read = self.array.read_best(extent, rank).await;
        self.note(extent, &read);
        read
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.admit_write().await?;
        let bytes = data.len();
        let written = self.array.write(start, data).await;
        self.note_written(start, bytes, &written);
        written
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.admit_write().await?;
        let bytes = data.len();
        let written = self.array.write_unlogged(start, data).await;
        self.note_written(start, bytes, &written);
        written
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        // Not gated: a flush brings no new data.
        self.array.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.admit_write().await?;
        let discarded = self.array.discard(extent).await;
        // The host has given up the content, so it is no loss any more.
        if discarded.is_ok() {
            self.losses.remove(extent);
        }
        discarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(losses: &Losses) -> Vec<(u64, u64)> {
        losses.record().runs.iter().map(|run| (run.start.0, run.len.0)).collect()
    }

    #[test]
    fn losses_count_each_block_once_and_forget_what_is_written() {
        let losses = Losses::default();
        assert_eq!(losses.enter(Extent::new(10, 4)), 4);
        assert_eq!(losses.enter(Extent::new(12, 4)), 2, "a block that is tried again is not another one");
        assert_eq!(losses.enter(Extent::new(10, 6)), 0);
        assert_eq!(losses.enter(Extent::new(16, 1)), 1, "what follows is one run with it");
        assert_eq!(losses.enter(Extent::new(30, 2)), 2);
        assert_eq!((runs(&losses), losses.record().blocks()), (vec![(10, 7), (30, 2)], 9));
        assert!(losses.take_changed() && !losses.take_changed());
        losses.remove(Extent::new(20, 5));
        assert!(!losses.take_changed(), "nothing of it was lost");
        losses.remove(Extent::new(12, 19));
        assert_eq!(runs(&losses), [(10, 2), (31, 1)]);
        losses.remove(Extent::new(0, 100));
        assert!(losses.blocks() == 0 && losses.take_changed());
    }

    #[test]
    fn losses_beyond_the_list_are_counted_until_they_are_looked_for_again() {
        let losses = Losses::default();
        (0..RUNS_MAX as u64 + 3).for_each(|run| assert_eq!(losses.enter(Extent::new(2 * run, 1)), 1));
        assert_eq!((losses.record().runs.len(), losses.record().more), (RUNS_MAX, 3));
        losses.remove(Extent::new(0, 4 * RUNS_MAX as u64));
        assert_eq!(losses.blocks(), 3, "they are not named");
        losses.forget_unnamed();
        assert_eq!(losses.blocks(), 0);
    }
}
