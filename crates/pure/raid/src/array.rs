//! The array: its public face, and what its parts share.

use crate::bounds::BLOCK_BYTES;
use crate::error::{ArrayError, FailError, RebuildError, ReplaceError};
use crate::geometry::{Layout, MemberSet};
use crate::level::Level;
use crate::locks::Locks;
use crate::logged::Old;
use crate::members::{FailureLog, Member, MemberState, Members, Services, admit};
use crate::on_disk::segments::Segments;
use crate::protect::Protected;
use crate::rebuild::{RebuildOwner, Rebuilt};
use crate::reshape::Moving;
use crate::status::{Status, Tally};
use crate::verify::{Progress, Verified};
use block::{
    Best, BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rank, Rope, Stable, View, Written,
};
use shard::{Detached, Signal};
use std::cell::{Cell, RefCell};
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

/// The shape that commands begin with.
pub(crate) type Current<D> = Rc<RefCell<Rc<Core<D>>>>;

/// The array in one shape. Commands keep the one that they began with; what is behind [`Rc`] all shapes share.
pub(crate) struct Core<D> {
    pub(crate) layout: Layout,
    pub(crate) members: Rc<Members<D>>,
    /// Where the blocks are that are not laid out like this yet, while the array is reshaped.
    pub(crate) moving: Option<Rc<Moving<D>>>,
    pub(crate) locks: Locks,
    pub(crate) background: Rc<Detached>,
    pub(crate) tally: Rc<Tally>,
    /// Stripes whose mirrors may differ after an unclean stop.
    pub(crate) suspect: Rc<RefCell<Vec<Range<u64>>>>,
    /// Whose turn it is among mirrors that are equally good to read from.
    pub(crate) turn: Cell<u16>,
    /// Sums and log, where the array has them.
    pub(crate) protected: Option<Rc<Protected>>,
}

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
        Ok(Self::of(Core {
            layout,
            members: Rc::new(Members::new(layout, places, services)),
            moving: None,
            locks: Locks::new(layout.chunk_blocks(), background.clone()),
            background,
            tally: Rc::default(),
            suspect: Rc::default(),
            turn: Cell::default(),
            protected: None,
        }))
    }

    pub(crate) fn of(core: Core<D>) -> Self {
        Self(Rc::new(RefCell::new(Rc::new(core))))
    }

    /// The array as it is now.
    pub(crate) fn core(&self) -> Rc<Core<D>> {
        self.0.borrow().clone()
    }

    /// The shape of the array.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.core().served()
    }

    /// Data blocks of a stripe.
    #[must_use]
    pub fn stripe_blocks(&self) -> u64 {
        self.core().served().stripe_blocks()
    }

    /// Blocks that the array uses of each member: what a replacement needs.
    #[must_use]
    pub fn member_blocks(&self) -> Blocks {
        self.core().member_blocks()
    }

    /// How many members may fail, whichever they are.
    #[must_use]
    pub fn tolerates(&self) -> u16 {
        self.core().layout.level().tolerates(self.core().layout.members())
    }

    /// The device in the place of `member`, failed or not.
    #[must_use]
    pub fn device(&self, member: u16) -> Option<Rc<D>> {
        self.core().members.find(member)?.device()
    }

    /// What the array is and has done.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core().status()
    }

    /// Where on each member a block of its data lies that findings number so: behind sums and log, where there are any.
    #[must_use]
    pub fn place_of_data(&self, block: u64) -> Lba {
        let core = self.core();
        let Some(protected) = &core.protected else { return Lba(block) };
        protected.segments.runs(Extent::new(block, 1)).first().map_or(Lba(block), |run| run.1)
    }

    /// Never ready; as long as it is polled, what commands have left to be done is done also when no command
    /// comes: writes in place, checkpoints, the record of a failure.
    pub async fn drive(&self) {
        let background = self.core().background.clone();
        background.until(|_| Poll::<()>::Pending).await;
    }

    /// `member` is not used any more, and that is durable.
    ///
    /// *Errors*: see [`FailError`]; the member stays in service unless it says `NotRecorded`.
    pub async fn fail(&self, member: u16) -> Result<(), FailError> {
        let core = self.core();
        let state = core.members.find(member).ok_or(FailError::NoSuchMember(member))?.state();
        match state {
            MemberState::Failed | MemberState::Missing => return Err(FailError::NotInService(member)),
            MemberState::InService | MemberState::Rebuilding { .. } if !core.members.spares(member) => {
                return Err(FailError::Needed(member));
            }
            MemberState::InService | MemberState::Rebuilding { .. } => {}
        }
        let everywhere = self.geometry().all();
        core.members.lose(member, IoError::new(IoErrorKind::Gone, everywhere));
        core.members.failures_recorded(everywhere).await.map_err(FailError::NotRecorded)
    }

    /// The array lets go of the device of a member that has failed, so that it can be opened again.
    /// Without effect on one that is in use.
    pub fn release(&self, member: u16) {
        let core = self.core();
        if let Some(place) = core.members.find(member)
            && matches!(place.state(), MemberState::Failed | MemberState::Missing)
        {
            place.release();
        }
    }

    /// The array is no more: it lets go of all of its devices, and whatever is asked of it is an error.
    pub fn dismantle(&self) {
        let core = self.core();
        core.members.stop(IoError::new(IoErrorKind::Gone, self.geometry().all()));
        core.members.places().iter().for_each(|place| place.release());
    }

    /// `device` is in the place of `member`, which had failed or was missing, and waits for
    /// [`Array::rebuild`].
    ///
    /// *Errors*: see [`ReplaceError`]; nothing has changed then.
    pub fn replace(&self, member: u16, device: D) -> Result<(), ReplaceError> {
        let core = self.core();
        let place = core.members.find(member).ok_or(ReplaceError::NoSuchMember(member))?;
        if core.is_reshaping() {
            return Err(ReplaceError::Reshaping);
        }
        match place.state() {
            MemberState::InService | MemberState::Rebuilding { .. } => return Err(ReplaceError::InUse(member)),
            MemberState::Failed | MemberState::Missing => {}
        }
        admit(core.member_blocks(), member, &device.geometry())?;
        place.replace(device);
        Ok(())
    }

    /// `member`, which was replaced, holds what it should in `stripes`, and is in service.
    ///
    /// *Shape*: `stripes` in ascending order, without overlap; they include every stripe in use. The
    /// host is served meanwhile. *Errors*: see [`RebuildError`]. *Durability*: all that was rebuilt is
    /// flushed before [`RebuildOwner::commit`] is asked, and the member is in service after that.
    pub async fn rebuild(
        &self,
        member: u16,
        stripes: &[Range<u64>],
        owner: &mut impl RebuildOwner,
    ) -> Result<Rebuilt, RebuildError> {
        self.core().rebuild(member, stripes, owner).await
    }

    /// Until they are resynced, mirrors of `stripes` are read from the first copy only.
    ///
    /// For the owner, before it serves an array that was not closed cleanly: two copies may differ, and
    /// a host must not read now one and now the other. [`Array::resync`] says it for its own stripes.
    pub fn mark_suspect(&self, stripes: Range<u64>) {
        let core = self.core();
        if core.protected.is_none() {
            core.suspect.borrow_mut().push(stripes);
        }
    }

    /// Parity and mirrors of `stripes` agree with the data, as after an unclean stop they may not.
    ///
    /// Data is taken for true; of mirrors the first that is in service. What cannot be judged because
    /// data is lost is left as it is and counted. The host is served meanwhile, see
    /// [`Array::mark_suspect`]. `pace` is called after every few stripes.
    pub async fn resync(&self, stripes: Range<u64>, pace: impl AsyncFnMut(Progress)) -> Result<Verified, IoError> {
        self.core().resync(stripes, pace).await
    }

    /// How many of `stripes` have parity or mirrors that disagree with the data. Repairs nothing.
    pub async fn scrub_check(&self, stripes: Range<u64>, pace: impl AsyncFnMut(Progress)) -> Result<Verified, IoError> {
        match self.is_protected() {
            true => self.scrub_counts(stripes, pace).await,
            false => self.core().scrub_check(stripes, pace).await,
        }
    }

    /// From now on reading `extent` of `member` is a medium error, until it is written.
    ///
    /// For the owner, to say again after a restart what [`Rebuilt::unreadable`] said.
    pub fn mark_unreadable(&self, member: u16, extent: Extent) {
        self.core().members.place(member).mark_unreadable(extent);
    }
}

impl<D: BlockDevice + 'static> Drop for Array<D> {
    fn drop(&mut self) {
        // Work in the background holds the core, which holds the work.
        self.core().background.abandon();
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Array<D> {
    fn geometry(&self) -> Geometry {
        let core = self.core();
        let layout = core.served();
        let (mut physical, mut volatile, mut zeroes) = (BLOCK_BYTES, false, true);
        for member in core.members.geometries() {
            physical = physical.max(member.physical_block_bytes);
            volatile |= member.volatile_cache;
            zeroes &= member.discard_zeroes;
        }
        let stripe_bytes = layout.stripe_blocks() * u64::from(BLOCK_BYTES);
        let optimal = if layout.columns() == 1 { physical } else { u32::try_from(stripe_bytes).unwrap_or(u32::MAX) };
        let is_protected = core.protected.is_some();
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
        let core = self.core();
        core.admit(extent)?;
        match &core.moving {
            None => core.read(extent).await,
            Some(moving) => Box::pin(core.read_moving(moving, extent)).await,
        }
    }

    async fn read_best(&self, extent: Extent, rank: Rank<'_>) -> Result<Best, IoError> {
        let core = self.core();
        core.admit(extent)?;
        match core.protected {
            None => core.read_best(extent, rank).await,
            // Sums tell which copy is right.
            Some(_) => Ok(Best { content: self.read(extent).await?.into_view(), repaired: 0 }),
        }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let core = self.core();
        let extent = core.extent_of(start, &data)?;
        match (&core.moving, &core.protected) {
            (None, Some(_)) => core.write_logged(extent, data, Old::Kept).await,
            (None, None) => core.write(extent, data).await,
            (Some(moving), _) => Box::pin(core.write_moving(moving, extent, data, Old::Kept)).await,
        }
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let core = self.core();
        let extent = core.extent_of(start, &data)?;
        match (&core.moving, &core.protected) {
            (None, Some(_)) => core.write_logged(extent, data, Old::Unwanted).await,
            (None, None) => core.write(extent, data).await,
            (Some(moving), _) => Box::pin(core.write_moving(moving, extent, data, Old::Unwanted)).await,
        }
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.core().flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let core = self.core();
        core.admit(extent)?;
        match (&core.moving, &core.protected) {
            (None, Some(_)) => core.discard_logged(extent).await,
            (None, None) => core.discard(extent).await,
            (Some(moving), _) => Box::pin(core.discard_moving(moving, extent)).await,
        }
    }
}

impl<D: BlockDevice + 'static> Core<D> {
    /// The same array in another shape.
    pub(crate) fn reshaped(&self, layout: Layout, places: Box<[Rc<Member<D>>]>, moving: Option<Rc<Moving<D>>>) -> Self {
        Self {
            layout,
            members: Rc::new(self.members.reshaped(layout, places)),
            moving,
            locks: self.locks.clone(),
            background: self.background.clone(),
            tally: self.tally.clone(),
            suspect: self.suspect.clone(),
            turn: Cell::default(),
            protected: self.protected.clone(),
        }
    }

    /// The layout that hosts see: while the array is reshaped, the one that it had.
    pub(crate) fn served(&self) -> Layout {
        self.moving.as_ref().map_or(self.layout, |moving| moving.old.layout)
    }

    /// Blocks that the array needs of each member.
    pub(crate) fn member_blocks(&self) -> Blocks {
        self.protected.as_ref().map_or(self.layout.member_blocks(), |protected| protected.segments.member_blocks())
    }

    fn extent_of(&self, start: Lba, data: &View) -> Result<Extent, IoError> {
        let blocks = (data.len() / BLOCK_BYTES as usize) as u64;
        match Extent::checked(start.0, blocks) {
            Some(extent) if data.len().is_multiple_of(BLOCK_BYTES as usize) => self.admit(extent).map(|()| extent),
            _ => Err(IoError::new(IoErrorKind::OutOfRange, Extent::new(start.0, 0))),
        }
    }

    fn admit(&self, extent: Extent) -> Result<(), IoError> {
        let all = Extent::new(0, self.served().blocks().0);
        if all.contains(extent) { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange, extent)) }
    }

    /// True for a level of which nothing can be restored, and whose stripes need no lock.
    pub(crate) fn is_bare(&self) -> bool {
        self.layout.level() == Level::Raid0
    }
}
