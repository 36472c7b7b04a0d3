//! Consistency check of a catalog; run by every reader and before every commit.

use super::{Catalog, CatalogError, GroupRecord, GroupRole, SLABS_MAX, VOLUME_BYTES_MAX, VOLUMES_MAX, VolumeRecord};
use crate::label::NAME_BYTES_MAX;
use crate::layout::BLOCK_BYTES;
use std::collections::BTreeSet;

impl Catalog {
    /// Checks that all parts fit together: no slab or name is used twice, and nothing lies beyond its group.
    pub(crate) fn check(&self) -> Result<(), CatalogError> {
        check_name(&self.name)?;
        ensure(!self.groups.is_empty(), "a pool has no group")?;
        ensure(all_differ(self.groups.iter().map(|group| group.id)), "two groups have one identity")?;
        ensure(all_differ(self.members().map(|member| member.disk)), "one disk is in two places")?;
        let branches = || self.families.iter().flat_map(|family| &family.branches);
        // Volumes and snapshots share one space of UUIDs.
        let snapshots = branches().flat_map(|branch| &branch.snapshots).map(|snapshot| snapshot.id);
        let ids = self.volumes.iter().map(|volume| volume.id).chain(branches().map(|branch| branch.id));
        ensure(all_differ(ids.chain(snapshots)), "two volumes have one identity")?;
        let names = self.volumes.iter().map(|volume| &volume.name).chain(branches().map(|branch| &branch.name));
        ensure(all_differ(names), "two volumes have one name")?;
        ensure(self.volume_count() <= VOLUMES_MAX, "there are too many volumes")?;
        // In 64 bits the sum cannot overflow: each group has fewer than 2^32 slabs.
        let slabs: u64 = self.groups.iter().map(|group| u64::from(group.slabs)).sum();
        ensure(slabs <= u64::from(SLABS_MAX), "groups have more slabs than a pool can")?;
        self.groups.iter().try_for_each(GroupRecord::check)?;
        self.volumes.iter().try_for_each(|volume| volume.check(&self.groups))?;
        self.check_families()?;
        self.check_log()?;
        self.check_reservations()?;
        self.check_scrub()?;
        // Last: its sums cannot overflow once every run was found to lie within its group.
        self.check_slabs()
    }

    /// Checks that every slab belongs to at most one volume or family.
    fn check_slabs(&self) -> Result<(), CatalogError> {
        let segments = self.volumes.iter().flat_map(|volume| &volume.segments);
        let columns = segments.flat_map(|segment| segment.columns.iter().map(|column| (segment.rows, column)));
        let mut runs: Vec<(u16, u32, u32)> =
            columns.map(|(rows, column)| (column.group, column.first_slab, column.first_slab + rows)).collect();
        let leased = self.families.iter().flat_map(|family| family.meta.iter().chain(&family.data));
        runs.extend(leased.map(|run| (run.group, run.first, run.first + run.slabs)));
        // Sorted by group and first slab, so that only neighbors can overlap.
        runs.sort_unstable();
        let apart = runs.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1);
        ensure(apart, "a slab belongs to two volumes")
    }
}

impl GroupRecord {
    fn check(&self) -> Result<(), CatalogError> {
        ensure(self.slab_blocks > 0, "a slab has no blocks")?;
        ensure(self.role == GroupRole::Data || self.slabs == 0, "a group that is not for volumes has slabs")?;
        ensure(self.members.is_empty() == (self.role == GroupRole::Removed), "a group has no members")?;
        let blocks = u64::from(self.slab_blocks) * u64::from(self.slabs);
        // The level is not interpreted here, so the bound is that of RAID-0.
        let most = self.member_blocks.0.checked_mul(self.members.len() as u64);
        ensure(most.is_some_and(|most| blocks <= most), "a group has more slabs than its members can hold")
    }
}

impl VolumeRecord {
    fn check(&self, groups: &[GroupRecord]) -> Result<(), CatalogError> {
        check_name(&self.name)?;
        ensure(matches!(self.block_bytes, 512 | BLOCK_BYTES), "a volume has blocks of an unknown size")?;
        let whole = self.size_bytes > 0 && self.size_bytes.is_multiple_of(u64::from(self.block_bytes));
        ensure(whole && self.size_bytes <= VOLUME_BYTES_MAX, "a volume has an impossible size")?;
        let mut blocks = 0_u64;
        for segment in &self.segments {
            ensure(segment.rows > 0 && segment.rounds > 0, "a segment is empty")?;
            for column in &segment.columns {
                let group = groups.get(usize::from(column.group));
                let group = group.ok_or(CatalogError::Damaged("a volume lies on a group that is not there"))?;
                let end = column.first_slab.checked_add(segment.rows);
                ensure(end.is_some_and(|end| end <= group.slabs), "a volume lies behind the end of its group")?;
                let used = u64::from(column.unit_blocks) * u64::from(segment.rounds);
                let fits = column.unit_blocks > 0 && used <= u64::from(group.slab_blocks);
                ensure(fits, "a row does not fit in its slabs")?;
            }
            ensure(
                all_differ(segment.columns.iter().map(|column| column.group)),
                "a row has two columns on one group",
            )?;
            // Rows and slabs are bounded by their groups, so the sum stays far below 2^64.
            blocks += segment.blocks();
        }
        ensure(self.size_bytes.div_ceil(u64::from(BLOCK_BYTES)) <= blocks, "a volume has too few slabs")
    }
}

pub(super) fn check_name(name: &str) -> Result<(), CatalogError> {
    let good = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
    ensure(good, "a name is empty, too long or has control characters")
}

pub(super) fn all_differ<T: Ord>(items: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().all(|item| seen.insert(item))
}

pub(super) fn ensure(holds: bool, what: &'static str) -> Result<(), CatalogError> {
    if holds { Ok(()) } else { Err(CatalogError::Damaged(what)) }
}
