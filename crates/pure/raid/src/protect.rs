//! What makes an array protected: its identity, where its sums and its log lie, and how it is tuned.

use crate::bounds::BLOCK_BYTES;
use crate::error::ArrayError;
use crate::finding::Finding;
use crate::fresh::Fresh;
use crate::geometry::{Layout, MemberSet};
use crate::level::Level;
use crate::members::Missed;
use crate::on_disk::anchor::{Anchor, Marks, Reshape};
use crate::on_disk::area::{Area, ring_blocks};
use crate::on_disk::entry::Tie;
use crate::on_disk::regions::Regions;
use crate::on_disk::segments::Segments;
use crate::redo::ring::{Head, Ring};
use crate::status::ProtectionStatus;
use crate::sums::cache::Cache;
use block::{Blocks, View};
use shard::{Pause, RangeLocks, Signal, Spawn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The identity and the shape of a protected array, as its owner remembers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of this array alone, for ever.
    pub id: [u8; 16],
    /// The level.
    pub level: Level,
    /// How many members.
    pub members: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Blocks of the smallest member.
    pub member_blocks: Blocks,
    /// Blocks of the log on each member; [`ring_blocks`] unless for a test.
    pub ring_blocks: u64,
}

/// How an array is run; nothing of it is on disk.
#[derive(Clone)]
pub struct Options {
    /// Bytes of memory for pages of sums; dirty ones and those in use may exceed it for a moment.
    pub page_bytes: usize,
    /// False where members without a volatile cache may tear a block of 4096 bytes at a power cut: then levels without
    /// parity log what they write, as those with parity do.
    pub blocks_are_atomic: bool,
    /// The operator accepts that blocks are older than what was acknowledged, where batches of the log cannot be read and nobody
    /// knows which blocks they had changed.
    pub accept_log_loss: bool,
    /// Is told everything that is found wrong.
    pub findings: Option<Rc<dyn Fn(Finding)>>,
    /// Runs a task beside the commands, to its end. With it, a change that is in the log is answered before it is in place,
    /// where nobody is absent.
    pub spawn: Option<Spawn>,
    /// Waits. With it, a write that a member refuses for want of space is tried again for a few seconds before that costs anything.
    pub pause: Option<Pause>,
}

impl Default for Options {
    fn default() -> Self {
        let (page_bytes, blocks_are_atomic, accept_log_loss) = (64 << 20, true, false);
        Self { page_bytes, blocks_are_atomic, accept_log_loss, findings: None, spawn: None, pause: None }
    }
}

impl Shape {
    /// The shape of an array of members of `member_blocks` blocks, with the log that belongs to that size.
    #[must_use]
    pub fn new(id: [u8; 16], level: Level, members: usize, chunk_bytes: u32, member_blocks: Blocks) -> Self {
        Self { id, level, members, chunk_bytes, member_blocks, ring_blocks: ring_blocks(member_blocks) }
    }

    /// Where everything lies on each member.
    ///
    /// *Errors*: a sentence that says which bound is broken.
    pub fn area(&self) -> Result<Area, ArrayError> {
        // The layout of whole members judges level, members and chunk.
        let whole = Layout::new(self.level, self.members, self.chunk_bytes, self.member_blocks)?;
        Area::new(self.member_blocks, whole.chunk_blocks(), self.ring_blocks)
    }

    /// The layout of the array's data, behind sums and log.
    ///
    /// *Errors*: as [`Shape::area`].
    pub fn layout(&self) -> Result<Layout, ArrayError> {
        Layout::new(self.level, self.members, self.chunk_bytes, self.area()?.data.len)
    }

    /// What anchors say of it.
    pub(crate) fn words(&self) -> [u64; 5] {
        let level = match self.level {
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        };
        [level, self.members as u64, u64::from(self.chunk_bytes), self.member_blocks.0, self.ring_blocks]
    }
}

/// What a protected array keeps beside its members.
pub(crate) struct Protected {
    pub(crate) id: [u8; 16],
    /// What all checks of the array have in common.
    seed: u64,
    /// Where ring and spare lie.
    pub(crate) area: Area,
    /// Where pages and data lie.
    pub(crate) segments: Rc<Segments>,
    /// How far the array is reshaped, while it is.
    pub(crate) reshape: Cell<Option<Reshape>>,
    /// Nobody else makes the array larger meanwhile.
    pub(crate) growing: Cell<bool>,
    pub(crate) options: Options,
    pub(crate) cache: Rc<RefCell<Cache>>,
    /// One page is loaded by one command at a time.
    pub(crate) loading: RangeLocks,
    pub(crate) ring: Rc<Ring>,
    /// The anchor that was written last.
    pub(crate) anchor: RefCell<Anchor>,
    /// What each member has been given last of its own pages.
    pub(crate) marks: RefCell<Marks>,
    /// Regions whose pages are on disk.
    pub(crate) used: RefCell<Regions>,
    /// What absent members have missed.
    pub(crate) missed: Rc<Missed>,
    /// Those of the joining members that have all of their pages: anchors count them.
    pub(crate) admitted: Cell<MemberSet>,
    pub(crate) fresh: Fresh,
    pub(crate) checkpointing: Cell<bool>,
    /// How many checkpoints have ended.
    pub(crate) checkpoints: Cell<u64>,
    /// The highest stamp of a page that was seen or given.
    pub(crate) stamp: Cell<u64>,
    /// Changes that were answered and are not in place yet.
    pub(crate) behind: Cell<u32>,
    /// The log is being replayed.
    pub(crate) recovering: Cell<bool>,
    /// Blocks of members that did not match, until it is known what came of it.
    pub(crate) mismatched: RefCell<BTreeSet<(u16, u64)>>,
    zeros: View,
}

/// Bytes of zeros that are kept to be read.
const ZEROS_BYTES: usize = 1 << 20;

impl Protected {
    pub(crate) fn new(
        shape: &Shape,
        area: Area,
        segments: Rc<Segments>,
        anchor: Anchor,
        options: Options,
        changed: Rc<Signal>,
    ) -> Self {
        let members = u16::try_from(shape.members).expect("the layout has judged the number of members");
        let pages = (options.page_bytes / BLOCK_BYTES as usize).max(4);
        let head = Head { number: anchor.tail_number, at: anchor.tail_block };
        let seed = shape.id.as_chunks::<8>().0.iter().map(|half| u64::from_le_bytes(*half)).fold(0, |a, b| a ^ b);
        Self {
            id: shape.id,
            seed,
            area,
            cache: Rc::new(RefCell::new(Cache::new(members, segments.pages(), pages))),
            segments: segments.clone(),
            reshape: Cell::new(anchor.reshape),
            growing: Cell::default(),
            loading: RangeLocks::new(),
            ring: Ring::new(shape.ring_blocks, anchor.epoch, head, changed),
            marks: RefCell::new(anchor.marks.clone()),
            used: RefCell::new(anchor.used.clone()),
            missed: Rc::new(Missed::new(segments.clone(), anchor.missed.clone())),
            admitted: Cell::default(),
            fresh: Fresh::default(),
            checkpointing: Cell::default(),
            checkpoints: Cell::default(),
            stamp: Cell::new(anchor.stamp),
            behind: Cell::default(),
            recovering: Cell::default(),
            mismatched: RefCell::default(),
            zeros: View::zeroed(ZEROS_BYTES.min(crate::geometry::bytes(area.data.len.0))),
            anchor: RefCell::new(anchor),
            options,
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
        if let Some(findings) = &self.options.findings {
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

    pub(crate) fn status(&self) -> ProtectionStatus {
        let cache = self.cache.borrow();
        ProtectionStatus {
            log_blocks: self.ring.blocks,
            log_filled_blocks: self.ring.filled(),
            batches: self.ring.head().number.saturating_sub(1),
            checkpoints: self.checkpoints.get(),
            pages_held: cache.held() as u64,
            pages_dirty: cache.dirty() as u64,
            fresh_stripes: self.fresh.len() as u64,
        }
    }

    /// Zeros of `len` bytes, shared where they are few.
    pub(crate) fn zeros(&self, len: usize) -> View {
        if len <= self.zeros.len() { self.zeros.slice(..len) } else { View::zeroed(len) }
    }

    /// Where the log begins, as the last anchor says.
    pub(crate) fn anchor_head(&self) -> Head {
        let anchor = self.anchor.borrow();
        Head { number: anchor.tail_number, at: anchor.tail_block }
    }

    /// Regions are of `factor` times as many pages from now on.
    pub(crate) fn coarsen(&self, factor: u64) {
        let coarse = self.used.borrow().coarsened(factor);
        self.used.replace(coarse);
        self.missed.coarsen(factor);
    }

    pub(crate) fn end_checkpoint(&self) {
        self.checkpointing.set(false);
        self.checkpoints.set(self.checkpoints.get() + 1);
        self.ring.wake();
    }
}
