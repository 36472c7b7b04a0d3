//! Stripe I/O with redundancy: reading a block from any source, planning writes that keep parity consistent, and
//! executing them.
//!
//! Shared by plain and protected arrays. In a protected array no content is used that its checksum does not prove,
//! and what is written back is logged; both are in `proof`. It must never leave a stripe half written: member writes
//! run to their end under the lock.

use crate::checksums::{Checksums, Written};
use crate::geometry::Layout;
use crate::level::Level;
use crate::locks::Locks;
use crate::members::{Members, ReadWait};
use crate::redo::RedoLog;
use crate::status::Tally;
use block::{BlockDevice, Extent, IoError, Rope};
use shard::Detached;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

mod excluded;
mod execute;
mod parity;
mod parity_write;
mod proof;
mod read;
mod restore;

pub(crate) use excluded::Excluded;
pub(crate) use restore::{parities_of, parity_of};

/// Stripes of one layout of an array.
pub(crate) struct Stripes<D> {
    pub(crate) layout: Layout,
    pub(crate) members: Rc<Members<D>>,
    pub(crate) locks: Locks,
    pub(crate) background: Rc<Detached>,
    pub(crate) tally: Rc<Tally>,
    /// Checksums and redo log; `None` for a plain array.
    pub(crate) protection: Option<Protection<D>>,
    /// Stripes whose mirrors may differ after an unclean stop; they are read from the first copy.
    pub(crate) suspect: RefCell<Vec<Range<u64>>>,
    /// Round-robin counter for mirrors that are equally good to read from.
    turn: Cell<u16>,
}

/// Checksums and redo log of a protected array.
pub(crate) struct Protection<D> {
    pub(crate) checksums: Rc<Checksums<D>>,
    pub(crate) log: Rc<RedoLog<D>>,
}

impl<D: BlockDevice + 'static> Stripes<D> {
    /// The stripes of these members, in their layout.
    pub(crate) fn new(
        members: Rc<Members<D>>,
        locks: Locks,
        background: Rc<Detached>,
        tally: Rc<Tally>,
        protection: Option<Protection<D>>,
    ) -> Self {
        let (suspect, turn) = Default::default();
        Self { layout: members.layout, members, locks, background, tally, protection, suspect, turn }
    }

    /// Reads from a member and verifies: blocks never written read as zeros, and blocks that do not match their
    /// checksum are a medium error. A member that is gone is failed at once.
    ///
    /// A mismatch is conclusive only under the stripe's lock; without it a write may be in progress, and the caller
    /// reads again under the lock.
    pub(crate) async fn read_member(&self, member: u16, extent: Extent, wait: ReadWait) -> Result<Rope, IoError> {
        let Some(Protection { checksums, .. }) = &self.protection else {
            return self.members.read_data(member, extent, wait).await;
        };
        match checksums.written(member, extent).await {
            Written::All => checksums.read_compared(member, extent, wait).await,
            Written::None => checksums.read_unwritten(member, extent),
            // Only the written runs go to the disk, which may hold anything elsewhere.
            Written::Some => {
                let mut whole = Rope::new();
                // No await since `written`, so the pages are still in memory.
                for (run, is_written) in checksums.runs(member, extent) {
                    whole.append(match is_written {
                        true => checksums.read_compared(member, run, wait).await?,
                        false => checksums.read_unwritten(member, run)?,
                    });
                }
                Ok(whole)
            }
        }
    }

    /// True for RAID-0, which has no redundancy: nothing can be restored, and stripes need no lock.
    pub(crate) fn has_no_redundancy(&self) -> bool {
        self.layout.level() == Level::Raid0
    }
}
