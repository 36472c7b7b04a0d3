//! Metadata side of a rebuild: the pages that belong on the member, and the regions that it had missed.

use crate::bug_injection::{self, InjectedBug};
use crate::checksums::cache::Pins;
use crate::error::RebuildError;
use crate::geometry::{Layout, MemberSet, Rows};
use crate::maintenance::rebuild::Rebuild;
use crate::members::Ops;
use crate::on_disk::page::PageId;
use crate::protected::Protected;
use block::{BlockDevice, Extent, IoError};
use shard::RangeGuard;
use std::ops::Range;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Rebuild<'_, D> {
    /// Returns the stripes to rebuild; for a returned member also stripes written by commands that started while it
    /// was absent, and have left it out.
    ///
    /// Such commands note what it misses only when they are logged, which may be after its return.
    pub(super) async fn with_missed_by_inflight(
        &self,
        stripes: &[Range<u64>],
    ) -> Result<Vec<Range<u64>>, RebuildError> {
        let mut all = stripes.to_vec();
        if let Some(array) = self.protected
            && self.members.place(self.member).is_returned()
            && !bug_injection::is_injected(InjectedBug::LatecomersForgotten)
        {
            // Both wait for these commands: the first for locked writes, the second for fresh ones.
            array.locks.passed().await;
            array.log_unlogged().await.map_err(RebuildError::Stopped)?;
            all.extend(array.log.state.missed.stripes(&array.layout));
        }
        self.still_rebuilding()?;
        // Overlapping ranges are merged, so that no stripe is rebuilt twice.
        all.sort_unstable_by_key(|range| range.start);
        all.dedup_by(|later, before| {
            let follows = later.start <= before.end;
            before.end = if follows { before.end.max(later.end) } else { before.end };
            follows
        });
        Ok(all)
    }

    /// Writes the blocks to the member, and logs their entries; blocks that cannot be restored are marked lost, also
    /// for after a restart. Returns the guard, which is dropped with the work when the caller is.
    pub(super) async fn fill_in(&self, ops: Ops, lost: Vec<Extent>, guard: RangeGuard) -> Result<RangeGuard, IoError> {
        let (stripes, member) = (self.stripes.clone(), self.member);
        let work = async move {
            // Entries for restored content that does not match the present ones, for instance after both copies of a
            // page were lost.
            let chosen = stripes.choose_entries(&ops).await;
            let ended = stripes.members.perform(ops).await;
            let judged = stripes.members.judge(&ended, Extent { start: block::Lba(0), len: stripes.layout.blocks() });
            if let Some(chosen) = chosen.filter(|_| judged.is_ok()) {
                stripes.log_entries(chosen).await;
            }
            for extent in lost {
                stripes.mark_lost(member, extent).await;
            }
            judged.map(|()| guard)
        };
        self.stripes.background.finish(work).await
    }

    /// Gives the member its own pages, those of the member before it, and an anchor, and makes it take log batches.
    ///
    /// From here on checkpoints write to it, so every existing page is written once more. So do log batches: once it
    /// is in service, a batch that it lacks could be on too few members.
    pub(super) async fn join_pages(&self) -> Result<(), IoError> {
        let Some(array) = self.protected else { return Ok(()) };
        let member = self.member;
        self.members.begin_joining(member);
        if !bug_injection::is_injected(InjectedBug::JoinsAmidCheckpoint) {
            // A running checkpoint started without the member.
            array.log.end_of_checkpoint().await;
        }
        // A returned member has all other pages as it left them.
        let regions: Vec<u64> = if self.members.place(member).is_returned() {
            array.log.state.missed.regions.borrow().iter().collect()
        } else {
            array.checksums.pages.used.borrow().iter().collect()
        };
        mark_pages_dirty(array, member, &regions).await?;
        array.log.checkpoint_with(MemberSet::only(member)).await
    }

    /// Clears the missed regions once no member is absent.
    pub(super) fn clear_missed(&self) {
        if let Some(array) = self.protected
            && self.members.not_in_service() == MemberSet::NONE
        {
            array.log.state.missed.regions.borrow_mut().clear();
        }
    }
}

/// Returns the rows of a member's chunk to restore: those ever written on any mirror, because an added member has no
/// entries of its own yet. All rows in a plain array.
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
    // With parity there is one copy, and the range is the member alone.
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

/// Marks dirty the member's pages in these regions, and those of the member before it, which have their second copy
/// here.
pub(super) async fn mark_pages_dirty<D: BlockDevice + 'static>(
    array: &Rc<Protected<D>>,
    member: u16,
    regions: &[u64],
) -> Result<(), IoError> {
    let before = (member + array.members.counted_len() - 1) % array.members.counted_len();
    let per_region = array.checksums.pages.segments.region_pages();
    for page in regions.iter().flat_map(|region| region * per_region..(region + 1) * per_region) {
        // Regions are in ascending order, and only the last one reaches behind the last page.
        if page >= array.checksums.pages.segments.pages() {
            break;
        }
        // Each member holds its own pages and the second copies of the member before it.
        for id in [PageId { member, page }, PageId { member: before, page }] {
            let blocks = crate::on_disk::page::blocks_of(page);
            let pins = array.checksums.hold_pages(id.member, blocks).await;
            array.checksums.pages.cache.borrow_mut().mark_dirty(id);
            drop(pins);
        }
        if array.checksums.pages.cache.borrow().dirty() > array.checksums.pages.cache.borrow().dirty_max() {
            array.log.checkpoint().await?;
        }
    }
    Ok(())
}
