//! Slab allocator of a pool: free slabs, and the choice of slabs for a new or growing volume.
//!
//! Derived from the catalog each time; free space is stored nowhere.

use crate::catalog::{Catalog, Column, GroupRecord, SEGMENTS_MAX, Segment, SlabRun, SlabSet, VolumeRecord};
use crate::error::PoolError;
use crate::layout::BLOCK_BYTES;

/// Minimum stripe unit in bytes of a volume that does not set one.
const UNIT_BYTES_MIN: u32 = 64 << 10;

/// Run of free slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    slabs: u32,
}

/// Free slabs of a pool.
#[derive(Clone, Debug)]
pub(crate) struct SpaceMap {
    /// Free runs of each group, in order.
    free: Vec<Vec<Run>>,
}

impl SpaceMap {
    /// Computes what the volumes and families of `catalog` leave free.
    pub(crate) fn of(catalog: &Catalog) -> Self {
        let mut used: Vec<Vec<Run>> = vec![Vec::new(); catalog.groups.len()];
        for segment in catalog.volumes.iter().flat_map(|volume| &volume.segments) {
            for column in &segment.columns {
                used[usize::from(column.group)].push(Run { first: column.first_slab, slabs: segment.rows });
            }
        }
        // Families lease whole runs, for data and for the map alike.
        for run in catalog.families.iter().flat_map(|family| family.meta.iter().chain(&family.data)) {
            used[usize::from(run.group)].push(Run { first: run.first, slabs: run.slabs });
        }
        let free = catalog.groups.iter().zip(used).map(|(group, used)| gaps(group.slabs, used)).collect();
        Self { free }
    }

    /// Number of free slabs of each group, in order.
    pub(crate) fn free_slabs(&self) -> impl Iterator<Item = u32> {
        self.free.iter().map(|runs| runs.iter().map(|run| run.slabs).sum())
    }

    /// Allocates slabs for `blocks` more blocks, in rows over all groups with free slabs.
    pub(crate) fn take(
        &mut self,
        groups: &[GroupRecord],
        units: &Units,
        blocks: u64,
    ) -> Result<Vec<Segment>, PoolError> {
        // Measured before anything is taken: the error states what was free at the start.
        let free_bytes = self.free_blocks(groups) * u64::from(BLOCK_BYTES);
        let mut segments: Vec<Segment> = Vec::new();
        let mut missing = blocks;
        while missing > 0 {
            let Some(segment) = self.take_rows(groups, units, missing) else {
                return Err(PoolError::Full { free_bytes, needed_bytes: blocks * u64::from(BLOCK_BYTES) });
            };
            missing = missing.saturating_sub(segment.blocks());
            segments.push(segment);
            // Heavily fragmented space needs many short segments; their number is bounded by the catalog.
            if segments.len() > SEGMENTS_MAX {
                return Err(PoolError::CatalogFull);
            }
        }
        Ok(segments)
    }

    fn free_blocks(&self, groups: &[GroupRecord]) -> u64 {
        self.free_slabs().zip(groups).map(|(slabs, group)| u64::from(slabs) * u64::from(group.slab_blocks)).sum()
    }

    /// Allocates up to `slabs` slabs of a group in one run, adjacent to slab `after` where possible.
    pub(crate) fn take_run(&mut self, group: u16, slabs: u32, after: Option<u32>) -> Option<SlabRun> {
        let runs = &mut self.free[usize::from(group)];
        let adjacent = after.and_then(|after| runs.iter().position(|run| run.first == after));
        // The longest run keeps the number of runs small; of equal ones the first.
        let longest = || (0..runs.len()).max_by_key(|&at| (runs[at].slabs, std::cmp::Reverse(at)));
        let at = adjacent.or_else(longest)?;
        let run = &mut runs[at];
        let slabs = slabs.min(run.slabs);
        assert!(slabs > 0, "a run that is taken has slabs");
        let taken = SlabRun { group, first: run.first, slabs };
        run.first += slabs;
        run.slabs -= slabs;
        runs.retain(|run| run.slabs > 0);
        Some(taken)
    }

    /// Allocates as many rows for `missing` blocks as the longest free runs have in common.
    fn take_rows(&mut self, groups: &[GroupRecord], units: &Units, missing: u64) -> Option<Segment> {
        let longest = |runs: &Vec<Run>| (0..runs.len()).max_by_key(|&at| (runs[at].slabs, std::cmp::Reverse(at)));
        let picks: Vec<(usize, usize)> =
            self.free.iter().enumerate().filter_map(|(group, runs)| Some((group, longest(runs)?))).collect();
        // A row takes one slab of each column, so the shortest run limits the segment.
        let common = picks.iter().map(|&(group, at)| self.free[group][at].slabs).min()?;
        let alone = picks.len() == 1;
        // A single column needs no interleaving: its unit is the whole slab.
        let unit = |group: usize| if alone { groups[group].slab_blocks } else { units.of(group) };
        // Groups may have different slab sizes; the smallest number of rounds fits in each slab.
        let rounds = picks.iter().map(|&(group, _)| groups[group].slab_blocks / unit(group)).min()?;
        let round_blocks: u64 = picks.iter().map(|&(group, _)| u64::from(unit(group))).sum();
        let needed = missing.div_ceil(round_blocks * u64::from(rounds));
        // No more rows than the volume still needs.
        let rows = common.min(u32::try_from(needed).unwrap_or(u32::MAX));
        let columns: Vec<Column> = picks
            .iter()
            .map(|&(group, at)| Column {
                group: u16::try_from(group).expect("bounded by GROUPS_MAX"),
                first_slab: self.free[group][at].first,
                unit_blocks: unit(group),
            })
            .collect();
        // Taken only here: the columns above begin where the runs began.
        for (group, at) in picks {
            let run = &mut self.free[group][at];
            run.first += rows;
            run.slabs -= rows;
            self.free[group].retain(|run| run.slabs > 0);
        }
        assert!(rows > 0 && rounds > 0, "a segment has blocks");
        let slabs = rows * u32::try_from(columns.len()).expect("bounded by GROUPS_MAX");
        Some(Segment { rows, rounds, columns, initialised: SlabSet::none(slabs) })
    }
}

/// Free runs that `used` leaves of `slabs` slabs.
fn gaps(slabs: u32, mut used: Vec<Run>) -> Vec<Run> {
    used.sort_unstable_by_key(|run| run.first);
    let mut free = Vec::new();
    let mut at = 0;
    // The empty run at the end closes the last gap.
    for run in used.iter().chain([&Run { first: slabs, slabs: 0 }]) {
        assert!(run.first >= at, "a slab belongs to one volume or family");
        if run.first > at {
            free.push(Run { first: at, slabs: run.first - at });
        }
        at = run.first + run.slabs;
    }
    let slabs_of = |runs: &[Run]| runs.iter().map(|run| run.slabs).sum::<u32>();
    assert_eq!(slabs_of(&used) + slabs_of(&free), slabs, "used and free slabs are all that a group has");
    free
}

/// Stripe unit of each group in blocks.
#[derive(Clone, Debug)]
pub(crate) struct Units(Vec<u32>);

impl Units {
    /// Chooses the units: `unit_bytes` on every group, or, for 0, one full stripe of each.
    ///
    /// Several stripes form a unit where a stripe is short, and less than one where slabs are no longer a whole
    /// number of stripes because the group got more members, so that no slab has a remainder. *Shape*:
    /// `stripe_bytes` are those of the groups. *Errors*: a unit that is no whole number of blocks or is longer
    /// than a slab.
    pub(crate) fn choose(unit_bytes: u32, stripe_bytes: &[u32], groups: &[GroupRecord]) -> Result<Self, PoolError> {
        let mut units = Vec::with_capacity(groups.len());
        for (group, &stripe_bytes) in groups.iter().zip(stripe_bytes) {
            let bytes = match unit_bytes {
                0 => stripe_bytes.max(1) * UNIT_BYTES_MIN.div_ceil(stripe_bytes.max(1)),
                _ => unit_bytes,
            };
            let blocks = bytes / BLOCK_BYTES;
            if unit_bytes != 0 && group.slabs > 0 && (!bytes.is_multiple_of(BLOCK_BYTES) || blocks > group.slab_blocks)
            {
                return Err(PoolError::StripeUnit(unit_bytes));
            }
            let blocks = blocks.clamp(1, group.slab_blocks);
            // A unit that divides the slab leaves no unused blocks at its end.
            let even =
                (UNIT_BYTES_MIN / BLOCK_BYTES..=blocks).rev().find(|unit| group.slab_blocks.is_multiple_of(*unit));
            units.push(even.filter(|_| unit_bytes == 0).unwrap_or(blocks));
        }
        Ok(Self(units))
    }

    fn of(&self, group: usize) -> u32 {
        self.0[group]
    }
}

impl VolumeRecord {
    /// Appends `segments`, merging them with the last one where they continue it.
    pub(crate) fn append(&mut self, segments: Vec<Segment>) {
        for segment in segments {
            match self.segments.last_mut() {
                Some(last) if continues(last, &segment) => {
                    // One long segment keeps lookups short and the catalog small.
                    last.rows += segment.rows;
                    let slabs = last.initialised.len() + segment.initialised.len();
                    last.initialised.extend_to(slabs);
                    assert_eq!(slabs as usize, last.rows as usize * last.columns.len(), "each slab has its bit");
                }
                _ => self.segments.push(segment),
            }
        }
    }

    /// Number of blocks in all slabs of the volume.
    pub(crate) fn allocated_blocks(&self) -> u64 {
        self.segments.iter().map(Segment::blocks).sum()
    }
}

fn continues(last: &Segment, next: &Segment) -> bool {
    // The segments become one only where every column continues its own run of slabs.
    let same_columns = last.columns.len() == next.columns.len()
        && last.columns.iter().zip(&next.columns).all(|(a, b)| {
            (a.group, a.unit_blocks) == (b.group, b.unit_blocks) && a.first_slab + last.rows == b.first_slab
        });
    same_columns && last.rounds == next.rounds
}

#[cfg(test)]
mod tests;
