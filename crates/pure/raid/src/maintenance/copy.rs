//! Copy of a member to a spare device beside it, which then takes its place, during host I/O.
//!
//! The member stays in service, and redundancy is not reduced. Every change goes to both devices from the start, so
//! one walk over the stripes under their locks copies the data. Pages are written once more to both.

use crate::array::Array;
use crate::error::CopyError;
use crate::geometry::{Layout, MemberSet};
use crate::maintenance::rebuild::{Losses, RebuildOwner, Rebuilt, lost_with};
use crate::maintenance::rebuild_pages::{mark_pages_dirty, written_rows};
use crate::members::{CopyTarget, MemberState, Members, admit};
use crate::protected::Protected;
use crate::status::Progress;
use crate::stripes::{Excluded, Stripes};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Stable};
use std::ops::Range;
use std::rc::Rc;

/// Running copy of one member.
struct Copying<'a, D: BlockDevice + 'static> {
    stripes: &'a Rc<Stripes<D>>,
    members: &'a Rc<Members<D>>,
    protected: Option<&'a Rc<Protected<D>>>,
    layout: Layout,
    member: u16,
    incarnation: u64,
    copy_target: Rc<CopyTarget<D>>,
}

impl<D: BlockDevice + 'static> Drop for Copying<'_, D> {
    /// Drops the new device, unless it has taken the place.
    fn drop(&mut self) {
        self.members.place(self.member).end_copy();
    }
}

impl<D: BlockDevice + 'static> Array<D> {
    /// Copies `member`, which stays in service, to `device`, and puts `device` into its place: it then holds what the
    /// member held in `stripes`.
    ///
    /// Blocks that the member cannot read come from redundancy; blocks that cannot be restored are lost, as in a
    /// rebuild. *Shape*: `stripes` as for [`Array::rebuild`]. *Errors*: see [`CopyError`]; the member then serves as
    /// before, unless it failed itself. *Durability*: everything copied is flushed before [`RebuildOwner::commit`] is
    /// called, which promises that after any crash `device` is the member; from then on a failed write of `device`
    /// fails the member.
    pub async fn copy_member(
        &self,
        member: u16,
        device: D,
        stripes: &[Range<u64>],
        owner: &mut impl RebuildOwner,
    ) -> Result<Rebuilt, CopyError> {
        let path = self.path();
        let (all, members) = (path.stripes(), path.members());
        let place = members.find(member).ok_or(CopyError::NotInService(member))?;
        if place.state() != MemberState::InService || place.copy_target().is_some() || member >= members.counted_len() {
            return Err(CopyError::NotInService(member));
        }
        if path.is_reshaping() || path.protected().is_some_and(|array| array.commands.growing.get()) {
            return Err(CopyError::Reshaping);
        }
        admit(path.member_blocks(), member, &device.geometry()).map_err(CopyError::Unfit)?;
        let (protected, layout, incarnation) = (path.protected(), all.layout, place.device_incarnation.get());
        let copy_target = place.begin_copy(device);
        let copying = Copying { stripes: all, members, protected, layout, member, incarnation, copy_target };
        let copied = copying.copy(stripes, owner).await?;
        copying.copy_pages().await?;
        let flushed = copying.flush().await?;
        // Before the commit: from the moment the owner may have recorded it, `device` must not lack a write.
        place.require_copy(&copying.copy_target);
        copying.still_copying()?;
        let committed: Result<Stable, IoError> = owner.commit(member, flushed, &copied).await;
        let _committed: Stable = committed.map_err(CopyError::Stopped)?;
        if let Some(error) = copying.copy_target.failed() {
            // After any crash this device is the member, and it lacks a write.
            members.mark_failed(member, error);
            return Err(CopyError::CopyLost(error));
        }
        // The member may have failed while the owner committed.
        copying.still_copying()?;
        place.promote(&copying.copy_target);
        Ok(copied)
    }
}

impl<D: BlockDevice + 'static> Copying<'_, D> {
    async fn copy(&self, stripes: &[Range<u64>], owner: &mut impl RebuildOwner) -> Result<Rebuilt, CopyError> {
        let total = stripes.iter().map(|range| range.end - range.start).sum();
        let mut copied = Rebuilt::default();
        for step in stripes.iter().flat_map(|range| self.layout.steps(range.clone())) {
            let end = step.end;
            let length = step.end - step.start;
            let losses = self.copy_step(step).await?;
            copied.add(length, losses);
            // For the progress only: both devices get every write from the start.
            self.copy_target.advance(end);
            owner.pace(Progress { done: copied.stripes, total, front_stripe: end }).await;
        }
        assert!(copied.stripes == total, "every stripe is copied once");
        Ok(copied)
    }

    /// Copies the stripes of `step` to the new device.
    async fn copy_step(&self, step: Range<u64>) -> Result<Losses, CopyError> {
        // Writes of hosts go to both devices; the lock keeps one from being overwritten with what was read before it.
        let _guard = self.stripes.locks.exclusive(step.clone()).await;
        self.still_copying()?;
        // Fresh entries are logged first: what is logged for these blocks below must come after them.
        if let Some(array) = self.protected {
            array.settle_stripes(&step).await.map_err(CopyError::Stopped)?;
        }
        let mut losses = Losses::default();
        for stripe in step {
            let role = self.layout.role_of(stripe, self.member);
            for rows in written_rows(&self.layout, self.protected, self.member, stripe).await {
                // Nothing is excluded, so the content comes from the member itself where it can be read.
                for part in self.stripes.salvage(stripe, role, rows, Excluded::default()).await {
                    let extent = self.layout.member_extent(stripe, part.rows);
                    match part.content {
                        Ok(view) => {
                            let written = self
                                .members
                                .place(self.member)
                                .write_copy_target(&self.copy_target, extent, view)
                                .await;
                            written.map_err(CopyError::CopyLost)?;
                        }
                        Err(_) => {
                            // A failed member or array explains the error, and the block is not lost then.
                            self.still_copying()?;
                            let excluded = Excluded::default();
                            self.members.place(self.member).mark_unreadable(extent);
                            losses.add(extent, lost_with(self.stripes, stripe, role, part.rows, excluded).await);
                            self.stripes.mark_lost(self.member, extent).await;
                        }
                    }
                }
            }
        }
        self.still_copying()?;
        Ok(losses)
    }

    /// Writes the member's pages, those of the member before it, and an anchor to both devices.
    async fn copy_pages(&self) -> Result<(), CopyError> {
        let Some(array) = self.protected else { return Ok(()) };
        // A running checkpoint may have written pages before the new device was added.
        array.log.end_of_checkpoint().await;
        let regions: Vec<u64> = array.checksums.pages.used.borrow().iter().collect();
        mark_pages_dirty(array, self.member, &regions).await.map_err(CopyError::Stopped)?;
        array.log.checkpoint_with(MemberSet::NONE).await.map_err(CopyError::Stopped)?;
        self.still_copying()
    }

    /// Flushes both devices.
    async fn flush(&self) -> Result<Stable, CopyError> {
        let flushed = self.members.flush_member(self.member).await;
        // Names the device that failed, where one has, instead of the error of the flush.
        self.still_copying()?;
        flushed.map_err(CopyError::Stopped)
    }

    /// Fails when the member or the new device has failed, or the array has stopped.
    fn still_copying(&self) -> Result<(), CopyError> {
        let everywhere = Extent::new(0, self.layout.blocks().0);
        self.members.serving(everywhere).map_err(CopyError::Stopped)?;
        if let Some(error) = self.copy_target.failed() {
            return Err(CopyError::CopyLost(error));
        }
        let place = self.members.place(self.member);
        if place.state() != MemberState::InService || place.device_incarnation.get() != self.incarnation {
            return Err(CopyError::MemberLost(IoError::new(IoErrorKind::Gone, everywhere)));
        }
        Ok(())
    }
}
