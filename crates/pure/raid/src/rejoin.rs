//! What a rebuild does beside the data: the pages that belong on the member, and what it had missed.

use crate::array::Core;
use crate::geometry::{MemberSet, Rows};
use crate::members::Ops;
use crate::on_disk::page::PageId;
use crate::sabotage::{self, Bug};
use crate::sums::cache::Pins;
use block::{BlockDevice, Extent, IoError};
use shard::RangeGuard;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Core<D> {
    /// The rows of a member's chunk that have to be restored: all, or those that were ever written, on any mirror: a
    /// member that was added has no entries of its own yet.
    pub(crate) async fn written_rows(self: &Rc<Self>, stripe: u64, member: u16) -> Vec<Rows> {
        let all = self.layout.all_rows();
        let Some(protected) = &self.protected else { return vec![all] };
        let chunk = self.layout.member_extent(stripe, all);
        let (copies, mut pins) = (self.layout.copies(), Pins::new(&protected.cache));
        let mirrors = member / copies * copies..(member / copies + 1) * copies;
        for mirror in mirrors.clone() {
            self.hold_more(protected, &mut pins, mirror, chunk).await;
        }
        let mut runs: Vec<Rows> = Vec::new();
        for row in all.start..all.end {
            let is_unwritten = |mirror| self.entry(protected, mirror, chunk.start.0 + row).is_unwritten();
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

    /// The blocks are on the member, and what is known of them in the log: what nobody can give back is lost, also
    /// after a restart. The guard comes back with the answer; when nobody waits for it, it ends with the work.
    pub(crate) async fn fill_in(
        self: &Rc<Self>,
        member: u16,
        ops: Ops,
        lost: Vec<Extent>,
        guard: RangeGuard,
    ) -> Result<RangeGuard, IoError> {
        let core = self.clone();
        let work = async move {
            let remembered = core.remember(&ops).await;
            let ended = core.members.perform(ops).await;
            let judged = core.members.judge(&ended, Extent { start: block::Lba(0), len: core.layout.blocks() });
            if let Some(remembered) = remembered.filter(|_| judged.is_ok()) {
                core.make_known(remembered).await;
            }
            for extent in lost {
                core.mark_lost(member, extent).await;
            }
            judged.map(|()| guard)
        };
        self.background.finish(work).await
    }

    /// The member has its own pages, those of the member before it, and an anchor, and takes the log.
    ///
    /// From here on checkpoints write to it, so every page that exists is written once more. So do batches: once it is in
    /// service, a batch that it lacks could be on too few members.
    pub(crate) async fn join_pages(self: &Rc<Self>, member: u16) -> Result<(), IoError> {
        let Some(protected) = &self.protected else { return Ok(()) };
        self.members.begin_joining(member);
        if !sabotage::is(Bug::JoinsAmidCheckpoint) {
            // The one that runs has begun without it.
            self.end_of_checkpoint(protected).await;
        }
        let before = (member + self.members.width() - 1) % self.members.width();
        let per_region = protected.segments.region_pages();
        let regions: Vec<u64> = if self.members.place(member).has_come_back() {
            protected.missed.regions.borrow().iter().collect()
        } else {
            protected.used.borrow().iter().collect()
        };
        for page in regions.into_iter().flat_map(|region| region * per_region..(region + 1) * per_region) {
            if page >= protected.segments.pages() {
                break;
            }
            for id in [PageId { member, page }, PageId { member: before, page }] {
                let blocks = crate::on_disk::page::blocks_of(page);
                let pins = self.hold_pages(protected, id.member, blocks).await;
                protected.cache.borrow_mut().soil(id);
                drop(pins);
            }
            if protected.cache.borrow().dirty() > protected.cache.borrow().dirty_max() {
                self.checkpoint().await?;
            }
        }
        self.checkpoint_with(MemberSet::only(member)).await
    }

    /// Nobody is absent any more, so nobody has missed anything.
    pub(crate) fn forget_missed(&self) {
        if let Some(protected) = &self.protected
            && self.members.not_in_service() == MemberSet::NONE
        {
            protected.missed.regions.borrow_mut().clear();
        }
    }
}
