//! Regions that absent members have missed; they are stored in the anchors.

use crate::bug_injection::{self, InjectedBug};
use crate::geometry::Layout;
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::regions::Regions;
use crate::on_disk::segments::Segments;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Regions that absent members have missed, or may have missed.
pub(crate) struct MissedRegions {
    segments: Rc<Segments>,
    pub(crate) regions: RefCell<Regions>,
    /// Regions written since the last checkpoint began, and since the one before: a member that fails now may lack
    /// them even though they were acknowledged.
    recent: RefCell<(Regions, Regions)>,
}

impl MissedRegions {
    /// Starts with the regions named by the last anchor.
    pub(crate) fn new(segments: Rc<Segments>, regions: Regions) -> Self {
        Self { segments, regions: RefCell::new(regions), recent: RefCell::default() }
    }

    fn regions_of(&self, start: u64, blocks: u64) -> Range<u64> {
        let per_region = PAGE_ENTRIES * self.segments.region_pages();
        // Rounded outward: a region counts as missed as a whole.
        start / per_region..(start + blocks).div_ceil(per_region)
    }

    /// Adds these blocks, which are about to be written without the absent members.
    pub(crate) fn add(&self, blocks: &[(u64, u64)]) {
        if !bug_injection::is_injected(InjectedBug::NothingMissed) {
            let mut missed = self.regions.borrow_mut();
            blocks
                .iter()
                .flat_map(|&(start, count)| self.regions_of(start, count))
                .for_each(|region| missed.add(region));
        }
    }

    /// Notes these blocks as recent; they are logged in a batch that the next checkpoint to start will cover.
    pub(crate) fn note_recent(&self, blocks: &[(u64, u64)]) {
        let recent = &mut self.recent.borrow_mut().0;
        blocks.iter().flat_map(|&(start, count)| self.regions_of(start, count)).for_each(|region| recent.add(region));
    }

    /// Adds the recent regions when a member fails: its volatile cache may have died with it.
    pub(crate) fn note_absence(&self) {
        // Both windows, because the checkpoint that covers the older one may not have ended.
        let (mut missed, recent) = (self.regions.borrow_mut(), self.recent.borrow());
        missed.add_all(&recent.0);
        missed.add_all(&recent.1);
    }

    /// Starts a checkpoint: only regions noted until now will be made durable by it.
    pub(crate) fn checkpoint_started(&self) {
        let mut recent = self.recent.borrow_mut();
        let now = std::mem::take(&mut recent.0);
        // Added, not replaced: a checkpoint that failed leaves the earlier window uncovered.
        recent.1.add_all(&now);
    }

    /// Ends a checkpoint: regions noted before its start are durable on all members.
    pub(crate) fn checkpoint_ended(&self) {
        self.recent.borrow_mut().1.clear();
    }

    /// Changes to regions of `factor` times as many pages.
    pub(crate) fn coarsen(&self, factor: u64) {
        let coarse = self.regions.borrow().coarsened(factor);
        self.regions.replace(coarse);
        let mut recent = self.recent.borrow_mut();
        *recent = (recent.0.coarsened(factor), recent.1.coarsened(factor));
    }

    /// Runs of stripes that absent members have missed, in ascending order.
    pub(crate) fn stripes(&self, layout: &Layout) -> Vec<Range<u64>> {
        let (per_region, chunk) = (PAGE_ENTRIES * self.segments.region_pages(), layout.chunk_blocks());
        let mut runs: Vec<Range<u64>> = Vec::new();
        for region in self.regions.borrow().iter() {
            let stripes =
                // Rounded outward: a region of pages need not end with a stripe.
                region * per_region / chunk..((region + 1) * per_region).div_ceil(chunk).min(layout.stripes());
            match runs.last_mut() {
                // Adjacent regions can share a stripe at their border.
                Some(last) if last.end >= stripes.start => last.end = stripes.end,
                _ => runs.push(stripes),
            }
        }
        runs
    }
}
