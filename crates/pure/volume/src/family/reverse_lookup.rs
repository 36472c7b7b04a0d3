//! Reverse lookup: finds the volumes and snapshots that use given blocks of a group.

use super::{Branch, Family, MapError};
use crate::catalog::{SlabRun, SnapshotRecord};
use crate::pool::{BlockUser, BlockUses, add_block_use};
use crate::tree::{GranuleAddress, Key, Tag};
use block::{BlockDevice, Extent};
use std::rc::Rc;

/// Version located on one of the blocks searched for.
struct LocatedVersion {
    granule: u32,
    branch: u32,
    place: GranuleAddress,
    /// First block in the group.
    start: u64,
}

/// Search for the users of blocks of a group in one family.
pub(crate) struct ReverseLookup<'a, D: BlockDevice + 'static, G: BlockDevice + 'static> {
    pub(crate) family: &'a Family<D, G>,
    pub(crate) group: u16,
    /// Blocks searched for, in blocks of the group.
    pub(crate) runs: &'a [Extent],
    /// Maximum number of results; the search ends beyond it.
    pub(crate) most: usize,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> ReverseLookup<'_, D, G> {
    /// Adds the users of the blocks to `held`.
    pub(crate) async fn run(&self, held: &mut BlockUses) -> Result<(), MapError> {
        let (meta, data) = self.slabs();
        let within = |slab: &Extent| {
            let slab = *slab;
            self.runs.iter().map(move |run| run.intersection(slab)).filter(|run| !run.is_empty())
        };
        for run in meta.iter().flat_map(within) {
            add_block_use(&mut held.found, BlockUser::Map(self.family.id), run.start.0, run);
        }
        // The map is read only if the blocks can belong to data of this family.
        if data.iter().flat_map(within).next().is_none() {
            return Ok(());
        }
        for hit in self.located_versions().await? {
            // Clones see granules of their origin, so every branch is asked.
            for branch in self.family.branches.all() {
                // One result too many shows that the list is cut; further ones would be dropped.
                if held.found.len() > self.most {
                    return Ok(());
                }
                self.add_users(&hit, &branch, held).await?;
            }
        }
        Ok(())
    }

    /// Metadata and data slabs of the family in the group.
    fn slabs(&self) -> (Vec<Extent>, Vec<Extent>) {
        self.family.shared.store.with_catalog(|catalog| {
            let slab = catalog.groups.get(usize::from(self.group)).map_or(0, |group| u64::from(group.slab_blocks));
            let extent = |run: &SlabRun| Extent::new(u64::from(run.first) * slab, u64::from(run.slabs) * slab);
            let of = |runs: &[SlabRun]| runs.iter().filter(|run| run.group == self.group).map(extent).collect();
            catalog.family(self.family.id).map(|family| (of(&family.meta), of(&family.data))).unwrap_or_default()
        })
    }

    /// Finds the versions located on the blocks.
    async fn located_versions(&self) -> Result<Vec<LocatedVersion>, MapError> {
        // Versions are the first kind of entries in the order of keys; the bitmaps follow them.
        let (mut from, end) = (Key::version(0, 0, 0), Key::taken(0, 0));
        // The whole map is read: there is no index from places to versions, which every write would have to update.
        let mut hits = Vec::new();
        loop {
            let (entries, next) = self.family.entries(from, end).await?;
            for (key, value) in entries.into_iter().filter(|(key, _)| key.tag() == Some(Tag::Version)) {
                let place = self.family.data.place_of(value);
                if !place.is_data() {
                    continue;
                }
                let (group, start) = self.family.data.locate(place);
                let granule = Extent::new(start, u64::from(self.family.granule_blocks));
                if group == self.group && self.runs.iter().any(|run| !run.intersection(granule).is_empty()) {
                    hits.push(LocatedVersion { granule: key.middle(), branch: key.branch(), place, start });
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(hits),
            }
        }
    }

    /// Adds the volume and the snapshots of the branch that see the version.
    async fn add_users(&self, hit: &LocatedVersion, branch: &Rc<Branch>, held: &mut BlockUses) -> Result<(), MapError> {
        let blocks = u64::from(self.family.granule_blocks);
        for viewer in branch.view_epochs() {
            let seen = self.family.visible_version(branch, hit.granule, viewer).await?;
            // Another version hides this one from the viewer.
            if seen.is_none_or(|seen| seen.branch != hit.branch || seen.place != hit.place) {
                continue;
            }
            let Some((holder, size_bytes)) = self.block_user(branch, viewer) else { continue };
            let first = u64::from(hit.granule) * blocks;
            // The last granule may reach beyond the end of the volume.
            let shown = size_bytes.div_ceil(u64::from(crate::BLOCK_BYTES)).saturating_sub(first);
            let granule = Extent::new(hit.start, blocks.min(shown));
            for run in self.runs.iter().map(|run| run.intersection(granule)).filter(|run| !run.is_empty()) {
                assert!(granule.contains(run), "what is shown of a granule lies in it");
                add_block_use(&mut held.found, holder, first + (run.start.0 - hit.start), run);
            }
        }
        Ok(())
    }

    /// Volume or snapshot that is `viewer` in the branch, and its size in bytes.
    fn block_user(&self, branch: &Branch, viewer: u64) -> Option<(BlockUser, u64)> {
        // The volume itself looks from the newest epoch, whichever number that has.
        if viewer == u64::MAX {
            return Some((BlockUser::Volume(branch.id), branch.size_bytes.get()));
        }
        self.family.shared.store.with_catalog(|catalog| {
            let (_, record) = catalog.branch(branch.id)?;
            let is_it = |snapshot: &&SnapshotRecord| snapshot.epoch == viewer;
            let snapshot = record.snapshots.iter().find(is_it)?;
            Some((BlockUser::Snapshot(snapshot.id), snapshot.size_bytes))
        })
    }
}
