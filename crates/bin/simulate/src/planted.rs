//! Bugs planted into the data plane, which prove that the runs detect them.
//!
//! The product is not modified. Its world alters what it writes to disks and what it answers to hosts, which to disks
//! and hosts looks exactly like a product with the bug. A new bug needs one line in [`InjectedBug::TABLE`], one in
//! [`InjectedBug::profile`], and its effect in `disk` or `wire`.

mod disk;
mod stream;
mod wire;
mod world;

pub(crate) use world::BuggyWorld;

use crate::seeded_random::SeededRandom;
use sim::Sim;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

/// Bug, named after the misbehavior of the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// A flush is not executed.
    FlushSkipped,
    /// A flush is answered before it is executed: a write is acknowledged before it is stable.
    FlushNotAwaited,
    /// A write to a member is considered done before it is.
    WriteNotAwaited,
    /// One member does not receive a write.
    WriteLost,
    /// A write is shifted by one block.
    WriteElsewhere,
    /// Only the first half of a write is done.
    WriteHalf,
    /// A write is repeated later, over newer data.
    WriteTwice,
    /// A write that fails on a member is considered done.
    WriteErrorHidden,
    /// A read returns the content before the last write.
    ReadOld,
    /// A read error on a member returns zeros.
    ReadErrorIsZeros,
    /// A member that does not answer in time is considered to have executed the operation.
    SilenceHidden,
    /// The response times of members are not checked.
    SilenceNotSeen,
    /// A member that returns does not receive everything it missed.
    ReturnLeavesGaps,
    /// A copy of a member has gaps.
    CopyLeavesGaps,
    /// Slabs of a new volume are not zeroed.
    ZerosSkipped,
    /// A rebuilt replacement has gaps.
    RebuildLeavesGaps,
    /// The catalog is not written.
    CatalogLost,
    /// The waiter of a write to a member is not woken when the member refuses the write.
    RefusalNotTold,
    /// All generations of the catalog are written to one slot.
    CatalogInOneSlot,
    /// None of the three labels is written.
    LabelsLost,
    /// A write to the log device is lost.
    LogWriteLost,
    /// Writes to the space that larger disks added are lost.
    NewRoomLost,
    /// A READ returns the preceding block.
    ReadsAnotherBlock,
    /// A WRITE changes the preceding block.
    WritesAnotherBlock,
    /// A WRITE SAME omits its last block.
    WriteSameStopsEarly,
    /// ABORT TASK ends all tasks of the session.
    AbortEndsMore,
    /// A task management function ends commands that were sent after it.
    AbortEndsLater,
    /// A failed command is answered with GOOD.
    ErrorHidden,
    /// A write that was refused for lack of space is answered with GOOD.
    RefusalHidden,
    /// A miscompare of COMPARE AND WRITE is answered with GOOD.
    MiscompareHidden,
    /// A command is answered twice.
    ResponseTwice,
    /// A Data-In carries the data of the preceding one.
    DataInRepeated,
    /// READ CAPACITY reports one block too many.
    CapacityWrong,
    /// Data read before a restart is returned again after it, regardless of later writes.
    CacheOutlivesRestart,
}

/// State of a bug in one run.
pub(crate) struct BugState {
    bug: Option<InjectedBug>,
    chance: SeededRandom,
    hits: Cell<u64>,
    /// Number of starts of the data plane.
    life: Cell<u64>,
    replacements: RefCell<BTreeSet<String>>,
    /// Paths of disks to which members are copied.
    copies: RefCell<BTreeSet<String>>,
    /// Paths of disks that were members in this life and were closed.
    closed: RefCell<BTreeSet<String>>,
    /// Paths of the disks of the log device.
    logs: RefCell<BTreeSet<String>>,
    /// Size of the members of the pool at its creation, in MiB.
    member_mib: Cell<u64>,
    /// Content of member blocks before their last write, by path.
    before: RefCell<BTreeMap<(String, u64), block::View>>,
    /// Answers to READs, by unit, CDB and life.
    read: RefCell<BTreeMap<Vec<u8>, CachedRead>>,
}

/// Answer to a READ.
struct CachedRead {
    life: u64,
    data: Vec<u8>,
}

impl InjectedBug {
    /// Table of bugs and their names.
    const TABLE: [(Self, &'static str); 34] = [
        (Self::FlushSkipped, "flush-skipped"),
        (Self::FlushNotAwaited, "flush-not-awaited"),
        (Self::WriteNotAwaited, "write-not-awaited"),
        (Self::WriteLost, "write-lost"),
        (Self::WriteElsewhere, "write-elsewhere"),
        (Self::WriteHalf, "write-half"),
        (Self::WriteTwice, "write-twice"),
        (Self::WriteErrorHidden, "write-error-hidden"),
        (Self::ReadOld, "read-old"),
        (Self::ReadErrorIsZeros, "read-error-is-zeros"),
        (Self::SilenceHidden, "silence-hidden"),
        (Self::SilenceNotSeen, "silence-not-seen"),
        (Self::ReturnLeavesGaps, "return-leaves-gaps"),
        (Self::CopyLeavesGaps, "copy-leaves-gaps"),
        (Self::ZerosSkipped, "zeros-skipped"),
        (Self::RebuildLeavesGaps, "rebuild-leaves-gaps"),
        (Self::CatalogLost, "catalog-lost"),
        (Self::RefusalNotTold, "refusal-not-told"),
        (Self::CatalogInOneSlot, "catalog-in-one-slot"),
        (Self::LabelsLost, "labels-lost"),
        (Self::LogWriteLost, "log-write-lost"),
        (Self::NewRoomLost, "new-room-lost"),
        (Self::ReadsAnotherBlock, "reads-another-block"),
        (Self::WritesAnotherBlock, "writes-another-block"),
        (Self::WriteSameStopsEarly, "write-same-stops-early"),
        (Self::AbortEndsMore, "abort-ends-more"),
        (Self::AbortEndsLater, "abort-ends-later"),
        (Self::ErrorHidden, "error-hidden"),
        (Self::RefusalHidden, "refusal-hidden"),
        (Self::MiscompareHidden, "miscompare-hidden"),
        (Self::ResponseTwice, "response-twice"),
        (Self::DataInRepeated, "data-in-repeated"),
        (Self::CapacityWrong, "capacity-wrong"),
        (Self::CacheOutlivesRestart, "cache-outlives-restart"),
    ];

    /// Returns all bugs.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(bug, ..)| bug)
    }

    /// True when the bug alters answers to hosts, false when it alters disks.
    fn is_on_the_wire(self) -> bool {
        // Order of declaration: bugs below the data plane come first, those towards hosts after them.
        self as usize >= Self::ReadsAnotherBlock as usize
    }

    fn row(self) -> (Self, &'static str) {
        Self::TABLE.into_iter().find(|(bug, ..)| *bug == self).expect("every bug has a row")
    }
}

impl fmt::Display for InjectedBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.row().1)
    }
}

impl FromStr for InjectedBug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::TABLE.into_iter().find(|(_, name)| *name == text);
        found.map(|(bug, ..)| bug).ok_or_else(|| {
            let names: Vec<&str> = Self::TABLE.iter().map(|(_, name)| *name).collect();
            format!("{text} is none of {}", names.join(", "))
        })
    }
}

impl BugState {
    pub(crate) fn new(bug: Option<InjectedBug>, world: &Sim) -> Rc<Self> {
        Rc::new(Self {
            bug,
            // The generator of the world, so that a run with a bug is repeatable, too.
            chance: SeededRandom::of(world),
            hits: Cell::default(),
            life: Cell::default(),
            replacements: RefCell::default(),
            copies: RefCell::default(),
            closed: RefCell::default(),
            logs: RefCell::default(),
            member_mib: Cell::default(),
            before: RefCell::default(),
            read: RefCell::default(),
        })
    }

    /// True when the bug alters disks; a cache that forgets everything reveals this best.
    pub(crate) fn alters_disks(&self) -> bool {
        self.bug.is_some_and(|bug| !bug.is_on_the_wire())
    }

    /// True when the bug alters answers to hosts, which digests would then reveal at once.
    pub(crate) fn alters_wire(&self) -> bool {
        self.bug.is_some_and(InjectedBug::is_on_the_wire)
    }

    /// Returns the number of times that the bug took effect.
    pub(crate) fn hit_count(&self) -> u64 {
        self.hits.get()
    }

    /// Records a start of the data plane.
    pub(crate) fn record_start(&self) {
        self.life.set(self.life.get() + 1);
        // Kept contents belong to one life: after a restart the product holds no older data.
        self.before.take();
        self.closed.take();
        // Copies end with the life in which they began.
        self.copies.take();
    }

    /// Records that the disk at `path` replaces another.
    pub(crate) fn record_replacement(&self, path: &str) {
        self.replacements.borrow_mut().insert(path.to_owned());
    }

    /// Records that a member is being copied to the disk at `path`.
    pub(crate) fn record_copy(&self, path: &str) {
        self.copies.borrow_mut().insert(path.to_owned());
    }

    /// Records that the disk at `path` belongs to the log device.
    pub(crate) fn record_log(&self, path: &str) {
        self.logs.borrow_mut().insert(path.to_owned());
    }

    /// Records the size of the members of a new pool.
    pub(crate) fn record_size(&self, mib: u64) {
        self.member_mib.set(mib);
    }

    /// Records that the disk at `path` is closed; only a disk that was written in the current life counts.
    fn record_closed(&self, path: &str, life: u64) {
        if life == self.life.get() {
            self.closed.borrow_mut().insert(path.to_owned());
        }
    }

    /// True when the bug is `bug` and takes effect now, which it does with probability 1/`often`.
    fn triggers(&self, bug: InjectedBug, often: u64) -> bool {
        // The comparison comes first: a run without this bug draws nothing here, and plays like the unchanged product.
        let strikes = self.bug == Some(bug) && self.chance.below(often) == 0;
        self.hits.set(self.hits.get() + u64::from(strikes));
        strikes
    }
}

#[cfg(test)]
mod tests;
