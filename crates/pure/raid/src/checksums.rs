//! Checksums: an entry for every block of every member, in pages, and reads that are compared with them.
//!
//! The pages are held in memory within a budget and come from two copies on the members. Changed pages are written by a
//! checkpoint of the redo log; nothing here writes. Called by all that reads or changes a protected array.

use crate::bounds::BLOCK_BYTES;
use crate::checksums::cache::Cache;
use crate::finding::Finding;
use crate::geometry::bytes;
use crate::members::Members;
use crate::on_disk::anchor::{Anchor, Reshape};
use crate::on_disk::entry::Tie;
use crate::on_disk::regions::Regions;
use crate::on_disk::segments::Segments;
use crate::shape::{Options, Shape};
use block::{BlockDevice, View};
use shard::RangeLocks;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

pub(crate) mod cache;
pub(crate) mod pages;
mod reading;

pub(crate) use reading::Written;

/// The checksums as one layout of the array sees them.
pub(crate) struct Checksums<D> {
    members: Rc<Members<D>>,
    pub(crate) pages: Rc<Pages>,
}

/// The pages of an array, the same in all of its layouts.
pub(crate) struct Pages {
    /// The array that they belong to.
    pub(crate) id: [u8; 16],
    /// What all checks of the array have in common.
    seed: u64,
    /// Where pages and data lie.
    pub(crate) segments: Rc<Segments>,
    pub(crate) cache: Rc<RefCell<Cache>>,
    /// One page is loaded by one command at a time.
    loading: RangeLocks,
    /// Regions whose pages are on disk.
    pub(crate) used: RefCell<Regions>,
    /// The highest stamp of a page that was seen or given.
    pub(crate) stamp: Cell<u64>,
    /// The log is being replayed.
    pub(crate) recovering: Cell<bool>,
    /// How far the array is reshaped, while it is.
    pub(crate) position: Cell<Option<Reshape>>,
    /// Blocks of members that did not match, until it is known what came of it.
    pub(crate) mismatched: RefCell<BTreeSet<(u16, u64)>>,
    /// Is told everything that is found wrong.
    findings: Option<Rc<dyn Fn(Finding)>>,
    zeros: View,
}

/// Bytes of zeros that are kept to be read.
const ZEROS_BYTES: usize = 1 << 20;

impl<D: BlockDevice + 'static> Checksums<D> {
    /// The checksums of these members' blocks.
    pub(crate) fn new(members: Rc<Members<D>>, pages: Rc<Pages>) -> Self {
        Self { members, pages }
    }
}

impl Pages {
    /// None of the pages is in memory; what exists of them the anchor says.
    pub(crate) fn new(shape: &Shape, segments: Rc<Segments>, anchor: &Anchor, options: &Options) -> Self {
        let members = u16::try_from(shape.members).expect("the layout has judged the number of members");
        let budget = (options.page_bytes / BLOCK_BYTES as usize).max(4);
        let seed = shape.id.as_chunks::<8>().0.iter().map(|half| u64::from_le_bytes(*half)).fold(0, |a, b| a ^ b);
        Self {
            id: shape.id,
            seed,
            cache: Rc::new(RefCell::new(Cache::new(members, segments.pages(), budget))),
            loading: RangeLocks::new(),
            used: RefCell::new(anchor.used.clone()),
            stamp: Cell::new(anchor.stamp),
            recovering: Cell::default(),
            position: Cell::new(anchor.reshape),
            mismatched: RefCell::default(),
            findings: options.findings.clone(),
            zeros: View::zeroed(ZEROS_BYTES.min(bytes(segments.data_blocks().0))),
            segments,
        }
    }

    /// What a check of this block is bound to.
    pub(crate) fn tie(&self, member: u16, block: u64) -> Tie {
        Tie::new(self.seed, member, block)
    }

    /// True when pages of the region of this page were ever written.
    pub(crate) fn is_used(&self, page: u64) -> bool {
        self.used.borrow().contains(page / self.segments.region_pages())
    }

    pub(crate) fn report(&self, finding: Finding) {
        if let Some(findings) = &self.findings {
            findings(finding);
        }
    }

    /// The blocks match after all: they were being written.
    pub(crate) fn forget_mismatches(&self, member: u16, extent: block::Extent) {
        let mut mismatched = self.mismatched.borrow_mut();
        if !mismatched.is_empty() {
            mismatched.retain(|&(of, block)| of != member || !extent.contains(block::Extent::new(block, 1)));
        }
    }

    /// Zeros of `len` bytes, shared where they are few.
    pub(crate) fn zeros(&self, len: usize) -> View {
        if len <= self.zeros.len() { self.zeros.slice(..len) } else { View::zeroed(len) }
    }

    /// Regions are of `factor` times as many pages from now on.
    pub(crate) fn coarsen(&self, factor: u64) {
        let coarse = self.used.borrow().coarsened(factor);
        self.used.replace(coarse);
    }
}
