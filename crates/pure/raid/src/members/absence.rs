//! What members miss while they are absent: regions of their blocks, remembered in the anchors.

use crate::geometry::Layout;
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::regions::Regions;
use crate::on_disk::segments::Segments;
use crate::sabotage::{self, Bug};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// The regions that absent members have missed, or may have.
pub(crate) struct Missed {
    segments: Rc<Segments>,
    pub(crate) regions: RefCell<Regions>,
    /// Regions written since the last checkpoint began, and since the one before: what a member that fails may
    /// not have, though it was acknowledged.
    recent: RefCell<(Regions, Regions)>,
}

impl Missed {
    /// As the anchor said that was written last.
    pub(crate) fn new(segments: Rc<Segments>, regions: Regions) -> Self {
        Self { segments, regions: RefCell::new(regions), recent: RefCell::default() }
    }

    fn regions_of(&self, start: u64, blocks: u64) -> Range<u64> {
        let per_region = PAGE_ENTRIES * self.segments.region_pages();
        start / per_region..(start + blocks).div_ceil(per_region)
    }

    /// Members that are absent miss these blocks, which are about to be written.
    pub(crate) fn add(&self, blocks: &[(u64, u64)]) {
        if !sabotage::is(Bug::NothingMissed) {
            let mut missed = self.regions.borrow_mut();
            blocks
                .iter()
                .flat_map(|&(start, count)| self.regions_of(start, count))
                .for_each(|region| missed.add(region));
        }
    }

    /// The log speaks of these blocks, in a batch that the next checkpoint to begin covers.
    pub(crate) fn note_recent(&self, blocks: &[(u64, u64)]) {
        let recent = &mut self.recent.borrow_mut().0;
        blocks.iter().flat_map(|&(start, count)| self.regions_of(start, count)).for_each(|region| recent.add(region));
    }

    /// A member has failed: what was written since the last checkpoint may not be on it.
    pub(crate) fn note_absence(&self) {
        let (mut missed, recent) = (self.regions.borrow_mut(), self.recent.borrow());
        missed.add_all(&recent.0);
        missed.add_all(&recent.1);
    }

    /// A checkpoint begins: what is written from now on it does not make durable.
    pub(crate) fn begin_window(&self) {
        let mut recent = self.recent.borrow_mut();
        let now = std::mem::take(&mut recent.0);
        recent.1.add_all(&now);
    }

    /// The checkpoint is done: what was written before it is durable on all members.
    pub(crate) fn end_window(&self) {
        self.recent.borrow_mut().1.clear();
    }

    /// Regions are of `factor` times as many pages from now on.
    pub(crate) fn coarsen(&self, factor: u64) {
        let coarse = self.regions.borrow().coarsened(factor);
        self.regions.replace(coarse);
        let mut recent = self.recent.borrow_mut();
        *recent = (recent.0.coarsened(factor), recent.1.coarsened(factor));
    }

    /// The runs of stripes that absent members have missed.
    pub(crate) fn stripes(&self, layout: &Layout) -> Vec<Range<u64>> {
        let (per_region, chunk) = (PAGE_ENTRIES * self.segments.region_pages(), layout.chunk_blocks());
        let mut runs: Vec<Range<u64>> = Vec::new();
        for region in self.regions.borrow().iter() {
            let stripes =
                region * per_region / chunk..((region + 1) * per_region).div_ceil(chunk).min(layout.stripes());
            match runs.last_mut() {
                Some(last) if last.end >= stripes.start => last.end = stripes.end,
                _ => runs.push(stripes),
            }
        }
        runs
    }
}
