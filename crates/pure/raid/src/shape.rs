//! The shape of a protected array, and how it is run: what its owner says when it is formatted or opened.

use crate::error::ArrayError;
use crate::finding::Finding;
use crate::geometry::Layout;
use crate::level::Level;
use crate::on_disk::area::{Area, ring_blocks};
use block::Blocks;
use shard::{Pause, Spawn};
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
