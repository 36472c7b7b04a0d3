//! The array as seen by its owner and its hosts: construction, status, member changes, and the `BlockDevice`
//! commands.
//!
//! Formatting and opening are in `open`, rebuild, scrub and growth in `maintenance`.

use crate::bounds::BLOCK_BYTES;
use crate::error::{ArrayError, FailError, ReplaceError};
use crate::geometry::{Layout, MemberSet};
use crate::locks::Locks;
use crate::members::{FailureLog, Member, MemberState, Members, Services, admit};
use crate::on_disk::segments::Segments;
use crate::path::{Current, Path, on_path};
use crate::plain::Plain;
use crate::protected::OldContent;
use crate::status::Status;
use crate::stripes::Stripes;
use block::{
    BestCopy, BlockDevice, Blocks, Extent, GenerationFn, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View,
    Written,
};
use shard::{Detached, Signal};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

/// RAID array: several devices that serve as one block device and keep serving when some of them fail.
///
/// Lives on one shard; its operations run concurrently there. Members are best wrapped in [`shard::GroupCommit`], so
/// that concurrent flushes share one.
///
/// A stripe of a plain array is redundant only once it was written whole or resynced: parity over blocks that were
/// never written is neither trusted nor maintained. The owner therefore writes zeros to new stripes before it hands
/// them out.
pub struct Array<D: BlockDevice + 'static>(pub(crate) Current<D>);

impl<D: BlockDevice + 'static> Array<D> {
    /// Assembles a plain array from `members`, in the order of their places; a missing one is `None`.
    ///
    /// *Errors*: a sentence for the operator, when a member does not fit the layout or too many are missing. Nothing
    /// is read or written.
    pub fn new(layout: Layout, members: Vec<Option<D>>, log: Rc<dyn FailureLog>) -> Result<Self, ArrayError> {
        if members.len() != usize::from(layout.members()) {
            return Err(ArrayError::MemberCount { expected: layout.members(), members: members.len() });
        }
        for (member, device) in (0..).zip(&members) {
            device.as_ref().map_or(Ok(()), |device| admit(layout.member_blocks(), member, &device.geometry()))?;
        }
        // Only survivable losses are accepted, so every later command can rely on enough members.
        let missing: MemberSet = (0..).zip(&members).filter(|(_, device)| device.is_none()).map(|(m, _)| m).collect();
        if !layout.survives(missing) {
            return Err(ArrayError::TooManyMissing { level: layout.level(), missing: usize::from(missing.len()) });
        }
        let segments = Rc::new(Segments::plain());
        let places = members.into_iter().map(|device| Rc::new(Member::new(device, segments.clone()))).collect();
        let (background, changed) = (Rc::<Detached>::default(), Rc::<Signal>::default());
        // A plain array has no log that could name missed regions, so an absent member is always rebuilt completely.
        let services = Services { log, missed: None, pause: None, background: background.clone(), changed };
        let members = Rc::new(Members::new(layout, places, services));
        let locks = Locks::new(layout.chunk_blocks(), background.clone());
        let stripes = Rc::new(Stripes::new(members, locks, background, Rc::default(), None));
        Ok(Self::of(Path::Plain(Rc::new(Plain { stripes }))))
    }

    pub(crate) fn of(path: Path<D>) -> Self {
        Self(Rc::new(RefCell::new(path)))
    }

    /// The path that a command starting now takes.
    pub(crate) fn path(&self) -> Path<D> {
        self.0.borrow().clone()
    }

    /// Layout that hosts see; during a reshape the one before it.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.path().served()
    }

    /// Data blocks of a stripe.
    #[must_use]
    pub fn stripe_blocks(&self) -> u64 {
        self.path().served().stripe_blocks()
    }

    /// Blocks that the array uses of each member: the minimum size of a replacement.
    #[must_use]
    pub fn member_blocks(&self) -> Blocks {
        self.path().member_blocks()
    }

    /// Number of members that may fail in any combination.
    #[must_use]
    pub fn tolerates(&self) -> u16 {
        self.path().stripes().layout.level().tolerates(self.path().stripes().layout.members())
    }

    /// The device in the place of `member`, failed or not; `None` where the place is unknown or empty.
    #[must_use]
    pub fn device(&self, member: u16) -> Option<Rc<D>> {
        self.path().members().find(member)?.device()
    }

    /// Returns a snapshot of the members' states, the counters and the progress of a reshape.
    #[must_use]
    pub fn status(&self) -> Status {
        let path = self.path();
        let Stripes { layout, members, tally, .. } = &**path.stripes();
        Status {
            level: layout.level(),
            chunk_blocks: layout.chunk_blocks(),
            stripes: layout.stripes(),
            reshape: path.reshaping().map(|array| array.progress()),
            stopped: members.stopped_by(),
            // Every place, also that of a member that is still joining.
            members: members.places().iter().map(|member| member.status()).collect(),
            counters: tally.counters(),
            protection: path.protected().map(|array| array.protection_status()),
        }
    }

    /// Address on a member of block `block` of its data area, as findings number it; in a protected array the data
    /// lies behind checksums and log.
    #[must_use]
    pub fn place_of_data(&self, block: u64) -> Lba {
        let path = self.path();
        let Some(protected) = path.protected() else { return Lba(block) };
        // Behind a growth the data is not contiguous, so each block is located by its segment.
        protected.checksums.pages.segments.runs(Extent::new(block, 1)).first().map_or(Lba(block), |run| run.1)
    }

    /// Drives background work while it is polled; never completes.
    ///
    /// In-place writes, checkpoints and the recording of failures then make progress also when no command is running.
    pub async fn drive(&self) {
        let background = self.path().background().clone();
        // Polling this future polls the background work; the future itself has nothing to wait for.
        background.until(|_| Poll::<()>::Pending).await;
    }

    /// Marks `member` as failed and records that durably.
    ///
    /// *Errors*: see [`FailError`]; the member stays in service unless the error is `NotRecorded`.
    pub async fn fail(&self, member: u16) -> Result<(), FailError> {
        let path = self.path();
        let state = path.members().find(member).ok_or(FailError::NoSuchMember(member))?.state();
        match state {
            MemberState::Failed | MemberState::Missing => return Err(FailError::NotInService(member)),
            // A member whose loss the array could not survive is never failed by command.
            MemberState::InService | MemberState::Rebuilding { .. } if !path.members().can_lose(member) => {
                return Err(FailError::Needed(member));
            }
            MemberState::InService | MemberState::Rebuilding { .. } => {}
        }
        let everywhere = self.geometry().all();
        // The failure takes effect before it is durable: from here on no command uses the member, and none is
        // acknowledged before the owner has recorded the failure.
        path.members().mark_failed(member, IoError::new(IoErrorKind::Gone, everywhere));
        path.members().failures_recorded(everywhere).await.map_err(FailError::NotRecorded)
    }

    /// Remaining redundancy without `member`: 1 where any further member may fail then, 0 where none may; `None`
    /// where the array cannot serve without `member`, or already does.
    #[must_use]
    pub fn redundancy_without(&self, member: u16) -> Option<u16> {
        let path = self.path();
        match path.members().find(member)?.state() {
            MemberState::Failed | MemberState::Missing => None,
            MemberState::InService | MemberState::Rebuilding { .. } => path.members().redundancy_without(member),
        }
    }

    /// Marks `member` as failed with `TimedOut` because it does not respond. The failure is durable before any
    /// command that the member missed is acknowledged. No effect on a member that the array needs.
    ///
    /// In-flight operations on its device keep waiting: the caller interrupts the device next.
    pub fn fail_unresponsive(&self, member: u16) {
        // Decided again here: another member may have failed since the caller judged the silence.
        if self.redundancy_without(member).is_some() {
            self.path().members().mark_failed(member, IoError::new(IoErrorKind::TimedOut, self.geometry().all()));
        }
    }

    /// Drops the device of a failed or missing member, so that it can be opened again. No effect on a member in use.
    pub fn drop_device(&self, member: u16) {
        // A device in use stays: in-flight commands hold it.
        let path = self.path();
        if let Some(place) = path.members().find(member)
            && matches!(place.state(), MemberState::Failed | MemberState::Missing)
        {
            place.drop_device();
        }
    }

    /// Resets the error counters of the place of `member`; called when another disk has taken the place.
    pub fn reset_error_counters(&self, member: u16) {
        if let Some(place) = self.path().members().find(member) {
            place.reset_error_counters();
        }
    }

    /// Stops the array and drops all of its devices; every later command fails with `Gone`.
    pub fn shut_down(&self) {
        let path = self.path();
        // Stopped first, so that no command starts on a device that is being dropped.
        path.members().stop(IoError::new(IoErrorKind::Gone, self.geometry().all()));
        path.members().places().iter().for_each(|place| place.drop_device());
    }

    /// Puts `device` into the place of the failed or missing `member`; [`Array::rebuild`] fills it.
    ///
    /// *Errors*: see [`ReplaceError`]; nothing has changed then.
    pub fn replace(&self, member: u16, device: D) -> Result<(), ReplaceError> {
        let path = self.path();
        let place = path.members().find(member).ok_or(ReplaceError::NoSuchMember(member))?;
        // A replaced place would be a third layout within one array.
        if path.is_reshaping() {
            return Err(ReplaceError::Reshaping);
        }
        match place.state() {
            MemberState::InService | MemberState::Rebuilding { .. } => return Err(ReplaceError::InUse(member)),
            MemberState::Failed | MemberState::Missing => {}
        }
        admit(path.member_blocks(), member, &device.geometry())?;
        place.replace(device);
        Ok(())
    }

    /// Makes the mirrors of `stripes` agree before they are read, until they are resynced.
    ///
    /// Called by the owner before it serves an array that was not closed cleanly: two copies may differ, and a host
    /// must not read first one and then the other, not even when a later read of the first one fails. [`Array::resync`] does it for its own stripes. No effect on a
    /// protected array.
    pub fn mark_suspect(&self, stripes: Range<u64>) {
        let path = self.path();
        if path.protected().is_none() {
            path.stripes().suspect.borrow_mut().push(stripes);
        }
    }

    /// Makes reads of `extent` of `member` fail with a medium error until it is written.
    ///
    /// The owner calls it after a restart with the blocks that [`Rebuilt::unreadable`] had listed.
    pub fn mark_unreadable(&self, member: u16, extent: Extent) {
        self.path().members().place(member).mark_unreadable(extent);
    }
}

impl<D: BlockDevice + 'static> Drop for Array<D> {
    fn drop(&mut self) {
        // Background tasks hold the array, and the array holds the tasks; breaks this reference cycle.
        self.path().background().abandon();
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Array<D> {
    fn geometry(&self) -> Geometry {
        let path = self.path();
        let layout = path.served();
        let (mut physical, mut volatile, mut zeroes) = (BLOCK_BYTES, false, true);
        for member in path.members().geometries() {
            // The worst of all members: a command may reach any of them.
            physical = physical.max(member.physical_block_bytes);
            volatile |= member.volatile_cache;
            zeroes &= member.discard_zeroes;
        }
        let stripe_bytes = layout.stripe_blocks() * u64::from(BLOCK_BYTES);
        // A mirror has no preferred write size above its physical block.
        let optimal = if layout.columns() == 1 { physical } else { u32::try_from(stripe_bytes).unwrap_or(u32::MAX) };
        let is_protected = path.protected().is_some();
        Geometry {
            block_bytes: BLOCK_BYTES,
            blocks: layout.blocks(),
            physical_block_bytes: physical,
            optimal_bytes: optimal.max(physical),
            // Fresh writes reach the log only with a flush.
            volatile_cache: volatile || is_protected,
            // With parity a partial stripe keeps its content, unless checksums record which blocks were never
            // written.
            discard_zeroes: is_protected || zeroes && !layout.has_parity(),
            prefers_unlogged: is_protected && layout.has_parity(),
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let path = self.path();
        admit_extent(&path, extent)?;
        if let Path::Plain(array) = &path
            && array.stripes.is_any_suspect()
        {
            // Boxed: this is rare, and one more level of futures would be too deep for the compiler.
            Box::pin(array.settle_mirrors(extent)).await?;
        }
        on_path!(&path, array => array.read(extent))
    }

    async fn read_best(&self, extent: Extent, rank: GenerationFn<'_>) -> Result<BestCopy, IoError> {
        let path = self.path();
        admit_extent(&path, extent)?;
        match path {
            Path::Plain(array) => array.read_best(extent, rank).await,
            // Checksums already decide which copy is right, so the ranking is not needed.
            path => {
                let read: Result<Rope, IoError> = on_path!(&path, array => array.read(extent));
                Ok(BestCopy { content: read?.into_view(), repaired: 0 })
            }
        }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let path = self.path();
        let extent = extent_of(&path, start, &data)?;
        on_path!(&path, array => array.write(extent, data, OldContent::Preserve))
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let path = self.path();
        let extent = extent_of(&path, start, &data)?;
        on_path!(&path, array => array.write(extent, data, OldContent::Dead))
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        on_path!(&self.path(), array => array.flush())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let path = self.path();
        admit_extent(&path, extent)?;
        on_path!(&path, array => array.discard(extent))
    }
}

/// Returns the extent that `data` covers from `start` on; `OutOfRange` for partial blocks or blocks beyond the array.
fn extent_of<D: BlockDevice + 'static>(path: &Path<D>, start: Lba, data: &View) -> Result<Extent, IoError> {
    let blocks = (data.len() / BLOCK_BYTES as usize) as u64;
    match Extent::checked(start.0, blocks) {
        Some(extent) if data.len().is_multiple_of(BLOCK_BYTES as usize) => admit_extent(path, extent).map(|()| extent),
        _ => Err(IoError::new(IoErrorKind::OutOfRange, Extent::new(start.0, 0))),
    }
}

/// Checks that `extent` lies within the blocks that hosts see.
fn admit_extent<D: BlockDevice + 'static>(path: &Path<D>, extent: Extent) -> Result<(), IoError> {
    let all = Extent::new(0, path.served().blocks().0);
    if all.contains(extent) { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange, extent)) }
}
