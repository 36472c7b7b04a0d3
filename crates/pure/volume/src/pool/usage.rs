//! Which blocks of a group matter: what a rebuild must restore, and a resync must look at.

use super::Pool;
use block::{BlockDevice, Extent};

impl<D: BlockDevice + 'static, G: BlockDevice> Pool<D, G> {
    /// The blocks of the group that belong to a volume, written or not, in ascending order and as long
    /// as they can be. What is allocated later is written whole before it is read.
    #[must_use]
    pub fn allocated(&self, group: u16) -> Vec<Extent> {
        let mut runs: Vec<Extent> = self.shared.store.look(|catalog| {
            let Some(record) = catalog.groups.get(usize::from(group)) else { return Vec::new() };
            let slab = u64::from(record.slab_blocks);
            let segments = catalog.volumes.iter().flat_map(|volume| &volume.segments);
            segments
                .flat_map(|segment| segment.columns.iter().map(move |column| (segment.rows, column)))
                .filter(|(_, column)| column.group == group)
                .map(|(rows, column)| Extent::new(u64::from(column.first_slab) * slab, u64::from(rows) * slab))
                .collect()
        });
        runs.sort_by_key(|run| run.start);
        let mut joined: Vec<Extent> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(last) if last.end() == run.start => last.len += run.len,
                _ => joined.push(run),
            }
        }
        joined
    }
}
