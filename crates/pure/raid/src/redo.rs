//! The redo log: what is changed is in the log first, so that a stop at any instant leaves no block in doubt.
//!
//! `commit` gathers records into batches and writes them to as many members as survive any loss that the array survives;
//! `checkpoint` brings the pages to the members and lets the log forget; `ring` keeps account of the room. Called by the write
//! paths, by maintenance and by recovery; knows the members and their checksums, and no command.

use crate::checksums::Checksums;
use crate::geometry::MemberSet;
use crate::members::{Members, Missed};
use crate::on_disk::anchor::{Anchor, Marks};
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

/// The log as one layout of the array sees it.
pub(crate) struct RedoLog<D> {
    members: Rc<Members<D>>,
    checksums: Rc<Checksums<D>>,
    background: Rc<Detached>,
    pub(crate) state: Rc<LogState>,
}

/// The log of an array, the same in all of its layouts.
pub(crate) struct LogState {
    /// The array that it belongs to.
    pub(crate) id: [u8; 16],
    /// Where ring and spare lie.
    pub(crate) area: Area,
    pub(crate) ring: Rc<Ring>,
    /// The anchor that was written last.
    pub(crate) anchor: RefCell<Anchor>,
    /// What each member has been given last of its own pages.
    pub(crate) marks: RefCell<Marks>,
    /// What absent members have missed.
    pub(crate) missed: Rc<Missed>,
    /// Those of the joining members that have all of their pages: anchors count them.
    pub(crate) admitted: Cell<MemberSet>,
    checkpointing: Cell<bool>,
    /// How many checkpoints have ended.
    checkpoints: Cell<u64>,
}

impl<D: BlockDevice + 'static> RedoLog<D> {
    /// The log of these members, whose pages a checkpoint writes.
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
    /// The log begins where the anchor says.
    pub(crate) fn new(shape: &Shape, area: Area, missed: Rc<Missed>, anchor: Anchor, changed: Rc<Signal>) -> Self {
        let head = Head { number: anchor.tail_number, at: anchor.tail_block };
        let (admitted, checkpointing, checkpoints) = Default::default();
        Self {
            id: shape.id,
            area,
            ring: Ring::new(shape.ring_blocks, anchor.epoch, head, changed),
            marks: RefCell::new(anchor.marks.clone()),
            missed,
            admitted,
            checkpointing,
            checkpoints,
            anchor: RefCell::new(anchor),
        }
    }

    /// Where the log begins, as the last anchor says.
    pub(crate) fn anchor_head(&self) -> Head {
        let anchor = self.anchor.borrow();
        Head { number: anchor.tail_number, at: anchor.tail_block }
    }

    pub(crate) fn end_checkpoint(&self) {
        assert!(self.checkpointing.replace(false), "a checkpoint ends once");
        self.checkpoints.set(self.checkpoints.get() + 1);
        self.ring.wake();
    }

    /// How many checkpoints have ended since the array was opened.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.checkpoints.get()
    }
}
