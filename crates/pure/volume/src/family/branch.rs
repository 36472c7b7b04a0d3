//! A volume of a family, while the family is open.

use super::lineage;
use crate::catalog::{BranchRecord, DeadRange, Parent};
use crate::layout::BLOCK_BYTES;
use shard::RangeLocks;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// The bits of a progress that tell the cleaning.
pub(super) const CLEANING: u32 = 0x00ff_ffff;

/// The branches of an open family, by number.
pub(crate) struct Branches(RefCell<BTreeMap<u32, Rc<Branch>>>);

impl Branches {
    pub(super) fn of(records: &[BranchRecord]) -> Self {
        Self(RefCell::new(records.iter().map(|branch| (branch.number, Rc::new(Branch::of(branch)))).collect()))
    }

    pub(super) fn find(&self, number: u32) -> Option<Rc<Branch>> {
        self.0.borrow().get(&number).cloned()
    }

    /// The branch of the volume `id`.
    pub(crate) fn of_volume(&self, id: Uuid) -> Option<Rc<Branch>> {
        self.0.borrow().values().find(|branch| branch.id == id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Rc<Branch>> {
        self.0.borrow().values().cloned().collect()
    }

    /// What the branch is a clone of, and the epoch that it goes on from.
    pub(super) fn parent(&self, branch: &Branch) -> Option<(Rc<Branch>, u64)> {
        let Parent { branch, epoch } = branch.parent?;
        Some((self.find(branch).expect("a clone's origin is there as long as the clone"), epoch))
    }

    /// The sum of `what` over all branches.
    pub(super) fn sum(&self, what: impl Fn(&Branch) -> u64) -> u64 {
        self.0.borrow().values().map(|branch| what(branch)).sum()
    }

    /// They are those of the catalog, with its epochs, snapshots and roll-backs.
    pub(super) fn follow(&self, records: &[BranchRecord]) {
        let mut branches = self.0.borrow_mut();
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

/// A branch of the map: what its volume and its snapshots see, and who uses it now.
pub(crate) struct Branch {
    pub(crate) id: Uuid,
    pub(crate) number: u32,
    pub(crate) block_bytes: u32,
    pub(crate) thick: bool,
    pub(crate) zero_detection: bool,
    pub(crate) parent: Option<Parent>,
    pub(crate) size_bytes: Cell<u64>,
    /// What is written now.
    pub(crate) epoch: Cell<u64>,
    pub(crate) dead: RefCell<Vec<DeadRange>>,
    /// The epochs of its snapshots, rising.
    pub(crate) snapshots: RefCell<Vec<u64>>,
    pub(crate) cleaning: Cell<u32>,
    pub(crate) dying: Cell<bool>,
    /// Granules that it shows as data.
    pub(crate) mapped: Cell<u64>,
    /// Of these, versions of its epoch.
    pub(crate) fresh: Cell<u64>,
    /// By the epoch of a snapshot: versions that only this snapshot sees, at least.
    pub(crate) exclusive: RefCell<BTreeMap<u64, u64>>,
    /// The number of the cleaning that is under way, and the granule with which it goes on.
    pub(crate) cleaned: Cell<(u32, u32)>,
    /// Granules that became holes for the volume since the family was opened.
    pub(crate) punched: Cell<u64>,
    /// By granule.
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
            dying: Cell::new(record.dying),
            mapped: Cell::new(record.mapped),
            fresh: Cell::new(0),
            exclusive: RefCell::default(),
            cleaned: Cell::new((0, 0)),
            punched: Cell::new(0),
            locks: RangeLocks::new(),
        }
    }

    /// The cleaning of the branch is as far as `value` says: the low bits tell which, the high ones the granule.
    pub(super) fn take_in_progress(&self, value: u64) {
        self.cleaned.set((value as u32 & CLEANING, (value >> 24) as u32));
    }

    /// Takes over what the catalog says now of what changes: epochs, snapshots, roll-backs, size.
    pub(crate) fn follow(&self, record: &BranchRecord) {
        assert!(record.epoch >= self.epoch.get(), "epochs rise");
        if record.epoch != self.epoch.get() {
            self.mapped.set(record.mapped);
            self.fresh.set(0);
        }
        self.epoch.set(record.epoch);
        self.size_bytes.set(record.size_bytes);
        self.cleaning.set(record.cleaning);
        self.dying.set(record.dying);
        *self.dead.borrow_mut() = record.dead.clone();
        *self.snapshots.borrow_mut() = record.snapshots.iter().map(|snapshot| snapshot.epoch).collect();
        let snapshots = self.snapshots.borrow();
        self.exclusive.borrow_mut().retain(|epoch, _| snapshots.contains(epoch));
    }

    /// Granules of the whole volume.
    pub(crate) fn granules(&self, granule_blocks: u32) -> u64 {
        let blocks = self.size_bytes.get().div_ceil(u64::from(BLOCK_BYTES));
        blocks.div_ceil(u64::from(granule_blocks))
    }

    /// How many versions it may still need beside those that it has: places for a thick one, else holes.
    pub(crate) fn wanting(&self, granule_blocks: u32) -> u64 {
        let all = if self.thick { self.granules(granule_blocks) } else { self.mapped.get() };
        if self.dying.get() { 0 } else { all.saturating_sub(self.fresh.get()) }
    }

    /// Places that are kept for it.
    pub(crate) fn reserved(&self, granule_blocks: u32) -> u64 {
        if self.thick { self.wanting(granule_blocks) } else { 0 }
    }

    /// Where who stands in `viewer` looks: see [`lineage::step`].
    pub(crate) fn step(&self, viewer: u64) -> (u64, Option<u64>) {
        lineage::step(&self.dead.borrow(), viewer)
    }

    /// Those who see the branch, rising: its snapshots, and the volume.
    pub(crate) fn viewers(&self) -> Vec<u64> {
        let live = if self.dying.get() { None } else { Some(u64::MAX) };
        self.snapshots.borrow().iter().copied().chain(live).collect()
    }

    /// True when of those who see a version of `epoch` only the newest snapshot is left once the volume does not.
    pub(crate) fn is_exclusive(&self, epoch: u64) -> bool {
        let snapshots = self.snapshots.borrow();
        let newest = self.epoch.get() - 1;
        let before = snapshots.len().checked_sub(2).map_or(0, |at| snapshots[at]);
        snapshots.last() == Some(&newest) && epoch > before && epoch <= newest && self.dead.borrow().is_empty()
    }
}
