//! Volume family: a thin volume with its snapshots and clones, which share one map.
//!
//! Design: `docs/adr/0007-families-of-volumes.md`. Called by [`Pool`](crate::Pool), `ThinVolume` and the pool's
//! background work, on the home shard only. It must never acknowledge a flush before data, catalog and map log
//! are stable, in that order.

mod branch;
mod changes;
pub(crate) mod check;
mod checkpoint;
mod clean;
mod commit;
mod data;
mod discard;
mod dump;
mod epoch_reclaim;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod granules;
mod head;
mod lookup;
mod meta;
mod open;
mod overlay;
mod page_cache;
mod page_space;
mod parts;
mod places;
pub(crate) mod plan;
mod read;
mod repair;
mod reverse_lookup;
mod salvage;
mod space;
mod visibility;
mod write;

pub(crate) use branch::Branch;
pub(crate) use check::ConsistencyCheck;
pub(crate) use dump::dump;
pub(crate) use error::MapError;
pub(crate) use granules::Allocation;
pub(crate) use page_cache::PageCache;
pub(crate) use repair::Repair;
pub(crate) use reverse_lookup::ReverseLookup;
pub(crate) use salvage::Salvage;

use crate::catalog::{BranchRecord, DeadRange};
use crate::maplog::Record;
use crate::pool::{Families, Shared};
use crate::store::Change;
use crate::tree::{GranuleAddress, Key, Root};
use block::BlockDevice;
use branch::Branches;
use data::Data;
use head::Head;
use meta::Meta;
use overlay::MapOverlay;
use shard::{RangeLocks, SingleFlight};
use space::Space;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Tuning of a pool's maps; not stored on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Maximum number of entries in a tree node.
    pub(crate) fanout: usize,
    /// Number of changes at which a checkpoint is due; at twice the number, writers wait for it.
    pub(crate) changes_due: usize,
    /// Number of unlogged changes at which a commit is started without a flush request.
    pub(crate) pending_max: usize,
    /// Maximum number of records in a log block.
    pub(crate) records_max: usize,
    /// Length of the map log of a new family, in blocks.
    pub(crate) log_blocks: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            fanout: crate::tree::FANOUT,
            // A checkpoint writes the changed pages once, so more changes per checkpoint cost fewer page writes
            // but more memory and a longer replay.
            changes_due: 16 << 10,
            pending_max: 4 << 10,
            records_max: crate::maplog::RECORDS_MAX,
            // 8 MiB of log; opening reads all of it.
            log_blocks: 2048,
        }
    }
}

/// Open family.
pub(crate) struct Family<D, G> {
    pub(crate) shared: Rc<Shared<D, G>>,
    /// All open families of the pool, from which slabs can be reclaimed.
    families: Weak<Families<D, G>>,
    pub(crate) id: Uuid,
    pub(crate) granule_blocks: u32,
    tuning: Tuning,
    pub(crate) branches: Branches,
    /// Data path to the granules on the groups.
    pub(crate) data: Data<D, G>,
    /// Space allocation: data slabs and their free granules.
    pub(crate) space: Space<D, G>,
    meta: Meta<D, G>,
    head: RefCell<Head>,
    formatted: Cell<bool>,
    overlay: RefCell<MapOverlay>,
    root: Cell<Option<Root>>,
    log: RefCell<Log>,
    /// Upper bound of keys that the layers add to the tree: by changes since the last checkpoint started, and
    /// before.
    grown: Cell<(u64, u64)>,
    /// Number of versions with data in the whole family.
    pub(crate) allocated: Cell<u64>,
    /// Counters as stored in the tree.
    counters: RefCell<BTreeMap<Key, u64>>,
    /// Era in which the last checkpoint gave up the pages that it replaced.
    pages_era: Cell<Option<u64>>,
    /// Lock that serializes background work and checks of the whole map.
    pub(crate) maintenance_lock: RangeLocks,
    commits: SingleFlight<MapError>,
    checkpoints: SingleFlight<MapError>,
    /// First error that stopped writes to the family permanently.
    failure: Cell<Option<MapError>>,
    /// True while changes are in no log because it could not be written.
    is_log_lost: Cell<bool>,
    /// True when a write of the next head failed, so that it may or may not be on the disks.
    is_head_doubtful: Cell<bool>,
}

/// Append state of the map log.
#[derive(Debug, Default)]
struct Log {
    /// Sequence number of the next block.
    sequence: u64,
    /// Sequence number of the first block that the newest checkpoint does not cover.
    from: u64,
    /// Serial number of the next change.
    serial: u64,
    life: u32,
    /// Changes not logged yet.
    pending: Vec<Record>,
    /// Serial number ranges of changes that must survive a crash together, where there are several.
    atomic_ranges: Vec<Range<u64>>,
    /// Places freed by the pending changes.
    freed: Vec<GranuleAddress>,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Branch with this number.
    pub(crate) fn branch(&self, number: u32) -> Option<Rc<Branch>> {
        self.branches.find(number)
    }

    pub(crate) fn branches(&self) -> Vec<Rc<Branch>> {
        self.branches.all()
    }

    /// Records that `change` of the catalog must be committed before any newer change of the map.
    pub(crate) fn require_commit(&self, change: Change) {
        self.space.require_commit(change);
    }

    /// Takes branches, epochs, snapshots and roll-backs from the catalog.
    pub(crate) fn follow_catalog(&self) {
        self.shared.store.with_catalog(|catalog| {
            if let Some(record) = catalog.family(self.id) {
                self.branches.follow(&record.branches);
            }
        });
    }

    /// Takes the groups of the pool as they are now; they may be longer, and there may be more.
    pub(crate) fn follow_groups(&self) {
        // Both the address computation and the allocator depend on slab sizes and stripe lengths.
        self.data.follow_groups();
        self.space.granules.borrow_mut().reshape(open::shapes(&self.shared, self.granule_blocks));
    }

    /// Error that stopped writes to the family permanently, if any.
    pub(crate) fn failure(&self) -> Option<MapError> {
        self.failure.get()
    }

    /// Stops all changes of the map; the first error is kept.
    fn fail_permanently(&self, error: MapError) {
        // Later errors are usually consequences of the first.
        self.failure.set(self.failure.get().or(Some(error)));
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Optimal write size in bytes: a whole stripe and a whole granule of the group where that is longest.
    pub(crate) fn optimal_bytes(&self) -> u32 {
        let granules = self.space.granules.borrow();
        // The longest unit of all groups: a write of that size is cheap wherever its granules go.
        let unit = (0..self.data.group_count()).map(|group| granules.unit(group)).max().unwrap_or(1);
        unit * self.granule_blocks * crate::layout::BLOCK_BYTES
    }
}

/// Dead ranges that a volume or snapshot of the branch still needs, when the branch is as `record` says.
pub(crate) fn needed_ranges(dead: &[DeadRange], record: &BranchRecord) -> Vec<DeadRange> {
    // The volume itself looks from the newest epoch, whichever number that has.
    let viewers: Vec<u64> = record.snapshots.iter().map(|snapshot| snapshot.epoch).chain([u64::MAX]).collect();
    visibility::reachable_ranges(dead, &viewers)
}
