//! Consistency check of the family records of a catalog.

use super::check::{all_differ, check_name, ensure};
use super::family::{BranchRecord, DEPTH_MAX, FamilyRecord, GRANULE_BYTES, SlabRun};
use super::{Catalog, CatalogError, GroupRecord, MapShape, VOLUME_BYTES_MAX};
use crate::layout::BLOCK_BYTES;

/// Maximum number of slabs in a group, and of granules in a slab, that a place in a map can address.
pub(crate) const PLACE_PARTS_MAX: u64 = 1 << 24;
/// Minimum length of a map log in blocks.
pub(crate) const LOG_BLOCKS_MIN: u32 = 8;
/// Limit of branch numbers: a key of the map has 24 bits for them.
pub(crate) const BRANCHES_MADE_MAX: u32 = 1 << 24;

impl Catalog {
    pub(super) fn check_families(&self) -> Result<(), CatalogError> {
        ensure(all_differ(self.families.iter().map(|family| family.id)), "two families have one identity")?;
        self.families.iter().try_for_each(|family| family.check(&self.groups))
    }
}

impl FamilyRecord {
    fn check(&self, groups: &[GroupRecord]) -> Result<(), CatalogError> {
        let granule = self.granule_bytes;
        ensure(granule.is_power_of_two() && GRANULE_BYTES.contains(&granule), "a family has impossible granules")?;
        ensure(!self.meta.is_empty(), "a family has no map")?;
        ensure(self.log_blocks >= LOG_BLOCKS_MIN, "a family has no log")?;
        ensure(self.branches_made <= BRANCHES_MADE_MAX, "a family had too many volumes")?;
        for run in self.meta.iter().chain(&self.data) {
            self.check_run(run, groups)?;
        }
        // Heads, bitmaps and the whole log must fit in the first metadata slab.
        let first = &groups[usize::from(self.meta[0].group)];
        ensure(
            u64::from(self.log_blocks) < MapShape::of(first).slab_addresses(),
            "the log of a family does not fit in its slab",
        )?;
        ensure(!self.branches.is_empty(), "a family has no volume")?;
        ensure(all_differ(self.branches.iter().map(|branch| branch.number)), "two volumes have one number")?;
        self.branches.iter().try_for_each(|branch| self.check_branch(branch))
    }

    fn check_run(&self, run: &SlabRun, groups: &[GroupRecord]) -> Result<(), CatalogError> {
        let group = groups.get(usize::from(run.group)).ok_or(CatalogError::Damaged("a family lies on no group"))?;
        let end = run.first.checked_add(run.slabs);
        ensure(run.slabs > 0 && end.is_some_and(|end| end <= group.slabs), "a family lies behind its group")?;
        let granule_blocks = self.granule_bytes / BLOCK_BYTES;
        // Blocks of a slab behind its last whole granule are not used.
        let granules = u64::from(group.slab_blocks / granule_blocks);
        // A place in the map has 24 bits each for slab and granule.
        let small = u64::from(group.slabs) <= PLACE_PARTS_MAX && granules <= PLACE_PARTS_MAX;
        ensure(granules > 0 && small, "a slab has no granule, or too many")
    }

    fn check_branch(&self, branch: &BranchRecord) -> Result<(), CatalogError> {
        check_name(&branch.name)?;
        ensure(matches!(branch.block_bytes, 512 | BLOCK_BYTES), "a volume has blocks of an unknown size")?;
        let whole = branch.size_bytes > 0 && branch.size_bytes.is_multiple_of(u64::from(branch.block_bytes));
        ensure(whole && branch.size_bytes <= VOLUME_BYTES_MAX, "a volume has an impossible size")?;
        ensure(branch.number < self.branches_made && branch.epoch > 0, "a volume has an impossible number")?;
        let ordered = branch.snapshots.windows(2).all(|pair| pair[0].epoch < pair[1].epoch);
        // A snapshot closed an epoch before the current one.
        let past = branch.snapshots.iter().all(|snapshot| (1..branch.epoch).contains(&snapshot.epoch));
        ensure(ordered && past, "the snapshots of a volume are out of order")?;
        ensure(
            branch.snapshots.iter().all(|one| one.size_bytes <= VOLUME_BYTES_MAX),
            "a snapshot has an impossible size",
        )?;
        ensure(all_differ(branch.snapshots.iter().map(|one| &one.name)), "two snapshots have one name")?;
        branch.snapshots.iter().try_for_each(|snapshot| check_name(&snapshot.name))?;
        // A roll-back goes to an earlier epoch, and its dead range ends before the current one.
        let ranges = branch.dead.iter().all(|range| range.after < range.last && range.last < branch.epoch);
        let rising = branch.dead.windows(2).all(|pair| pair[0].last < pair[1].last);
        ensure(ranges && rising, "the roll-backs of a volume are out of order")?;
        if let Some(parent) = branch.parent {
            // An origin has a smaller number than its clone, which rules out cycles.
            let origin = self.branch(parent.branch).filter(|_| parent.branch < branch.number);
            let known = origin.is_some_and(|origin| origin.snapshots.iter().any(|one| one.epoch == parent.epoch));
            ensure(known, "a clone has no origin")?;
        }
        ensure(self.depth(branch) <= DEPTH_MAX, "clones of clones are too deep")
    }
}
