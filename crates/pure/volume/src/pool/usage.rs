//! Allocated blocks of a group: what a rebuild must restore and a resync must read.

use super::Pool;
use block::{BlockDevice, Extent};

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Returns the blocks of the group that belong to a volume or family, written or not, ascending and merged.
    /// What is allocated later is written completely before it is read.
    #[must_use]
    pub fn allocated(&self, group: u16) -> Vec<Extent> {
        let mut runs: Vec<Extent> = self.shared.store.with_catalog(|catalog| {
            let Some(record) = catalog.groups.get(usize::from(group)) else { return Vec::new() };
            let slab = u64::from(record.slab_blocks);
            let segments = catalog.volumes.iter().flat_map(|volume| &volume.segments);
            let columns = segments
                .flat_map(|segment| segment.columns.iter().map(move |column| (segment.rows, column)))
                .filter(|(_, column)| column.group == group)
                .map(|(rows, column)| (column.first_slab, rows));
            let leased = catalog.families.iter().flat_map(|family| family.meta.iter().chain(&family.data));
            let leased = leased.filter(|run| run.group == group).map(|run| (run.first, run.slabs));
            let extent = |(first, slabs)| Extent::new(u64::from(first) * slab, u64::from(slabs) * slab);
            columns.chain(leased).map(extent).collect()
        });
        // Runs of different volumes come in any order; each slab is in one of them.
        runs.sort_by_key(|run| run.start);
        let mut joined: Vec<Extent> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                // Adjacent slabs of different volumes form one extent.
                Some(last) if last.end() == run.start => last.len += run.len,
                _ => joined.push(run),
            }
        }
        joined
    }
}
