//! Branch: a volume of an open family.

use super::visibility;
use crate::catalog::{BranchRecord, DeadRange, Parent};
use crate::layout::BLOCK_BYTES;
use shard::RangeLocks;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// Bits of a progress value that number the cleaning.
pub(super) const CLEANING: u32 = 0x00ff_ffff;

/// Branches of an open family, by number.
pub(crate) struct Branches(RefCell<BTreeMap<u32, Rc<Branch>>>);

impl Branches {
    pub(super) fn of(records: &[BranchRecord]) -> Self {
        Self(RefCell::new(records.iter().map(|branch| (branch.number, Rc::new(Branch::of(branch)))).collect()))
    }

    pub(super) fn find(&self, number: u32) -> Option<Rc<Branch>> {
        self.0.borrow().get(&number).cloned()
    }

    /// Branch of the volume `id`.
    pub(crate) fn of_volume(&self, id: Uuid) -> Option<Rc<Branch>> {
        self.0.borrow().values().find(|branch| branch.id == id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Rc<Branch>> {
        self.0.borrow().values().cloned().collect()
    }

    /// Origin of a clone and the epoch at which lookups continue there.
    pub(super) fn parent(&self, branch: &Branch) -> Option<(Rc<Branch>, u64)> {
        let Parent { branch, epoch } = branch.parent?;
        // The catalog refuses to delete a snapshot that a clone depends on.
        Some((self.find(branch).expect("a clone's origin is there as long as the clone"), epoch))
    }

    /// Sum of `what` over all branches.
    pub(super) fn sum(&self, what: impl Fn(&Branch) -> u64) -> u64 {
        self.0.borrow().values().map(|branch| what(branch)).sum()
    }

    /// Takes the branches, epochs, snapshots and roll-backs from the catalog.
    pub(super) fn follow(&self, records: &[BranchRecord]) {
        let mut branches = self.0.borrow_mut();
        // A deleted branch disappears once its space was freed and its record removed.
        branches.retain(|number, _| records.iter().any(|record| record.number == *number));
        for branch in records {
            match branches.get(&branch.number) {
                Some(open) => open.follow(branch),
                None => {
                    branches.insert(branch.number, Rc::new(Branch::of(branch)));
                }
            }
        }
    }
}

/// Branch of the map: epochs of its volume and snapshots, counters and locks.
pub(crate) struct Branch {
    pub(crate) id: Uuid,
    pub(crate) number: u32,
    pub(crate) block_bytes: u32,
    pub(crate) thick: bool,
    pub(crate) zero_detection: bool,
    pub(crate) parent: Option<Parent>,
    pub(crate) size_bytes: Cell<u64>,
    /// Epoch of new versions.
    pub(crate) epoch: Cell<u64>,
    pub(crate) dead: RefCell<Vec<DeadRange>>,
    /// Epochs of its snapshots, ascending.
    pub(crate) snapshots: RefCell<Vec<u64>>,
    pub(crate) cleaning: Cell<u32>,
    pub(crate) deleting: Cell<bool>,
    /// Number of granules mapped for the volume.
    pub(crate) mapped: Cell<u64>,
    /// Number of versions with data in the current epoch.
    pub(crate) own_versions: Cell<u64>,
    /// By snapshot epoch, a lower bound of the versions that only this snapshot sees.
    pub(crate) exclusive: RefCell<BTreeMap<u64, u64>>,
    /// Number of the cleaning pass in progress and its next granule.
    pub(crate) cleaned: Cell<(u32, u32)>,
    /// Number of granules unmapped since the family was opened.
    pub(crate) unmapped: Cell<u64>,
    /// Range locks by granule.
    pub(crate) locks: RangeLocks,
}

impl Branch {
    pub(crate) fn of(record: &BranchRecord) -> Self {
        Self {
            id: record.id,
            number: record.number,
            block_bytes: record.block_bytes,
            thick: record.thick,
            zero_detection: record.zero_detection,
            parent: record.parent,
            size_bytes: Cell::new(record.size_bytes),
            epoch: Cell::new(record.epoch),
            dead: RefCell::new(record.dead.clone()),
            snapshots: RefCell::new(record.snapshots.iter().map(|snapshot| snapshot.epoch).collect()),
            cleaning: Cell::new(record.cleaning),
            deleting: Cell::new(record.deleting),
            // Valid at the start of the epoch; later changes come from the stored counters and the log.
            mapped: Cell::new(record.mapped),
            own_versions: Cell::new(0),
            exclusive: RefCell::default(),
            cleaned: Cell::new((0, 0)),
            unmapped: Cell::new(0),
            locks: RangeLocks::new(),
        }
    }

    /// Decodes the cleaning progress: the low 24 bits number the pass, the rest is the next granule.
    pub(super) fn set_gc_progress(&self, value: u64) {
        // Values have 56 bits, so 32 are left for the granule.
        self.cleaned.set((value as u32 & CLEANING, (value >> 24) as u32));
    }

    /// Takes the mutable fields from the catalog: epochs, snapshots, roll-backs, size.
    pub(crate) fn follow(&self, record: &BranchRecord) {
        // Epochs are never reused, so a version's epoch identifies when it was written.
        assert!(record.epoch >= self.epoch.get(), "epochs rise");
        // A new epoch has no versions of its own yet; what the volume sees then is in the record.
        if record.epoch != self.epoch.get() {
            self.mapped.set(record.mapped);
            self.own_versions.set(0);
        }
        self.epoch.set(record.epoch);
        self.size_bytes.set(record.size_bytes);
        self.cleaning.set(record.cleaning);
        self.deleting.set(record.deleting);
        *self.dead.borrow_mut() = record.dead.clone();
        *self.snapshots.borrow_mut() = record.snapshots.iter().map(|snapshot| snapshot.epoch).collect();
        let snapshots = self.snapshots.borrow();
        // A deleted snapshot takes its count with it; the epoch is never used again.
        self.exclusive.borrow_mut().retain(|epoch, _| snapshots.contains(epoch));
    }

    /// Number of granules of the whole volume.
    pub(crate) fn granules(&self, granule_blocks: u32) -> u64 {
        let blocks = self.size_bytes.get().div_ceil(u64::from(BLOCK_BYTES));
        blocks.div_ceil(u64::from(granule_blocks))
    }

    /// Upper bound of versions it may still add: places for a thick volume, otherwise holes over what snapshots
    /// share.
    pub(crate) fn needed_entries(&self, granule_blocks: u32) -> u64 {
        let all = if self.thick { self.granules(granule_blocks) } else { self.mapped.get() };
        // Nothing is written to a volume that is being deleted.
        if self.deleting.get() { 0 } else { all.saturating_sub(self.own_versions.get()) }
    }

    /// Number of places reserved for it.
    pub(crate) fn reserved(&self, granule_blocks: u32) -> u64 {
        if self.thick { self.needed_entries(granule_blocks) } else { 0 }
    }

    /// One step of a lookup by `viewer`; see [`visibility::lookup_step`].
    pub(crate) fn lookup_step(&self, viewer: u64) -> (u64, Option<u64>) {
        visibility::lookup_step(&self.dead.borrow(), viewer)
    }

    /// Epochs of all viewers, ascending: the snapshots, then the volume.
    pub(crate) fn view_epochs(&self) -> Vec<u64> {
        // The volume itself looks from the highest epoch; a deleted one no longer looks.
        let live = if self.deleting.get() { None } else { Some(u64::MAX) };
        self.snapshots.borrow().iter().copied().chain(live).collect()
    }

    /// True when a version of `epoch` is seen only by the newest snapshot once the volume no longer sees it.
    pub(crate) fn is_exclusive(&self, epoch: u64) -> bool {
        let snapshots = self.snapshots.borrow();
        // No underflow: the check of the catalog refuses epoch 0.
        let newest = self.epoch.get() - 1;
        let before = snapshots.len().checked_sub(2).map_or(0, |at| snapshots[at]);
        // Only without dead ranges and between the last two snapshots can this be told from the epochs alone;
        // otherwise the count stays a lower bound.
        snapshots.last() == Some(&newest) && epoch > before && epoch <= newest && self.dead.borrow().is_empty()
    }
}
