//! Bugs planted into the data plane, to see that runs find them.
//!
//! The product itself stays as it is. Its world is bent instead: what it writes to a disk is lost on the way,
//! what it answers to a host is altered. To its disks and to its hosts that looks exactly like a product
//! with the bug. One more bug is one more line in [`Planted::TABLE`] and in
//! [`Planted::profile`], and what it does in `disk` or `wire`.

mod disk;
mod stream;
mod wire;
mod world;

pub(crate) use world::BentWorld;

use crate::chance::Chance;
use sim::Sim;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

/// A bug, named as what the data plane does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A flush is never done.
    FlushSkipped,
    /// A flush is answered before it is done: a write is acknowledged before it is stable.
    FlushNotAwaited,
    /// A write to a member is taken for done before it is.
    WriteNotAwaited,
    /// One member does not get a write.
    WriteLost,
    /// A write goes one block too far.
    WriteElsewhere,
    /// Only the first half of a write is done.
    WriteHalf,
    /// A write is done again later, over newer data.
    WriteTwice,
    /// A write that fails on a member is taken for done.
    WriteErrorHidden,
    /// A read returns what was there before the last write.
    ReadOld,
    /// Where a member cannot be read, zeros are returned.
    ReadErrorIsZeros,
    /// A member that has not answered in time is taken for one that has done what it was asked.
    SilenceHidden,
    /// Nobody looks how long members have not answered.
    SilenceNotSeen,
    /// A member that comes back does not get everywhere what it has missed.
    ReturnLeavesGaps,
    /// A copy of a member is not filled everywhere.
    CopyLeavesGaps,
    /// Slabs of a new volume are not cleared.
    ZerosSkipped,
    /// A replacement is not filled everywhere.
    RebuildLeavesGaps,
    /// The catalog is not written.
    CatalogLost,
    /// Who waits for a write to a member is not woken when that is refused.
    RefusalNotTold,
    /// All generations of the catalog are written to one slot.
    CatalogInOneSlot,
    /// Of three labels none is written.
    LabelsLost,
    /// A write to the log device is lost.
    LogWriteLost,
    /// What is written to the room that larger disks bring is lost.
    NewRoomLost,
    /// A READ returns the block before.
    ReadsAnotherBlock,
    /// A WRITE changes the block before.
    WritesAnotherBlock,
    /// A WRITE SAME leaves out its last block.
    WriteSameStopsEarly,
    /// ABORT TASK ends all tasks of the session.
    AbortEndsMore,
    /// A task management function ends commands that came behind it.
    AbortEndsLater,
    /// GOOD is said where something has failed.
    ErrorHidden,
    /// GOOD is said where a write was refused for want of space.
    RefusalHidden,
    /// GOOD is said where COMPARE AND WRITE has found other data.
    MiscompareHidden,
    /// A command is answered twice.
    ResponseTwice,
    /// A Data-In carries the data of the one before.
    DataInRepeated,
    /// READ CAPACITY counts one block too many.
    CapacityWrong,
    /// What was read before a restart is read again after it, whatever was written since.
    CacheOutlivesRestart,
}

/// A bug in one run: when it strikes, and what it remembers.
pub(crate) struct Plant {
    bug: Option<Planted>,
    chance: Chance,
    struck: Cell<u64>,
    /// How often the data plane was started.
    life: Cell<u64>,
    replacements: RefCell<BTreeSet<String>>,
    /// Disks that members are copied to, by path.
    copies: RefCell<BTreeSet<String>>,
    /// Disks that were members in this life and were closed, by path.
    closed: RefCell<BTreeSet<String>>,
    /// The disks of the log device, by path.
    logs: RefCell<BTreeSet<String>>,
    /// What the members of the pool held when it was made.
    member_mib: Cell<u64>,
    /// What blocks of members held before their last write, by path.
    before: RefCell<BTreeMap<(String, u64), block::View>>,
    /// What READs were answered with, by unit, CDB and life.
    read: RefCell<BTreeMap<Vec<u8>, Answered>>,
}

/// What a READ was answered with.
struct Answered {
    life: u64,
    data: Vec<u8>,
}

impl Planted {
    /// Every bug and its name.
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

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(bug, ..)| bug)
    }

    /// True when it shows in what hosts are told, false when in what disks are.
    fn is_on_the_wire(self) -> bool {
        self as usize >= Self::ReadsAnotherBlock as usize
    }

    fn row(self) -> (Self, &'static str) {
        Self::TABLE.into_iter().find(|(bug, ..)| *bug == self).expect("every bug has a row")
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.row().1)
    }
}

impl FromStr for Planted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::TABLE.into_iter().find(|(_, name)| *name == text);
        found.map(|(bug, ..)| bug).ok_or_else(|| {
            let names: Vec<&str> = Self::TABLE.iter().map(|(_, name)| *name).collect();
            format!("{text} is none of {}", names.join(", "))
        })
    }
}

impl Plant {
    pub(crate) fn new(bug: Option<Planted>, world: &Sim) -> Rc<Self> {
        Rc::new(Self {
            bug,
            chance: Chance::of(world),
            struck: Cell::default(),
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

    /// True when the disks are told wrong things, which a cache that forgets shows best.
    pub(crate) fn bends_disks(&self) -> bool {
        self.bug.is_some_and(|bug| !bug.is_on_the_wire())
    }

    /// True when hosts are told wrong things. No digest may protect them then.
    pub(crate) fn bends_wire(&self) -> bool {
        self.bug.is_some_and(Planted::is_on_the_wire)
    }

    /// How often the bug has struck.
    pub(crate) fn struck(&self) -> u64 {
        self.struck.get()
    }

    /// The data plane is started.
    pub(crate) fn begin_life(&self) {
        self.life.set(self.life.get() + 1);
        self.before.take();
        self.closed.take();
        // Copies end with the life in which they began.
        self.copies.take();
    }

    /// The disk at `path` takes the place of another.
    pub(crate) fn know_replacement(&self, path: &str) {
        self.replacements.borrow_mut().insert(path.to_owned());
    }

    /// A member is being copied to the disk at `path`.
    pub(crate) fn know_copy(&self, path: &str) {
        self.copies.borrow_mut().insert(path.to_owned());
    }

    /// The disk at `path` belongs to the log device.
    pub(crate) fn know_log(&self, path: &str) {
        self.logs.borrow_mut().insert(path.to_owned());
    }

    /// Members of the pool that is made now hold so much.
    pub(crate) fn know_size(&self, mib: u64) {
        self.member_mib.set(mib);
    }

    /// The disk at `path`, which was written to in the life `life`, is closed.
    fn know_closed(&self, path: &str, life: u64) {
        if life == self.life.get() {
            self.closed.borrow_mut().insert(path.to_owned());
        }
    }

    /// True when the bug is `bug` and strikes now, as it does once in `often` times.
    fn strikes(&self, bug: Planted, often: u64) -> bool {
        let strikes = self.bug == Some(bug) && self.chance.below(often) == 0;
        self.struck.set(self.struck.get() + u64::from(strikes));
        strikes
    }
}

#[cfg(test)]
mod tests;
