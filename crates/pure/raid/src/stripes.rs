//! Stripes: reading a block wherever it can be had, planning the writes that keep parity right, and carrying them out.
//!
//! What plain and protected arrays have in common. Where the array keeps checksums, nothing is believed that they do not prove, and
//! what is written back is logged; both are in `proof`.

use crate::checksums::{Checksums, Written};
use crate::geometry::Layout;
use crate::level::Level;
use crate::locks::Locks;
use crate::members::{Members, Patience};
use crate::redo::RedoLog;
use crate::status::Tally;
use block::{BlockDevice, Extent, IoError, Rope};
use shard::Detached;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

mod blind;
mod carry_out;
mod parity;
mod parity_write;
mod proof;
mod read;
mod restore;

pub(crate) use blind::Blind;
pub(crate) use restore::{parities_of, parity_of};

/// The stripes of one layout of an array.
pub(crate) struct Stripes<D> {
    pub(crate) layout: Layout,
    pub(crate) members: Rc<Members<D>>,
    pub(crate) locks: Locks,
    pub(crate) background: Rc<Detached>,
    pub(crate) tally: Rc<Tally>,
    /// Checksums and log, where the array has them.
    pub(crate) protection: Option<Protection<D>>,
    /// Stripes whose mirrors may differ after an unclean stop.
    pub(crate) suspect: RefCell<Vec<Range<u64>>>,
    /// Whose turn it is among mirrors that are equally good to read from.
    turn: Cell<u16>,
}

/// What proves and remembers the content of a protected array's blocks.
pub(crate) struct Protection<D> {
    pub(crate) checksums: Rc<Checksums<D>>,
    pub(crate) log: Rc<RedoLog<D>>,
}

impl<D: BlockDevice + 'static> Stripes<D> {
    /// The stripes of these members.
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

    /// Reads from a member, and compares: blocks that were never written are zeros, and those that do not match
    /// are a medium error. A member that is gone is lost at once.
    ///
    /// Whoever holds the lock of the stripe believes a mismatch; others ask again under it.
    pub(crate) async fn read_member(&self, member: u16, extent: Extent, patience: Patience) -> Result<Rope, IoError> {
        let Some(Protection { checksums, .. }) = &self.protection else {
            return self.members.read_data(member, extent, patience).await;
        };
        match checksums.written(member, extent).await {
            Written::All => checksums.read_compared(member, extent, patience).await,
            Written::None => checksums.read_unwritten(member, extent),
            Written::Some => {
                let mut whole = Rope::new();
                for (run, is_written) in checksums.runs(member, extent) {
                    whole.append(match is_written {
                        true => checksums.read_compared(member, run, patience).await?,
                        false => checksums.read_unwritten(member, run)?,
                    });
                }
                Ok(whole)
            }
        }
    }

    /// True for a level of which nothing can be restored, and whose stripes need no lock.
    pub(crate) fn is_bare(&self) -> bool {
        self.layout.level() == Level::Raid0
    }
}
