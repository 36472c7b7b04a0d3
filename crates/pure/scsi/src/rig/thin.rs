//! Space of a thin test disk: a limited number of granules.

use block::{Blocks, Extent, IoError, IoErrorKind, Run, Space};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;

pub(crate) struct Thin {
    pub granule_blocks: u64,
    /// Maximum number of granules that can be mapped at once.
    pub granules: Cell<usize>,
    pub mapped: RefCell<BTreeSet<u64>>,
    /// Maximum number of granules in one answer: runs end early.
    pub run_granules: Cell<u64>,
    /// Number of run queries received.
    pub asked: Cell<usize>,
}

impl Thin {
    pub(crate) fn new(granule_blocks: u64, granules: usize) -> Self {
        Self {
            granule_blocks,
            granules: Cell::new(granules),
            mapped: RefCell::default(),
            run_granules: Cell::new(3),
            asked: Cell::new(0),
        }
    }

    /// Granules that `extent` touches.
    fn touched(&self, extent: Extent) -> Range<u64> {
        extent.start.0 / self.granule_blocks..extent.end().0.div_ceil(self.granule_blocks)
    }

    /// Maps every granule of `extent`, or none.
    pub(crate) fn map(&self, extent: Extent) -> Result<(), IoError> {
        let mut mapped = self.mapped.borrow_mut();
        let missing = self.touched(extent).filter(|granule| !mapped.contains(granule)).count();
        if missing > 0 && mapped.len() + missing > self.granules.get() {
            return Err(IoError::new(IoErrorKind::NoSpace, extent));
        }
        mapped.extend(self.touched(extent));
        Ok(())
    }

    /// Unmaps the whole granules of `extent`; the last one may be truncated by the end of the disk.
    pub(crate) fn unmap(&self, extent: Extent, blocks: Blocks) {
        let end = if extent.end().0 == blocks.0 { u64::MAX } else { extent.end().0 };
        let whole = extent.start.0.div_ceil(self.granule_blocks)..end / self.granule_blocks;
        self.mapped.borrow_mut().retain(|granule| !whole.contains(granule));
    }

    pub(crate) fn run(&self, extent: Extent) -> Run {
        self.asked.set(self.asked.get() + 1);
        let granules = self.mapped.borrow();
        let first = extent.start.0 / self.granule_blocks;
        let mapped = granules.contains(&first);
        let alike = (0..self.run_granules.get()).take_while(|&nth| granules.contains(&(first + nth)) == mapped);
        let end = ((first + alike.count() as u64) * self.granule_blocks).min(extent.end().0);
        Run { extent: Extent::new(extent.start.0, end - extent.start.0), mapped }
    }

    pub(crate) fn space(&self, block_bytes: u32) -> Space {
        let granule_bytes = self.granule_blocks * u64::from(block_bytes);
        let mapped = self.mapped.borrow().len();
        Space {
            mapped_bytes: mapped as u64 * granule_bytes,
            free_bytes: self.granules.get().saturating_sub(mapped) as u64 * granule_bytes,
            granule_bytes: u32::try_from(granule_bytes).expect("a granule is small"),
        }
    }
}
