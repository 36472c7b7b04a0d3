//! Shape and options of a protected array, given by its owner when it is formatted or opened.

use crate::error::ArrayError;
use crate::finding::Finding;
use crate::geometry::Layout;
use crate::level::Level;
use crate::on_disk::area::{Area, ring_blocks};
use block::Blocks;
use shard::{Pause, Spawn};
use std::rc::Rc;

/// Identity and shape of a protected array, as its owner has recorded them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Unique identity of this array; never used again.
    pub id: [u8; 16],
    /// RAID level.
    pub level: Level,
    /// Number of members.
    pub members: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Blocks of the smallest member.
    pub member_blocks: Blocks,
    /// Blocks of the log on each member; [`ring_blocks`] except in tests.
    pub ring_blocks: u64,
}

/// Runtime options of an array; none of them is stored on disk.
#[derive(Clone)]
pub struct Options {
    /// Memory budget for checksum pages, in bytes; dirty pages and those in use may exceed it for a short time.
    pub page_bytes: usize,
    /// False where members without a volatile cache may tear a block of 4096 bytes at a power cut: levels without
    /// parity then log content, as levels with parity always do.
    pub blocks_are_atomic: bool,
    /// True if the operator accepts that blocks may be older than acknowledged, where log batches cannot be read and
    /// it is not known which blocks they had changed.
    pub accept_log_loss: bool,
    /// Callback for everything that is found wrong.
    pub findings: Option<Rc<dyn Fn(Finding)>>,
    /// Spawns a detached task that runs to its end. With it, a logged change is acknowledged before it is in place,
    /// while no member is absent.
    pub spawn: Option<Spawn>,
    /// Timer. With it, a write that a member refuses for want of space is retried for a few seconds before the
    /// refusal counts.
    pub pause: Option<Pause>,
}

impl Default for Options {
    fn default() -> Self {
        // 64 MiB of pages hold the entries of 31.5 GiB of member blocks.
        let (page_bytes, blocks_are_atomic, accept_log_loss) = (64 << 20, true, false);
        Self { page_bytes, blocks_are_atomic, accept_log_loss, findings: None, spawn: None, pause: None }
    }
}

impl Shape {
    /// The shape of an array of members of `member_blocks` blocks, with the default log size for them.
    #[must_use]
    pub fn new(id: [u8; 16], level: Level, members: usize, chunk_bytes: u32, member_blocks: Blocks) -> Self {
        Self { id, level, members, chunk_bytes, member_blocks, ring_blocks: ring_blocks(member_blocks) }
    }

    /// Lays out the areas of each member.
    ///
    /// *Errors*: a sentence that says which bound is broken.
    pub fn area(&self) -> Result<Area, ArrayError> {
        // A layout over whole members validates level, number of members and chunk size.
        let whole = Layout::new(self.level, self.members, self.chunk_bytes, self.member_blocks)?;
        Area::new(self.member_blocks, whole.chunk_blocks(), self.ring_blocks)
    }

    /// Lays out the array's data area, behind checksums and log.
    ///
    /// *Errors*: as [`Shape::area`].
    pub fn layout(&self) -> Result<Layout, ArrayError> {
        Layout::new(self.level, self.members, self.chunk_bytes, self.area()?.data.len)
    }

    /// Encodes the shape as stored in anchors.
    pub(crate) fn words(&self) -> [u64; 5] {
        let level = match self.level {
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        };
        // Compared word by word with the anchor, so the encoding must not change.
        [level, self.members as u64, u64::from(self.chunk_bytes), self.member_blocks.0, self.ring_blocks]
    }
}
