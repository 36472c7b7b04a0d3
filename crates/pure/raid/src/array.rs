//! The array as its owner and its hosts see it. Maintenance adds its own commands (`maintenance`, `open`).

use crate::bounds::BLOCK_BYTES;
use crate::error::{ArrayError, FailError, ReplaceError};
use crate::geometry::{Layout, MemberSet};
use crate::locks::Locks;
use crate::members::{FailureLog, Member, MemberState, Members, Services, admit};
use crate::on_disk::segments::Segments;
use crate::path::{Current, Path, on_path};
use crate::plain::Plain;
use crate::protected::Old;
use crate::status::Status;
use crate::stripes::Stripes;
use block::{
    Best, BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rank, Rope, Stable, View, Written,
};
use shard::{Detached, Signal};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

/// Several devices that serve as one, and go on serving when some fail.
///
/// Lives on one shard; its operations run concurrently there. Members are best wrapped in
/// [`shard::GroupCommit`], so that concurrent flushes share one.
///
/// A stripe is protected once it was written whole or resynced: parity over blocks that nobody ever
/// wrote is not believed, nor kept. Whoever hands out stripes writes zeros to them first.
pub struct Array<D: BlockDevice + 'static>(pub(crate) Current<D>);

impl<D: BlockDevice + 'static> Array<D> {
    /// The array of these members, in the order of their places; a missing one is `None`.
    ///
    /// *Errors*: a sentence for the operator, when a member does not fit the layout or too many are
    /// missing. Nothing is read or written.
    pub fn new(layout: Layout, members: Vec<Option<D>>, log: Rc<dyn FailureLog>) -> Result<Self, ArrayError> {
        if members.len() != usize::from(layout.members()) {
            return Err(ArrayError::MemberCount { expected: layout.members(), members: members.len() });
        }
        for (member, device) in (0..).zip(&members) {
            device.as_ref().map_or(Ok(()), |device| admit(layout.member_blocks(), member, &device.geometry()))?;
        }
        let missing: MemberSet = (0..).zip(&members).filter(|(_, device)| device.is_none()).map(|(m, _)| m).collect();
        if !layout.survives(missing) {
            return Err(ArrayError::TooManyMissing { level: layout.level(), missing: usize::from(missing.len()) });
        }
        let segments = Rc::new(Segments::plain());
        let places = members.into_iter().map(|device| Rc::new(Member::new(device, segments.clone()))).collect();
        let (background, changed) = (Rc::<Detached>::default(), Rc::<Signal>::default());
        let services = Services { log, missed: None, pause: None, background: background.clone(), changed };
        let members = Rc::new(Members::new(layout, places, services));
        let locks = Locks::new(layout.chunk_blocks(), background.clone());
        let stripes = Rc::new(Stripes::new(members, locks, background, Rc::default(), None));
        Ok(Self::of(Path::Plain(Rc::new(Plain { stripes }))))
    }

    pub(crate) fn of(path: Path<D>) -> Self {
        Self(Rc::new(RefCell::new(path)))
    }

    /// The array as it is now.
    pub(crate) fn path(&self) -> Path<D> {
        self.0.borrow().clone()
    }

    /// The shape of the array.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.path().served()
    }

    /// Data blocks of a stripe.
    #[must_use]
    pub fn stripe_blocks(&self) -> u64 {
        self.path().served().stripe_blocks()
    }

    /// Blocks that the array uses of each member: what a replacement needs.
    #[must_use]
    pub fn member_blocks(&self) -> Blocks {
        self.path().member_blocks()
    }

    /// How many members may fail, whichever they are.
    #[must_use]
    pub fn tolerates(&self) -> u16 {
        self.path().stripes().layout.level().tolerates(self.path().stripes().layout.members())
    }

    /// The device in the place of `member`, failed or not.
    #[must_use]
    pub fn device(&self, member: u16) -> Option<Rc<D>> {
        self.path().members().find(member)?.device()
    }

    /// What the array is and has done.
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
            members: members.places().iter().map(|member| member.status()).collect(),
            counters: tally.counters(),
            protection: path.protected().map(|array| array.protection_status()),
        }
    }

    /// Where on each member a block of its data lies that findings number so: behind sums and log, where there are any.
    #[must_use]
    pub fn place_of_data(&self, block: u64) -> Lba {
        let path = self.path();
        let Some(protected) = path.protected() else { return Lba(block) };
        protected.checksums.pages.segments.runs(Extent::new(block, 1)).first().map_or(Lba(block), |run| run.1)
    }

    /// Never ready; as long as it is polled, what commands have left to be done is done also when no command
    /// comes: writes in place, checkpoints, the record of a failure.
    pub async fn drive(&self) {
        let background = self.path().background().clone();
        background.until(|_| Poll::<()>::Pending).await;
    }

    /// `member` is not used any more, and that is durable.
    ///
    /// *Errors*: see [`FailError`]; the member stays in service unless it says `NotRecorded`.
    pub async fn fail(&self, member: u16) -> Result<(), FailError> {
        let path = self.path();
        let state = path.members().find(member).ok_or(FailError::NoSuchMember(member))?.state();
        match state {
            MemberState::Failed | MemberState::Missing => return Err(FailError::NotInService(member)),
            MemberState::InService | MemberState::Rebuilding { .. } if !path.members().spares(member) => {
                return Err(FailError::Needed(member));
            }
            MemberState::InService | MemberState::Rebuilding { .. } => {}
        }
        let everywhere = self.geometry().all();
        path.members().lose(member, IoError::new(IoErrorKind::Gone, everywhere));
        path.members().failures_recorded(everywhere).await.map_err(FailError::NotRecorded)
    }

    /// 1 where any further member may be lost once `member` is not used, 0 where none may be; `None` where the array cannot
    /// do without `member`, or does already.
    #[must_use]
    pub fn spare_without(&self, member: u16) -> Option<u16> {
        let path = self.path();
        match path.members().find(member)?.state() {
            MemberState::Failed | MemberState::Missing => None,
            MemberState::InService | MemberState::Rebuilding { .. } => path.members().spare_without(member),
        }
    }

    /// `member` is not used any more because it does not answer; that is durable before any command that it missed is
    /// answered. Without effect on one that the array cannot do without.
    ///
    /// What is under way on its device goes on waiting: the caller interrupts it next.
    pub fn give_up(&self, member: u16) {
        if self.spare_without(member).is_some() {
            self.path().members().lose(member, IoError::new(IoErrorKind::TimedOut, self.geometry().all()));
        }
    }

    /// The array lets go of the device of a member that has failed, so that it can be opened again.
    /// Without effect on one that is in use.
    pub fn release(&self, member: u16) {
        let path = self.path();
        if let Some(place) = path.members().find(member)
            && matches!(place.state(), MemberState::Failed | MemberState::Missing)
        {
            place.release();
        }
    }

    /// What went wrong in the place of `member` until now is not counted any more: it was another disk's.
    pub fn forget_errors(&self, member: u16) {
        if let Some(place) = self.path().members().find(member) {
            place.forget_errors();
        }
    }

    /// The array is no more: it lets go of all of its devices, and whatever is asked of it is an error.
    pub fn dismantle(&self) {
        let path = self.path();
        path.members().stop(IoError::new(IoErrorKind::Gone, self.geometry().all()));
        path.members().places().iter().for_each(|place| place.release());
    }

    /// `device` is in the place of `member`, which had failed or was missing, and waits for
    /// [`Array::rebuild`].
    ///
    /// *Errors*: see [`ReplaceError`]; nothing has changed then.
    pub fn replace(&self, member: u16, device: D) -> Result<(), ReplaceError> {
        let path = self.path();
        let place = path.members().find(member).ok_or(ReplaceError::NoSuchMember(member))?;
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

    /// Until they are resynced, mirrors of `stripes` are read from the first copy only.
    ///
    /// For the owner, before it serves an array that was not closed cleanly: two copies may differ, and
    /// a host must not read now one and now the other. [`Array::resync`] says it for its own stripes.
    pub fn mark_suspect(&self, stripes: Range<u64>) {
        let path = self.path();
        if path.protected().is_none() {
            path.stripes().suspect.borrow_mut().push(stripes);
        }
    }

    /// From now on reading `extent` of `member` is a medium error, until it is written.
    ///
    /// For the owner, to say again after a restart what [`Rebuilt::unreadable`] said.
    pub fn mark_unreadable(&self, member: u16, extent: Extent) {
        self.path().members().place(member).mark_unreadable(extent);
    }
}

impl<D: BlockDevice + 'static> Drop for Array<D> {
    fn drop(&mut self) {
        // Work in the background holds the array, which holds the work.
        self.path().background().abandon();
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Array<D> {
    fn geometry(&self) -> Geometry {
        let path = self.path();
        let layout = path.served();
        let (mut physical, mut volatile, mut zeroes) = (BLOCK_BYTES, false, true);
        for member in path.members().geometries() {
            physical = physical.max(member.physical_block_bytes);
            volatile |= member.volatile_cache;
            zeroes &= member.discard_zeroes;
        }
        let stripe_bytes = layout.stripe_blocks() * u64::from(BLOCK_BYTES);
        let optimal = if layout.columns() == 1 { physical } else { u32::try_from(stripe_bytes).unwrap_or(u32::MAX) };
        let is_protected = path.protected().is_some();
        Geometry {
            block_bytes: BLOCK_BYTES,
            blocks: layout.blocks(),
            physical_block_bytes: physical,
            optimal_bytes: optimal.max(physical),
            // Fresh writes are in the log only after a flush.
            volatile_cache: volatile || is_protected,
            // With parity, what is no whole stripe keeps its content, unless sums say what was never written.
            discard_zeroes: is_protected || zeroes && !layout.has_parity(),
            prefers_fresh: is_protected && layout.has_parity(),
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let path = self.path();
        admit_extent(&path, extent)?;
        on_path!(&path, array => array.read(extent))
    }

    async fn read_best(&self, extent: Extent, rank: Rank<'_>) -> Result<Best, IoError> {
        let path = self.path();
        admit_extent(&path, extent)?;
        match path {
            Path::Plain(array) => array.read_best(extent, rank).await,
            // Checksums tell which copy is right.
            path => {
                let read: Result<Rope, IoError> = on_path!(&path, array => array.read(extent));
                Ok(Best { content: read?.into_view(), repaired: 0 })
            }
        }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let path = self.path();
        let extent = extent_of(&path, start, &data)?;
        on_path!(&path, array => array.write(extent, data, Old::Kept))
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let path = self.path();
        let extent = extent_of(&path, start, &data)?;
        on_path!(&path, array => array.write(extent, data, Old::Unwanted))
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

/// The blocks that `data` fills from `start` on, where the array has them.
fn extent_of<D: BlockDevice + 'static>(path: &Path<D>, start: Lba, data: &View) -> Result<Extent, IoError> {
    let blocks = (data.len() / BLOCK_BYTES as usize) as u64;
    match Extent::checked(start.0, blocks) {
        Some(extent) if data.len().is_multiple_of(BLOCK_BYTES as usize) => admit_extent(path, extent).map(|()| extent),
        _ => Err(IoError::new(IoErrorKind::OutOfRange, Extent::new(start.0, 0))),
    }
}

/// Admits blocks that hosts see.
fn admit_extent<D: BlockDevice + 'static>(path: &Path<D>, extent: Extent) -> Result<(), IoError> {
    let all = Extent::new(0, path.served().blocks().0);
    if all.contains(extent) { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange, extent)) }
}
