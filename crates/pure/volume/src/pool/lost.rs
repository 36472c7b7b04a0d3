//! The list of lost blocks, and whose they are.

use super::Pool;
use crate::catalog::{Catalog, LOST_RUNS_MAX, LostRecord};
use crate::error::PoolError;
use crate::family::HolderSearch;
use crate::layout::{BLOCK_BYTES, BODY_BYTES_MAX};
use block::{BlockDevice, Extent};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Who has blocks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A volume.
    Volume(Uuid),
    /// A snapshot.
    Snapshot(Uuid),
    /// The map of the family of this volume.
    Map(Uuid),
}

/// Blocks that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Who.
    pub holder: Holder,
    /// Where in the volume or the snapshot, in blocks of 4096 bytes; in a map its blocks of the group.
    pub extent: Extent,
    /// Where in the group.
    pub place: Extent,
}

/// Who has some blocks of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// In the order of the holders and their blocks.
    pub found: Vec<Holding>,
    /// False where more would have to be looked at, or a map cannot be read: others may have the blocks as well.
    pub complete: bool,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The lost blocks of each group.
    #[must_use]
    pub fn losses(&self) -> BTreeMap<u16, LostRecord> {
        self.shared.store.look(|catalog| catalog.losses().map(|(group, lost)| (group, lost.clone())).collect())
    }

    /// `lost` is what is lost of the group from now on. What there is no room for is counted and not named.
    ///
    /// *Durability*: when it returns. *Errors*: `GroupUnknown`, `CatalogLost`.
    pub async fn keep_lost(&self, group: u16, lost: LostRecord) -> Result<(), PoolError> {
        self.admit_group(group)?;
        let ((), change) = self.shared.store.change(|catalog| {
            put(catalog, group, lost);
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }

    /// Who has these blocks of the group, at most `most` pieces of them.
    ///
    /// Nothing is written. Who is being deleted has nothing.
    pub async fn holders(&self, group: u16, runs: &[Extent], most: usize) -> Holdings {
        let mut held = Holdings { found: Vec::new(), complete: true };
        let families: Vec<Uuid> = self.shared.store.look(|catalog| {
            held.found.extend(in_segments(catalog, group, runs));
            catalog.families.iter().map(|family| family.id).collect()
        });
        for id in families {
            let family = match self.families.family(id).await {
                Ok(family) => family,
                Err(_) => {
                    held.complete = false;
                    continue;
                }
            };
            let looked = HolderSearch { family: &family, group, runs, most }.run(&mut held).await;
            held.complete &= looked.is_ok();
        }
        held.complete &= held.found.len() <= most;
        held.found.truncate(most);
        held.found.sort_by_key(|holding| (holding.holder, holding.extent.start));
        held
    }
}

fn put(catalog: &mut Catalog, group: u16, mut lost: LostRecord) {
    catalog.lost.remove(&group);
    lost.shorten(LOST_RUNS_MAX);
    if lost.is_empty() {
        return;
    }
    let room = BODY_BYTES_MAX.saturating_sub(catalog.emitted_bytes_max());
    // A quarter of the room is enough for any list that is of use; the rest is the volumes'.
    lost.shorten((room / 4).checked_div(size_of::<Extent>()).unwrap_or(0));
    if !lost.is_empty() {
        catalog.lost.insert(group, lost);
    }
}

/// The blocks that volumes in segments have.
fn in_segments(catalog: &Catalog, group: u16, runs: &[Extent]) -> Vec<Holding> {
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
                    let (row, in_slab) = ((block - slabs.start.0) / slab_blocks, (block - slabs.start.0) % slab_blocks);
                    let (round, in_unit) =
                        (in_slab / u64::from(column.unit_blocks), in_slab % u64::from(column.unit_blocks));
                    let slab = row * segment.columns.len() as u64 + turn as u64;
                    let is_used = u32::try_from(slab).is_ok_and(|slab| segment.initialised.contains(slab));
                    let lba = start + row * segment.row_blocks() + round * segment.round_blocks() + before + in_unit;
                    if is_used && round < u64::from(segment.rounds) && lba < volume_blocks {
                        add(&mut found, Holder::Volume(volume.id), lba, Extent::new(block, 1));
                    }
                }
                before += u64::from(column.unit_blocks);
            }
            start += segment.blocks();
        }
    }
    found
}

/// Adds blocks, to those before them where they follow.
pub(crate) fn add(found: &mut Vec<Holding>, holder: Holder, first: u64, place: Extent) {
    match found.last_mut() {
        Some(last) if last.holder == holder && last.extent.end().0 == first && last.place.end() == place.start => {
            last.extent.len += place.len;
            last.place.len += place.len;
        }
        _ => found.push(Holding { holder, extent: Extent { start: block::Lba(first), len: place.len }, place }),
    }
}
