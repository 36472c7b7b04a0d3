//! List of unrecoverable blocks, and reverse lookup of their users.

use super::Pool;
use crate::catalog::{Catalog, LOST_RUNS_MAX, LostRecord};
use crate::error::PoolError;
use crate::family::ReverseLookup;
use crate::layout::{BLOCK_BYTES, BODY_BYTES_MAX};
use block::{BlockDevice, Extent};
use std::collections::BTreeMap;
use uuid::Uuid;

/// User of blocks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockUser {
    /// Volume.
    Volume(Uuid),
    /// Snapshot.
    Snapshot(Uuid),
    /// Map of the family of this volume.
    Map(Uuid),
}

/// Blocks of a group with their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockUse {
    /// User of the blocks.
    pub user: BlockUser,
    /// Blocks in the volume or snapshot, in units of 4096 bytes; for a map, its blocks in the group.
    pub extent: Extent,
    /// Blocks in the group.
    pub place: Extent,
}

/// Users of some blocks of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockUses {
    /// Results, by user and block.
    pub found: Vec<BlockUse>,
    /// False when the search was cut short or a map is unreadable, so that there may be other users.
    pub complete: bool,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Unrecoverable blocks of each group.
    #[must_use]
    pub fn lost_blocks(&self) -> BTreeMap<u16, LostRecord> {
        self.shared
            .store
            .with_catalog(|catalog| catalog.lost_blocks().map(|(group, lost)| (group, lost.clone())).collect())
    }

    /// Replaces the list of lost blocks of the group. Runs beyond the available room are counted only.
    ///
    /// *Durability*: when it returns. *Errors*: `GroupUnknown`, `CatalogLost`.
    pub async fn store_lost(&self, group: u16, lost: LostRecord) -> Result<(), PoolError> {
        self.admit_group(group)?;
        let ((), change) = self.shared.store.change(|catalog| {
            put(catalog, group, lost);
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }

    /// Finds the users of these blocks of the group, at most `most` results.
    ///
    /// Writes nothing. Volumes being deleted are left out.
    pub async fn find_block_users(&self, group: u16, runs: &[Extent], most: usize) -> BlockUses {
        let mut held = BlockUses { found: Vec::new(), complete: true };
        let families: Vec<Uuid> = self.shared.store.with_catalog(|catalog| {
            held.found.extend(in_segments(catalog, group, runs));
            catalog.families.iter().map(|family| family.id).collect()
        });
        for id in families {
            let family = match self.families.family(id).await {
                Ok(family) => family,
                // A map that does not open may refer to the blocks as well.
                Err(_) => {
                    held.complete = false;
                    continue;
                }
            };
            let looked = ReverseLookup { family: &family, group, runs, most }.run(&mut held).await;
            held.complete &= looked.is_ok();
        }
        held.complete &= held.found.len() <= most;
        // One result beyond the maximum is found on purpose: it shows that the list is incomplete.
        held.found.truncate(most);
        held.found.sort_by_key(|holding| (holding.user, holding.extent.start));
        held
    }
}

fn put(catalog: &mut Catalog, group: u16, mut lost: LostRecord) {
    // Removed first, so that the old list does not count against the room for the new one.
    catalog.lost.remove(&group);
    lost.shorten(LOST_RUNS_MAX);
    if lost.is_empty() {
        return;
    }
    let room = BODY_BYTES_MAX.saturating_sub(catalog.emitted_bytes_max());
    // A quarter of the room is enough for any useful list; the rest is left to the volumes.
    lost.shorten((room / 4).checked_div(size_of::<Extent>()).unwrap_or(0));
    if !lost.is_empty() {
        catalog.lost.insert(group, lost);
    }
}

/// Users among segmented volumes.
fn in_segments(catalog: &Catalog, group: u16, runs: &[Extent]) -> Vec<BlockUse> {
    let Some(slab_blocks) = catalog.groups.get(usize::from(group)).map(|group| u64::from(group.slab_blocks)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for volume in &catalog.volumes {
        let volume_blocks = volume.size_bytes.div_ceil(u64::from(BLOCK_BYTES));
        let mut start = 0;
        for segment in &volume.segments {
            let mut before = 0;
            for (turn, column) in segment.columns.iter().enumerate() {
                let slabs =
                    Extent::new(u64::from(column.first_slab) * slab_blocks, u64::from(segment.rows) * slab_blocks);
                let here = runs.iter().filter(|_| column.group == group).map(|run| run.intersection(slabs));
                for block in here.flat_map(|run| run.start.0..run.end().0) {
                    // The inverse of `Map::locate`: from a block of the group to a block of the volume.
                    let (row, in_slab) = ((block - slabs.start.0) / slab_blocks, (block - slabs.start.0) % slab_blocks);
                    let (round, in_unit) =
                        (in_slab / u64::from(column.unit_blocks), in_slab % u64::from(column.unit_blocks));
                    let slab = row * segment.columns.len() as u64 + turn as u64;
                    // An uninitialized slab holds no data of the volume.
                    let is_used = u32::try_from(slab).is_ok_and(|slab| segment.initialised.contains(slab));
                    let lba = start + row * segment.row_blocks() + round * segment.round_blocks() + before + in_unit;
                    // Blocks behind the last round of a slab, or behind the end of the volume, belong to nobody.
                    if is_used && round < u64::from(segment.rounds) && lba < volume_blocks {
                        add(&mut found, BlockUser::Volume(volume.id), lba, Extent::new(block, 1));
                    }
                }
                before += u64::from(column.unit_blocks);
            }
            start += segment.blocks();
        }
    }
    found
}

/// Adds blocks, merging them with the previous result where they are adjacent.
pub(crate) fn add(found: &mut Vec<BlockUse>, holder: BlockUser, first: u64, place: Extent) {
    match found.last_mut() {
        Some(last) if last.user == holder && last.extent.end().0 == first && last.place.end() == place.start => {
            last.extent.len += place.len;
            last.place.len += place.len;
        }
        _ => found.push(BlockUse { user: holder, extent: Extent { start: block::Lba(first), len: place.len }, place }),
    }
}
