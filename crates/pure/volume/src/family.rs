//! A family: a volume with its snapshots and clones, over one map. `docs/adr/0007-families-of-volumes.md` says how.

mod branch;
mod changes;
pub(crate) mod check;
mod checkpoint;
mod clean;
mod commit;
mod data;
mod discard;
mod dump;
mod eras;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod granules;
mod head;
mod holders;
mod layers;
mod lineage;
mod lookup;
mod meta;
mod open;
mod page_cache;
mod page_space;
mod parts;
mod places;
pub(crate) mod plan;
mod read;
mod remains;
mod repair;
mod space;
mod write;

pub(crate) use branch::Branch;
pub(crate) use check::ConsistencyCheck;
pub(crate) use dump::dump;
pub(crate) use error::MapError;
pub(crate) use granules::Places;
pub(crate) use holders::HolderSearch;
pub(crate) use page_cache::PageCache;
pub(crate) use remains::Remains;
pub(crate) use repair::Repair;

use crate::catalog::{BranchRecord, DeadRange};
use crate::maplog::Record;
use crate::pool::{Families, Shared};
use crate::store::Change;
use crate::tree::{Key, Place, Root};
use block::BlockDevice;
use branch::Branches;
use data::Data;
use head::Head;
use layers::Layers;
use meta::Meta;
use shard::{RangeLocks, SingleFlight};
use space::Space;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// What is chosen for the maps of a pool, and not written anywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// The most entries of a node.
    pub(crate) fanout: usize,
    /// Changes that make a checkpoint due; twice as many wait for one.
    pub(crate) changes_due: usize,
    /// Changes that wait for a flush before one is made without being asked for.
    pub(crate) pending_max: usize,
    /// The most records of a block of the log.
    pub(crate) records_max: usize,
    /// Blocks of the log of a new family.
    pub(crate) log_blocks: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            fanout: crate::tree::FANOUT,
            changes_due: 16 << 10,
            pending_max: 4 << 10,
            records_max: crate::maplog::RECORDS_MAX,
            log_blocks: 2048,
        }
    }
}

/// An open family.
pub(crate) struct Family<D, G> {
    pub(crate) shared: Rc<Shared<D, G>>,
    /// All families of the pool: those that may have slabs to give.
    families: Weak<Families<D, G>>,
    pub(crate) id: Uuid,
    pub(crate) granule_blocks: u32,
    tuning: Tuning,
    pub(crate) branches: Branches,
    /// Its granules on the groups.
    pub(crate) data: Data<D, G>,
    /// Its slabs, and what is free in them.
    pub(crate) space: Space<D, G>,
    meta: Meta<D, G>,
    head: RefCell<Head>,
    formatted: Cell<bool>,
    layers: RefCell<Layers>,
    root: Cell<Option<Root>>,
    log: RefCell<Log>,
    /// Keys that the layers may have and the tree has not: of changes since the last checkpoint began, and before.
    grown: Cell<(u64, u64)>,
    /// Versions with data of the whole family.
    pub(crate) allocated: Cell<u64>,
    /// The counters as the tree has them.
    counters: RefCell<BTreeMap<Key, u64>>,
    /// The era in which the pages were given up that the last checkpoint replaced.
    pages_era: Cell<Option<u64>>,
    /// Work in the background and looks at the whole map take turns.
    pub(crate) care: RangeLocks,
    commits: SingleFlight<MapError>,
    checkpoints: SingleFlight<MapError>,
    /// What stops writes to the family for good.
    stopped: Cell<Option<MapError>>,
    /// True while changes are in no log because it could not be written.
    is_log_lost: Cell<bool>,
    /// True when the head behind the present one may be on the disks or not.
    is_head_doubtful: Cell<bool>,
}

/// The log of a family as it goes on.
#[derive(Debug, Default)]
struct Log {
    /// The block that is written next.
    sequence: u64,
    /// The block with which the newest checkpoint goes on.
    from: u64,
    /// The serial number of the next change.
    serial: u64,
    life: u32,
    /// Changes that are in no log yet.
    pending: Vec<Record>,
    /// The serial numbers of changes of which a crash may not leave some without the others, where there are several.
    whole: Vec<Range<u64>>,
    /// Places that the pending changes free.
    freed: Vec<Place>,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// The branch with this number.
    pub(crate) fn branch(&self, number: u32) -> Option<Rc<Branch>> {
        self.branches.find(number)
    }

    pub(crate) fn branches(&self) -> Vec<Rc<Branch>> {
        self.branches.all()
    }

    /// Nothing newer may be committed before `change` of the catalog is.
    pub(crate) fn need(&self, change: Change) {
        self.space.need(change);
    }

    /// The open family has the branches, epochs, snapshots and roll-backs that the catalog has.
    pub(crate) fn follow_catalog(&self) {
        self.shared.store.look(|catalog| {
            if let Some(record) = catalog.family(self.id) {
                self.branches.follow(&record.branches);
            }
        });
    }

    /// The family knows the groups that the pool has now; they may be longer, and there may be more.
    pub(crate) fn follow_groups(&self) {
        self.data.follow_groups();
        self.space.granules.borrow_mut().reshape(open::shapes(&self.shared, self.granule_blocks));
    }

    /// What stops writes to the family for good.
    pub(crate) fn stopped(&self) -> Option<MapError> {
        self.stopped.get()
    }

    /// The map takes no change any more. The first reason is kept.
    fn stop(&self, error: MapError) {
        self.stopped.set(self.stopped.get().or(Some(error)));
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Bytes of the write that costs least: a whole stripe and a whole granule of the group where that is longest.
    pub(crate) fn optimal_bytes(&self) -> u32 {
        let granules = self.space.granules.borrow();
        let unit = (0..self.data.group_count()).map(|group| granules.unit(group)).max().unwrap_or(1);
        unit * self.granule_blocks * crate::layout::BLOCK_BYTES
    }
}

/// The ranges that still matter to somebody when the branch is as `record` says.
pub(crate) fn needed_ranges(dead: &[DeadRange], record: &BranchRecord) -> Vec<DeadRange> {
    let viewers: Vec<u64> = record.snapshots.iter().map(|snapshot| snapshot.epoch).chain([u64::MAX]).collect();
    lineage::needed(dead, &viewers)
}
