//! Checksums: an entry for every block of every member, kept in pages, and reads verified against them.
//!
//! Pages are cached in memory within a budget and loaded from two copies on the members. Changed pages are written by
//! a checkpoint of the redo log; nothing here writes. Called by all code that reads or changes a protected array. It
//! must never evict a page that is dirty, pinned, or has entries that are not logged.

use crate::bounds::BLOCK_BYTES;
use crate::checksums::cache::Cache;
use crate::finding::Finding;
use crate::geometry::bytes;
use crate::members::Members;
use crate::on_disk::anchor::{Anchor, Reshape};
use crate::on_disk::entry::CheckBinding;
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

/// Checksums as one layout of the array uses them.
pub(crate) struct Checksums<D> {
    members: Rc<Members<D>>,
    pub(crate) pages: Rc<Pages>,
}

/// Pages of an array, shared by all of its layouts.
pub(crate) struct Pages {
    /// Identity of the array that the pages belong to.
    pub(crate) id: [u8; 16],
    /// Seed of all checks of the array, derived from its identity.
    seed: u64,
    /// Addresses of pages and data.
    pub(crate) segments: Rc<Segments>,
    pub(crate) cache: Rc<RefCell<Cache>>,
    /// Locks by page, so that a page is loaded by one command at a time.
    loading: RangeLocks,
    /// Regions whose pages are on disk.
    pub(crate) used: RefCell<Regions>,
    /// Highest stamp of a page seen or assigned.
    pub(crate) stamp: Cell<u64>,
    /// True while the log is replayed.
    pub(crate) recovering: Cell<bool>,
    /// State of the reshape, while one is unfinished.
    pub(crate) position: Cell<Option<Reshape>>,
    /// Blocks of members that did not match, until the cause is classified.
    pub(crate) mismatched: RefCell<BTreeSet<(u16, u64)>>,
    /// Callback for everything that is found wrong.
    findings: Option<Rc<dyn Fn(Finding)>>,
    zeros: View,
}

/// Size of the shared buffer of zeros, in bytes.
const ZEROS_BYTES: usize = 1 << 20;

impl<D: BlockDevice + 'static> Checksums<D> {
    /// The checksums of these members' blocks.
    pub(crate) fn new(members: Rc<Members<D>>, pages: Rc<Pages>) -> Self {
        Self { members, pages }
    }
}

impl Pages {
    /// Creates an empty page cache; `anchor` names the pages that exist on disk.
    pub(crate) fn new(shape: &Shape, segments: Rc<Segments>, anchor: &Anchor, options: &Options) -> Self {
        let members = u16::try_from(shape.members).expect("the layout has judged the number of members");
        let budget = (options.page_bytes / BLOCK_BYTES as usize).max(4);
        // Different arrays have different seeds, so a block of one never matches an entry of another.
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
            // Small arrays need no larger buffer than their data.
            zeros: View::zeroed(ZEROS_BYTES.min(bytes(segments.data_blocks().0))),
            segments,
        }
    }

    /// Binding of a block's check to its array, member and address.
    pub(crate) fn binding(&self, member: u16, block: u64) -> CheckBinding {
        CheckBinding::new(self.seed, member, block)
    }

    /// True when pages of this page's region were ever written.
    pub(crate) fn is_used(&self, page: u64) -> bool {
        self.used.borrow().contains(page / self.segments.region_pages())
    }

    /// Reports a finding to the owner's callback, if there is one.
    pub(crate) fn report(&self, finding: Finding) {
        if let Some(findings) = &self.findings {
            findings(finding);
        }
    }

    /// Forgets mismatches of blocks that match after all: they were being written.
    pub(crate) fn forget_mismatches(&self, member: u16, extent: block::Extent) {
        // Empty as a rule, and this runs after every verified read.
        let mut mismatched = self.mismatched.borrow_mut();
        if !mismatched.is_empty() {
            mismatched.retain(|&(of, block)| of != member || !extent.contains(block::Extent::new(block, 1)));
        }
    }

    /// Zeros of `len` bytes; up to 1 MiB they share one buffer.
    pub(crate) fn zeros(&self, len: usize) -> View {
        if len <= self.zeros.len() { self.zeros.slice(..len) } else { View::zeroed(len) }
    }

    /// Changes to regions of `factor` times as many pages.
    pub(crate) fn coarsen(&self, factor: u64) {
        let coarse = self.used.borrow().coarsened(factor);
        self.used.replace(coarse);
    }
}
