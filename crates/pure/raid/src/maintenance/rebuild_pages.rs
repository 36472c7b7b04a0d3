//! What a rebuild does beside the data: the pages that belong on the member, and what it had missed.

use crate::checksums::cache::Pins;
use crate::error::RebuildError;
use crate::geometry::{Layout, MemberSet, Rows};
use crate::maintenance::rebuild::Rebuild;
use crate::members::Ops;
use crate::on_disk::page::PageId;
use crate::protected::Protected;
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Extent, IoError};
use shard::RangeGuard;
use std::ops::Range;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Rebuild<'_, D> {
    /// The stripes that are to be rebuilt; of a member that has come back also those that commands write which began while it was
    /// absent, and have left it out.
    ///
    /// They are told as missed only when they are logged, and that may be after the return.
    pub(super) async fn with_latecomers(&self, stripes: &[Range<u64>]) -> Result<Vec<Range<u64>>, RebuildError> {
        let mut all = stripes.to_vec();
        if let Some(array) = self.protected
            && self.members.place(self.member).has_come_back()
            && !sabotage::is(Bug::LatecomersForgotten)
        {
            array.locks.passed().await;
            array.settle_fresh().await.map_err(RebuildError::Stopped)?;
            all.extend(array.log.state.missed.stripes(&array.layout));
        }
        self.still_rebuilding()?;
        all.sort_unstable_by_key(|range| range.start);
        all.dedup_by(|later, before| {
            let follows = later.start <= before.end;
            before.end = if follows { before.end.max(later.end) } else { before.end };
            follows
        });
        Ok(all)
    }

    /// The blocks are on the member, and what is known of them in the log: what nobody can give back is lost, also
    /// after a restart. The guard comes back with the answer; when nobody waits for it, it ends with the work.
    pub(super) async fn fill_in(&self, ops: Ops, lost: Vec<Extent>, guard: RangeGuard) -> Result<RangeGuard, IoError> {
        let (stripes, member) = (self.stripes.clone(), self.member);
        let work = async move {
            let remembered = stripes.remember(&ops).await;
            let ended = stripes.members.perform(ops).await;
            let judged = stripes.members.judge(&ended, Extent { start: block::Lba(0), len: stripes.layout.blocks() });
            if let Some(remembered) = remembered.filter(|_| judged.is_ok()) {
                stripes.make_known(remembered).await;
            }
            for extent in lost {
                stripes.mark_lost(member, extent).await;
            }
            judged.map(|()| guard)
        };
        self.stripes.background.finish(work).await
    }

    /// The member has its own pages, those of the member before it, and an anchor, and takes the log.
    ///
    /// From here on checkpoints write to it, so every page that exists is written once more. So do batches: once it is in
    /// service, a batch that it lacks could be on too few members.
    pub(super) async fn join_pages(&self) -> Result<(), IoError> {
        let Some(array) = self.protected else { return Ok(()) };
        let member = self.member;
        self.members.begin_joining(member);
        if !sabotage::is(Bug::JoinsAmidCheckpoint) {
            // The one that runs has begun without it.
            array.log.end_of_checkpoint().await;
        }
        let regions: Vec<u64> = if self.members.place(member).has_come_back() {
            array.log.state.missed.regions.borrow().iter().collect()
        } else {
            array.checksums.pages.used.borrow().iter().collect()
        };
        soil_pages(array, member, &regions).await?;
        array.log.checkpoint_with(MemberSet::only(member)).await
    }

    /// Nobody is absent any more, so nobody has missed anything.
    pub(super) fn forget_missed(&self) {
        if let Some(array) = self.protected
            && self.members.not_in_service() == MemberSet::NONE
        {
            array.log.state.missed.regions.borrow_mut().clear();
        }
    }
}

/// The rows of a member's chunk that have to be restored: all, or those that were ever written, on any mirror: a
/// member that was added has no entries of its own yet.
pub(super) async fn written_rows<D: BlockDevice + 'static>(
    layout: &Layout,
    protected: Option<&Rc<Protected<D>>>,
    member: u16,
    stripe: u64,
) -> Vec<Rows> {
    let all = layout.all_rows();
    let Some(array) = protected else { return vec![all] };
    let chunk = layout.member_extent(stripe, all);
    let (copies, mut pins) = (layout.copies(), Pins::new(&array.checksums.pages.cache));
    let mirrors = member / copies * copies..(member / copies + 1) * copies;
    for mirror in mirrors.clone() {
        array.checksums.hold_more(&mut pins, mirror, chunk).await;
    }
    let mut runs: Vec<Rows> = Vec::new();
    for row in all.start..all.end {
        let is_unwritten = |mirror| array.checksums.entry(mirror, chunk.start.0 + row).is_unwritten();
        if mirrors.clone().all(is_unwritten) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => runs.push(Rows::new(row, row + 1)),
        }
    }
    runs
}

/// The pages of the member in these regions, and those of the member before it, which lie on it as well, are written once more.
pub(super) async fn soil_pages<D: BlockDevice + 'static>(
    array: &Rc<Protected<D>>,
    member: u16,
    regions: &[u64],
) -> Result<(), IoError> {
    let before = (member + array.members.width() - 1) % array.members.width();
    let per_region = array.checksums.pages.segments.region_pages();
    for page in regions.iter().flat_map(|region| region * per_region..(region + 1) * per_region) {
        if page >= array.checksums.pages.segments.pages() {
            break;
        }
        for id in [PageId { member, page }, PageId { member: before, page }] {
            let blocks = crate::on_disk::page::blocks_of(page);
            let pins = array.checksums.hold_pages(id.member, blocks).await;
            array.checksums.pages.cache.borrow_mut().soil(id);
            drop(pins);
        }
        if array.checksums.pages.cache.borrow().dirty() > array.checksums.pages.cache.borrow().dirty_max() {
            array.log.checkpoint().await?;
        }
    }
    Ok(())
}
