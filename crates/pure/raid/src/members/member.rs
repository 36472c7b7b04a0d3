//! Place of an array: the device in it, its state, and its counters.

use crate::bounds::BLOCK_BYTES;
use crate::error::ArrayError;
use crate::geometry::{MemberSet, bytes};
use crate::members::copy_target::CopyTarget;
use crate::on_disk::segments::Segments;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::future::FutureExt;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// In service: the member holds all of its data.
    InService,
    /// Failed: the member is not used any more.
    Failed,
    /// Missing: the place was empty when the array was assembled.
    Missing,
    /// Replacement being rebuilt: valid below `front_stripe`.
    Rebuilding {
        /// First stripe that is not rebuilt yet.
        front_stripe: u64,
    },
}

/// Wait limit of a read from a member that does not respond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadWait {
    /// Ends at the member's read deadline: the content is available elsewhere.
    #[default]
    Deadline,
    /// Waits until the member responds, or is failed for its silence.
    Unbounded,
}

/// Snapshot of one member. Counts are member operations since the array was assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// State of the member.
    pub state: MemberState,
    /// Reads that were started.
    pub reads: u64,
    /// Writes that were started.
    pub writes: u64,
    /// Flushes that were started.
    pub flushes: u64,
    /// Discards that were started.
    pub discards: u64,
    /// Writes outside of the data area that were started: log batches, checksum pages, anchors.
    pub log_writes: u64,
    /// Operations that failed, except those that a device did not do because it is gone.
    pub errors: u64,
    /// Reads that timed out while other members had the content.
    pub timeouts: u64,
    /// Writes that restored unreadable blocks from redundancy.
    pub heals: u64,
    /// Operations in flight.
    pub in_flight: u32,
    /// Blocks whose content could not be restored.
    pub unreadable_blocks: u64,
    /// First stripe not copied yet, while the member is copied to another device.
    pub copy_front_stripe: Option<u64>,
}

/// Members whose blocks of one stripe can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usable {
    /// Members that hold valid data.
    pub(crate) read: MemberSet,
    /// Members that are written.
    pub(crate) write: MemberSet,
}

/// Place of the array.
pub(crate) struct Member<D> {
    /// Location of its data on the device.
    segments: Rc<Segments>,
    device: RefCell<Option<Rc<D>>>,
    /// Second device, while the member is copied to it.
    pub(super) copy_target: RefCell<Option<Rc<CopyTarget<D>>>>,
    state: Cell<MemberState>,
    /// Stripes that a rebuild restores, once known; elsewhere a replacement is written but not read.
    rebuilt_stripes: RefCell<Option<Vec<Range<u64>>>>,
    /// True for a returned member: outside of the rebuilt stripes it is valid already.
    returned_valid_outside: Cell<bool>,
    /// Incremented when another device takes the place, so that late results are not charged to it.
    pub(crate) device_incarnation: Cell<u64>,
    /// True while a rebuild of this place runs.
    pub(crate) rebuild_runs: Cell<bool>,
    /// Blocks that could not be restored: reads are a medium error until they are written.
    unreadable: RefCell<BTreeSet<u64>>,
    /// Changes that have ended, and how many of them the last successful flush has covered.
    written: Cell<u64>,
    flushed: Cell<u64>,
    /// End of the last read; a read that starts there needs no seek on a disk.
    pub(crate) read_end: Cell<Lba>,
    /// True after the member has refused writes for want of space through all retries.
    pub(crate) is_full: Cell<bool>,
    pub(crate) counts: Counts,
}

/// Counters of a place since the array was assembled.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) in_flight: Cell<u32>,
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: Cell<u64>,
    pub(crate) flushes: Cell<u64>,
    pub(crate) discards: Cell<u64>,
    pub(crate) metadata_writes: Cell<u64>,
    pub(crate) errors: Cell<u64>,
    pub(crate) timeouts: Cell<u64>,
    pub(crate) heals: Cell<u64>,
}

/// Increments a counter.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// Change of blocks in flight. It counts as written when it ends, however it ends: what a dropped or failed write
/// left behind can be read, so a flush must cover it. A flush that started earlier does not.
pub(super) struct Changing<'a>(&'a Cell<u64>);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        count(self.0);
    }
}

/// Operation in flight; dropped when it ends, however it ends.
struct InFlight<'a>(&'a Cell<u32>);

impl<'a> InFlight<'a> {
    fn new(counter: &'a Cell<u32>) -> Self {
        counter.set(counter.get() + 1);
        Self(counter)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        assert!(self.0.get() > 0, "every operation ends once");
        self.0.set(self.0.get() - 1);
    }
}

impl<D: BlockDevice> Member<D> {
    /// Creates a place with `device` in service, or missing; `segments` says where its data lies.
    pub(crate) fn new(device: Option<D>, segments: Rc<Segments>) -> Self {
        let state = if device.is_some() { MemberState::InService } else { MemberState::Missing };
        Self {
            segments,
            device: RefCell::new(device.map(Rc::new)),
            copy_target: RefCell::default(),
            state: Cell::new(state),
            rebuilt_stripes: RefCell::default(),
            returned_valid_outside: Cell::default(),
            device_incarnation: Cell::new(0),
            rebuild_runs: Cell::new(false),
            unreadable: RefCell::default(),
            written: Cell::new(0),
            flushed: Cell::new(0),
            read_end: Cell::default(),
            is_full: Cell::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn state(&self) -> MemberState {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: MemberState) {
        self.state.set(state);
    }

    /// Puts `device` into the place, waiting for its rebuild.
    pub(crate) fn replace(&self, device: D) {
        *self.device.borrow_mut() = Some(Rc::new(device));
        self.copy_target.take();
        self.is_full.set(false);
        // Marks and counts belong to the device that left.
        self.unreadable.borrow_mut().clear();
        *self.rebuilt_stripes.borrow_mut() = None;
        self.returned_valid_outside.set(false);
        // Tells the results of operations in flight on the old device from those of the new one.
        self.device_incarnation.set(self.device_incarnation.get() + 1);
        // Changes of the previous device need no flush.
        self.flushed.set(self.written.get());
        self.state.set(MemberState::Rebuilding { front_stripe: 0 });
    }

    /// Puts a returned device back; it has missed `stripes` only.
    pub(crate) fn rejoin(&self, device: D, stripes: &[Range<u64>]) {
        self.replace(device);
        // After `replace`, which resets the ranges and the mark.
        self.begin_rebuild(stripes);
        self.returned_valid_outside.set(true);
    }

    /// True for a replacement or an added member until it is rebuilt: its previous content does not count.
    pub(crate) fn is_filled_from_nothing(&self) -> bool {
        matches!(self.state(), MemberState::Rebuilding { .. }) && !self.is_returned()
    }

    /// True for a device that was in the place before and returned.
    pub(crate) fn is_returned(&self) -> bool {
        self.returned_valid_outside.get()
    }

    /// Drops the device; it is closed once no operation uses it.
    pub(crate) fn drop_device(&self) {
        self.device.borrow_mut().take();
    }

    /// Starts a rebuild of these stripes; each is readable only once it is rebuilt.
    pub(crate) fn begin_rebuild(&self, stripes: &[Range<u64>]) {
        let front_stripe = stripes.first().map_or(0, |range| range.start);
        self.state.set(MemberState::Rebuilding { front_stripe });
        *self.rebuilt_stripes.borrow_mut() = Some(stripes.to_vec());
    }

    /// Returns whether the blocks of `stripe` can be read, and whether they must be written.
    pub(crate) fn usable(&self, stripe: u64) -> (bool, bool) {
        match self.state.get() {
            MemberState::InService => (true, true),
            MemberState::Failed | MemberState::Missing => (false, false),
            MemberState::Rebuilding { front_stripe } => {
                // Without known ranges every stripe is to be rebuilt.
                let stripes = self.rebuilt_stripes.borrow();
                // Reads wait for the front; writes below it, or outside of the rebuild, keep the member current.
                let in_rebuild = stripes.as_ref().is_none_or(|some| some.iter().any(|range| range.contains(&stripe)));
                let restored = in_rebuild && stripe < front_stripe || !in_rebuild && self.returned_valid_outside.get();
                // Stripes outside of the rebuild are written in any case: they may come into use meanwhile.
                (restored, restored || !in_rebuild)
            }
        }
    }

    pub(crate) fn device(&self) -> Option<Rc<D>> {
        self.device.borrow().clone()
    }

    /// True for the device that is in the place now.
    pub(super) fn is_device(&self, device: &Rc<D>) -> bool {
        self.device.borrow().as_ref().is_some_and(|own| Rc::ptr_eq(own, device))
    }

    /// Makes `device`, which has had every change, the device of the place.
    pub(super) fn take_device(&self, device: Rc<D>) {
        *self.device.borrow_mut() = Some(device);
        self.reset_error_counters();
    }

    /// Resets the error counters: errors belong to the disk, and another one has the place.
    pub(crate) fn reset_error_counters(&self) {
        for counter in [&self.counts.errors, &self.counts.timeouts, &self.counts.heals] {
            counter.set(0);
        }
    }

    /// Starts a change; it counts as written when the guard is dropped.
    pub(super) fn changing(&self) -> Changing<'_> {
        Changing(&self.written)
    }

    /// Marks blocks whose content is lost.
    pub(crate) fn mark_unreadable(&self, extent: Extent) {
        self.unreadable.borrow_mut().extend(extent.start.0..extent.end().0);
    }

    /// Reads data blocks; blocks marked unreadable are a medium error without a device operation.
    pub(crate) async fn read(&self, extent: Extent, wait: ReadWait) -> Result<Rope, IoError> {
        count(&self.counts.reads);
        // The device would return whatever a replacement had there.
        if let Some(&lost) = self.unreadable.borrow().range(extent.start.0..extent.end().0).next() {
            return Err(IoError::new(IoErrorKind::Medium, Extent::new(lost, 1)));
        }
        let device = self.device_in_use(extent)?;
        // Set before the read ends, because the next read of a stream may be chosen while this one is in flight.
        self.read_end.set(extent.end());
        let _in_flight = InFlight::new(&self.counts.in_flight);
        let rope = match self.segments.at(extent) {
            // All of it in one run but for extents behind a growth.
            Some(at) => {
                let run = Extent { start: at, len: extent.len };
                self.note(&device, self.ask(&device, run, wait).await).map_err(in_data(extent, at))?
            }
            None => {
                let mut whole = Rope::new();
                for (part, at) in self.segments.runs(extent) {
                    let run = Extent { start: at, len: part.len };
                    whole.append(self.note(&device, self.ask(&device, run, wait).await).map_err(in_data(part, at))?);
                }
                whole
            }
        };
        assert_eq!(rope.len(), bytes(extent.len.0), "a device returns the blocks that were asked for");
        Ok(rope)
    }

    /// Reads blocks outside of the data area.
    pub(crate) async fn read_metadata(&self, extent: Extent, wait: ReadWait) -> Result<Rope, IoError> {
        let device = self.device_in_use(extent)?;
        let rope = self.note(&device, self.ask(&device, extent, wait).await)?;
        assert_eq!(rope.len(), bytes(extent.len.0), "a device returns the blocks that were asked for");
        Ok(rope)
    }

    /// Writes blocks outside of the data area.
    pub(crate) async fn write_metadata(&self, start: Lba, data: View) -> Result<Written, IoError> {
        count(&self.counts.metadata_writes);
        let extent = Extent::new(start.0, data.len() as u64 / u64::from(BLOCK_BYTES));
        // A mistake in the address arithmetic must never overwrite data.
        assert!(!self.segments.hold_data(extent), "anchors, batches and pages lie beside the data");
        let device = self.device_in_use(Extent { start, len: Blocks(0) })?;
        // Dropped also with the caller: the write then counts as a change in doubt, which a flush must cover.
        let _in_flight = (InFlight::new(&self.counts.in_flight), Changing(&self.written));
        let written = match self.copy_target() {
            None => device.write(start, data).await,
            Some(copy_target) => {
                // Boxed: copies are rare, and the future of every write would otherwise carry theirs.
                self.write_both(&copy_target, device.write(start, data.clone()), vec![(start, data)])
                    .boxed_local()
                    .await
            }
        };
        let written = self.note(&device, written)?;
        // A write that succeeds shows that there is space, so later refusals are retried again.
        self.is_full.set(false);
        Ok(written)
    }

    /// True when acknowledged writes may be lost until a flush.
    pub(crate) fn is_volatile(&self) -> bool {
        // Volatile is the safe answer for a place without a device.
        self.device().is_none_or(|device| device.geometry().volatile_cache)
    }

    /// Writes data blocks, also to the second device while the member is copied.
    pub(crate) async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        count(&self.counts.writes);
        let extent = Extent::new(start.0, data.len() as u64 / u64::from(BLOCK_BYTES));
        assert_eq!(data.len(), bytes(extent.len.0), "a member is written in whole blocks");
        let device = self.device_in_use(extent)?;
        let _in_flight = (InFlight::new(&self.counts.in_flight), Changing(&self.written));
        let written = match (self.copy_target(), self.segments.at(extent)) {
            // Boxed: copies are rare, and their future is larger than that of a plain write.
            (Some(copy_target), _) => self.write_copied(&copy_target, &device, extent, data).boxed_local().await?,
            (None, Some(at)) => self.note(&device, device.write(at, data).await).map_err(in_data(extent, at))?,
            // The extent crosses into a segment of a growth.
            (None, None) => {
                for (part, at) in self.changed_runs(extent) {
                    let from = bytes(part.start.0 - extent.start.0);
                    let data = data.slice(from..from + bytes(part.len.0));
                    let _ = self.note(&device, device.write(at, data).await).map_err(in_data(part, at))?;
                }
                Written::attest()
            }
        };
        // Only after success: a failed write leaves the old content lost.
        self.clear_unreadable(extent);
        self.is_full.set(false);
        Ok(written)
    }

    /// Writes as [`Member::write`], to the device and the one that it is copied to.
    async fn write_copied(
        &self,
        copy_target: &Rc<CopyTarget<D>>,
        device: &Rc<D>,
        extent: Extent,
        data: View,
    ) -> Result<Written, IoError> {
        for (part, at) in self.changed_runs(extent) {
            let from = bytes(part.start.0 - extent.start.0);
            let data = data.slice(from..from + bytes(part.len.0));
            let both = self.write_both(copy_target, device.write(at, data.clone()), vec![(at, data)]).await;
            let _ = self.note(device, both).map_err(in_data(part, at))?;
        }
        Ok(Written::attest())
    }

    pub(crate) async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        count(&self.counts.discards);
        let device = self.device_in_use(extent)?;
        let _in_flight = (InFlight::new(&self.counts.in_flight), Changing(&self.written));
        let copy_target = self.copy_target();
        for (part, at) in self.changed_runs(extent) {
            let run = Extent { start: at, len: part.len };
            let discarded = match &copy_target {
                None => device.discard(run).await,
                Some(copy_target) => self.discard_both(copy_target, device.discard(run), vec![run]).boxed_local().await,
            };
            let _ = self.note(&device, discarded).map_err(in_data(part, at))?;
        }
        self.clear_unreadable(extent);
        Ok(Written::attest())
    }

    /// Runs of these data blocks on the device; the blocks are about to be changed.
    pub(super) fn changed_runs(&self, extent: Extent) -> SmallVec<[(Extent, Lba); 2]> {
        let runs = self.segments.runs(extent);
        let found: u64 = runs.iter().map(|(part, _)| part.len.0).sum();
        assert_eq!(found, extent.len.0, "what is changed of a member lies within its data");
        runs
    }

    /// True when changes were made that no flush has covered.
    pub(crate) fn needs_flush(&self) -> bool {
        self.flushed.get() < self.written.get() && self.device_in_use(Extent::default()).is_ok()
    }

    /// Makes every change durable that had ended before the call.
    pub(crate) async fn flush(&self) -> Result<Stable, IoError> {
        count(&self.counts.flushes);
        let device = self.device_in_use(Extent::default())?;
        // Taken before the flush: changes that end during it are not covered.
        let (covered, incarnation) = (self.written.get(), self.device_incarnation.get());
        assert!(self.flushed.get() <= covered, "no flush covers what was not written");
        let _in_flight = InFlight::new(&self.counts.in_flight);
        let flush = device.flush(Written::attest());
        let flushed = match self.copy_target() {
            None => flush.await,
            Some(copy_target) => self.flush_both(&copy_target, flush).boxed_local().await,
        };
        let stable = self.note(&device, flushed)?;
        // After an exchange of the device the count belongs to the new one.
        if incarnation == self.device_incarnation.get() {
            self.flushed.set(self.flushed.get().max(covered));
        }
        Ok(stable)
    }

    pub(crate) fn status(&self) -> MemberStatus {
        MemberStatus {
            state: self.state.get(),
            reads: self.counts.reads.get(),
            writes: self.counts.writes.get(),
            flushes: self.counts.flushes.get(),
            discards: self.counts.discards.get(),
            log_writes: self.counts.metadata_writes.get(),
            errors: self.counts.errors.get(),
            timeouts: self.counts.timeouts.get(),
            heals: self.counts.heals.get(),
            in_flight: self.counts.in_flight.get(),
            unreadable_blocks: self.unreadable.borrow().len() as u64,
            copy_front_stripe: self.copy_target().map(|copy_target| copy_target.front_stripe()),
        }
    }

    /// Clears the unreadable marks of blocks that have been written.
    fn clear_unreadable(&self, extent: Extent) {
        let mut unreadable = self.unreadable.borrow_mut();
        if !unreadable.is_empty() {
            unreadable.retain(|block| !(extent.start.0..extent.end().0).contains(block));
        }
    }

    fn device_in_use(&self, extent: Extent) -> Result<Rc<D>, IoError> {
        match self.state.get() {
            MemberState::InService | MemberState::Rebuilding { .. } => {
                Ok(self.device().expect("a member that is in use has a device"))
            }
            MemberState::Failed | MemberState::Missing => Err(IoError::new(IoErrorKind::Gone, extent)),
        }
    }

    async fn ask(&self, device: &Rc<D>, extent: Extent, wait: ReadWait) -> Result<Rope, IoError> {
        let read = match wait {
            // Ends with `TimedOut` at the deadline; the operation itself continues in the device layer (ADR 24).
            ReadWait::Deadline => device.read_hedged(extent).await,
            ReadWait::Unbounded => device.read(extent).await,
        };
        read.map_err(|error| self.of_own_device(device, error))
    }

    /// Counts an error of the device in the place; an operation of a device that has left is not counted.
    fn note<T>(&self, device: &Rc<D>, result: Result<T, IoError>) -> Result<T, IoError> {
        match &result {
            Err(_) if !self.is_device(device) => {}
            // The operation continues; the member may yet complete it.
            Err(error) if error.kind == IoErrorKind::TimedOut => count(&self.counts.timeouts),
            // A device that is gone, or was interrupted in its silence, ends all operations in flight at once. Counted as
            // errors they would look like a disk that fails all of its reads.
            Err(error) if error.kind == IoErrorKind::Gone => {}
            Err(_) => count(&self.counts.errors),
            Ok(_) => {}
        }
        result
    }
}

/// Translates an error of a device run that starts at `at` into blocks of the data.
fn in_data(run: Extent, at: Lba) -> impl FnOnce(IoError) -> IoError {
    move |error| {
        // A device may name blocks before the run; the error then starts with the run.
        let skipped = error.extent.start.0.saturating_sub(at.0);
        error.at(Extent { start: Lba(run.start.0 + skipped), len: error.extent.len })
    }
}

/// Checks that a device is large enough for the place of `member` and has the right block size.
pub(crate) fn admit(needed: Blocks, member: u16, geometry: &Geometry) -> Result<(), ArrayError> {
    // An array does not translate between block sizes.
    if geometry.block_bytes != BLOCK_BYTES {
        return Err(ArrayError::BlockSize { member, block_bytes: geometry.block_bytes });
    }
    let (blocks, needed) = (geometry.blocks.0, needed.0);
    if blocks < needed {
        return Err(ArrayError::MemberTooSmall { member, blocks, needed });
    }
    Ok(())
}
