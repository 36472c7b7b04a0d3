//! Redo log: changes are logged before they are made in place, so that a stop at any instant leaves no block in
//! doubt.
//!
//! `commit` gathers records into batches and writes them to as many members as survive any loss that the array
//! survives; `checkpoint` writes the checksum pages and frees log space; `ring` accounts for the space. Called by the
//! write paths, by maintenance and by recovery; knows the members and their checksums, and no command. It must never
//! free a batch whose writes in place have not ended or whose entries are not in stable pages.

use crate::checksums::Checksums;
use crate::geometry::MemberSet;
use crate::members::{Members, MissedRegions};
use crate::on_disk::anchor::{Anchor, LastPages};
use crate::on_disk::area::Area;
use crate::redo::ring::{Head, Ring};
use crate::shape::Shape;
use block::BlockDevice;
use shard::{Detached, Signal};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(crate) mod anchors;
pub(crate) mod checkpoint;
mod commit;
pub(crate) mod ring;

/// Redo log as used by one layout of the array.
pub(crate) struct RedoLog<D> {
    members: Rc<Members<D>>,
    checksums: Rc<Checksums<D>>,
    background: Rc<Detached>,
    pub(crate) state: Rc<LogState>,
}

/// State of the log, shared by all layouts of the array.
pub(crate) struct LogState {
    /// Identity of the array that the log belongs to.
    pub(crate) id: [u8; 16],
    /// Location of the ring and the doublewrite area on each member.
    pub(crate) area: Area,
    pub(crate) ring: Rc<Ring>,
    /// The anchor written last.
    pub(crate) anchor: RefCell<Anchor>,
    /// For each member the page of its own that was last written to it, and the page's stamp.
    pub(crate) last_pages: RefCell<LastPages>,
    /// Regions that absent members have missed.
    pub(crate) missed: Rc<MissedRegions>,
    /// Joining members that have all of their pages, so that anchors count them.
    pub(crate) admitted: Cell<MemberSet>,
    checkpointing: Cell<bool>,
    /// Checkpoints that have ended.
    checkpoints: Cell<u64>,
}

impl<D: BlockDevice + 'static> RedoLog<D> {
    /// The log of these members; a checkpoint writes the pages of `checksums`.
    pub(crate) fn new(
        members: Rc<Members<D>>,
        checksums: Rc<Checksums<D>>,
        background: Rc<Detached>,
        state: Rc<LogState>,
    ) -> Self {
        Self { members, checksums, background, state }
    }
}

impl LogState {
    /// The state of a log that starts where `anchor` says.
    pub(crate) fn new(
        shape: &Shape,
        area: Area,
        missed: Rc<MissedRegions>,
        anchor: Anchor,
        changed: Rc<Signal>,
    ) -> Self {
        // Positions count on from the tail block; only their remainder is an address in the ring.
        let head = Head { number: anchor.tail_number, at: anchor.tail_block };
        let (admitted, checkpointing, checkpoints) = Default::default();
        Self {
            id: shape.id,
            area,
            ring: Ring::new(shape.ring_blocks, anchor.epoch, head, changed),
            last_pages: RefCell::new(anchor.last_pages.clone()),
            missed,
            admitted,
            checkpointing,
            checkpoints,
            anchor: RefCell::new(anchor),
        }
    }

    /// Position of the log's tail according to the last anchor.
    pub(crate) fn anchor_head(&self) -> Head {
        let anchor = self.anchor.borrow();
        Head { number: anchor.tail_number, at: anchor.tail_block }
    }

    /// Lets the next checkpoint start, and wakes commands that wait for log space.
    pub(crate) fn end_checkpoint(&self) {
        assert!(self.checkpointing.replace(false), "a checkpoint ends once");
        // Counted after a failure, too: waiters then see that the array has stopped.
        self.checkpoints.set(self.checkpoints.get() + 1);
        self.ring.wake();
    }

    /// Checkpoints that have ended since the array was opened.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.checkpoints.get()
    }
}
