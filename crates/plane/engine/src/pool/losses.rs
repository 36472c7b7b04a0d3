//! List of lost blocks of an open pool: kept in its catalog, resolved to volumes and LBAs, and reported.
//!
//! Arrays and [`LossTrackingArray`](crate::loss_tracking::LossTrackingArray) enter and remove blocks of a group. Once a
//! second changes are verified, resolved, committed and reported here. Nothing here changes the result of a read.

use super::OpenPool;
use block::{BlockDevice, Blocks, Extent};
use model::{LostBlocks, LostRange, Name, VolumeName, event};
use shard::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use volume::{BLOCK_BYTES, BlockUse, BlockUser, BlockUses, Uuid};

/// Interval of checks for changes; a list that is not empty is resolved again every [`NAMING_LOOKS`] checks, because
/// maps move.
const LOOK: Duration = Duration::from_secs(1);
const NAMING_LOOKS: u64 = 60;
/// Largest number of ranges that are resolved.
const RANGES_MAX: usize = 1000;
/// Largest number of ranges named in an event.
const TOLD_MAX: usize = 4;

/// Resolved form of the list, for reports.
#[derive(Default)]
pub(super) struct Losses {
    ranges: RefCell<Vec<LostRange>>,
    truncated: Cell<bool>,
    /// Lost blocks that were reported in events so far.
    told: Cell<u64>,
    /// True while the list is being settled.
    settling: Cell<bool>,
}

/// A volume or snapshot under the name that hosts and operators know.
struct Shown {
    volume: Option<VolumeName>,
    snapshot: Option<Name>,
    block_bytes: u32,
}

/// Loads the list from the catalog, and settles its changes for as long as the pool is open.
pub(super) fn watch<W: World>(pool: &Rc<OpenPool<W>>) {
    for (group, record) in pool.pool.lost_blocks() {
        if let Some(state) = pool.groups.get(usize::from(group)) {
            state.array.losses.load(&record);
        }
    }
    // Blocks that were listed before have been reported: opening the pool must not report them again.
    pool.losses.told.set(LostList(pool).blocks());
    let (weak, world) = (Rc::downgrade(pool), pool.shard.world.clone());
    pool.spawn(async move {
        for look in 1_u64.. {
            world.sleep(LOOK).await;
            let Some(pool) = weak.upgrade() else { return };
            let list = LostList(&pool);
            // Maps move, so the owners of lost blocks are looked up again from time to time.
            let is_due =
                list.blocks() > 0 && (look.is_multiple_of(NAMING_LOOKS) || pool.losses.ranges.borrow().is_empty());
            if is_due || list.has_changed() {
                list.settle().await;
            }
        }
    });
}

/// Lost blocks of a pool.
pub(super) struct LostList<'a, W: World>(pub(super) &'a OpenPool<W>);

impl<W: World> LostList<'_, W> {
    /// Report for operators.
    pub(super) fn report(&self) -> LostBlocks {
        let (ranges, truncated) = (self.0.losses.ranges.borrow().clone(), self.0.losses.truncated.get());
        match self.blocks() {
            0 => LostBlocks::default(),
            blocks => LostBlocks { blocks, ranges, truncated },
        }
    }

    /// Enters lost blocks of the group. They are durable and reported when this returns.
    pub(super) async fn enter(&self, group: usize, lost: &[Extent]) {
        for extent in lost {
            self.0.groups[group].array.losses.enter(*extent);
        }
        // Settled once for all of them, so that they cost one commit.
        self.settle().await;
    }

    /// Reads these stripes as a host would: what cannot be reconstructed is listed, and unreadable blocks that can be
    /// are rewritten.
    pub(super) async fn look_for(&self, group: usize, stripes: Range<u64>) {
        let array = self.0.groups[group].array.clone();
        let blocks = array.stripe_blocks();
        for stripe in stripes {
            // The read itself enters what is lost; its error tells nothing more.
            if let Err(error) = array.read(Extent::new(stripe * blocks, blocks)).await {
                tracing::debug!(pool = %self.0.name, group, stripe, %error, "a stripe cannot be read");
            }
        }
    }

    /// Lets all listed blocks of the group be read again: a member has returned, or a scrub has repaired blocks.
    pub(super) fn doubt(&self, group: usize) {
        self.0.groups[group].array.losses.doubt();
    }

    /// Clears the counts of unlisted blocks, at the start of a scrub that will find them again.
    pub(super) fn forget_unnamed(&self) {
        self.0.groups.iter().for_each(|(_, state)| state.array.losses.forget_unnamed());
    }

    fn blocks(&self) -> u64 {
        self.0.groups.iter().map(|(_, state)| state.array.losses.blocks()).sum()
    }

    fn has_changed(&self) -> bool {
        self.0.groups.iter().any(|(_, state)| state.array.losses.is_to_be_settled())
    }

    /// Verifies, resolves, commits and reports the list.
    pub(super) async fn settle(&self) {
        let losses = &self.0.losses;
        // Another task is settling it; changes that it misses are seen at the next check.
        if losses.settling.replace(true) {
            return;
        }
        // Collected first: groups may come and go during the awaits.
        let groups: Vec<usize> = self.0.groups.iter().map(|(group, _)| group).collect();
        let (mut ranges, mut truncated) = (Vec::new(), false);
        for group in groups {
            // Verified before they are resolved: blocks that can be read again are not reported.
            self.prove(group).await;
            truncated |= !self.name(group, &mut ranges).await;
            self.commit(group).await;
        }
        assert!(losses.settling.get(), "the list is settled by one at a time");
        // Replaced only here, so that a report never shows a list that is half resolved.
        losses.truncated.set(truncated);
        losses.ranges.replace(ranges);
        losses.settling.set(false);
        // After all groups, so that one event names everything that was found together.
        self.report_changes();
    }

    /// Reads blocks again that are listed because of one failed read. A good read removes them from the list.
    async fn prove(&self, group: usize) {
        let array = self.0.groups[group].array.clone();
        for run in array.losses.take_unproven() {
            let Err(error) = array.read(run).await else { continue };
            // A run fails as a whole; single reads find the blocks of it that are readable.
            if error.kind == block::IoErrorKind::Medium && run.len.0 > 1 {
                for at in run.start.0..run.end().0 {
                    drop(array.read(Extent::new(at, 1)).await);
                }
            }
        }
    }

    /// Resolves the listed blocks of the group to volumes. Blocks that nobody uses any more are removed. False if the
    /// result is incomplete.
    async fn name(&self, group: usize, ranges: &mut Vec<LostRange>) -> bool {
        let losses = &self.0.groups[group].array.losses;
        let record = losses.record();
        if record.runs.is_empty() {
            return record.more == 0;
        }
        let number = u16::try_from(group).expect("a pool has at most 64 groups");
        // Blocks of the log belong to no volume; they are shown by their place in the group.
        if self.0.pool.write_log().group() == Some(number) {
            let of_log = |run: &Extent| LostRange {
                volume: None,
                snapshot: None,
                is_map: false,
                group: number,
                lba: run.start.0,
                blocks: run.len.0,
                block_bytes: BLOCK_BYTES,
            };
            ranges.extend(record.runs.iter().take(RANGES_MAX).map(of_log));
            return record.runs.len() <= RANGES_MAX && record.more == 0;
        }
        let held = self.0.pool.find_block_users(number, &record.runs, RANGES_MAX).await;
        // Only a complete lookup proves that nobody uses a block.
        if held.complete {
            for run in &record.runs {
                vacant(*run, &held).into_iter().for_each(|gap| losses.remove(gap));
            }
        }
        let shown = self.shown();
        ranges.extend(held.found.iter().map(|holding| range(number, holding, &shown)));
        held.complete && record.more == 0
    }

    /// Volumes and snapshots of the pool by identity.
    fn shown(&self) -> BTreeMap<Uuid, Shown> {
        let status = self.0.pool.status();
        let volume = |name: &str| Some(VolumeName::in_pool(self.0.name.clone(), name.parse().ok()?));
        let mut shown = BTreeMap::new();
        for one in &status.volumes {
            let (name, block_bytes) = (volume(&one.name), one.block_bytes);
            shown.insert(one.id, Shown { volume: name, snapshot: None, block_bytes });
        }
        for one in status.families.iter().flat_map(|family| &family.volumes) {
            let (name, block_bytes) = (volume(&one.name), one.block_bytes);
            for snapshot in &one.snapshots {
                let of = Shown { volume: name.clone(), snapshot: snapshot.name.parse().ok(), block_bytes };
                shown.insert(snapshot.id, of);
            }
            shown.insert(one.id, Shown { volume: name, snapshot: None, block_bytes });
        }
        shown
    }

    /// Commits the list of the group to the catalog.
    async fn commit(&self, group: usize) {
        let losses = &self.0.groups[group].array.losses;
        // Taken before the commit: changes during it are committed at the next check.
        if !losses.take_changed() || self.0.is_read_only() {
            return;
        }
        let number = u16::try_from(group).expect("a pool has at most 64 groups");
        if let Err(error) = self.0.pool.store_lost(number, losses.record()).await {
            tracing::warn!(pool = %self.0.name, group, %error, "the list of lost blocks is not in the catalog");
        }
    }

    fn report_changes(&self) {
        let (lost, name, told) = (self.report(), &self.0.name, &self.0.losses.told);
        let before = told.replace(lost.blocks);
        if lost.blocks > before {
            let (amount, whose) = (lost.amount(), lost.named(TOLD_MAX));
            let sentence = format!(
                "{amount} of pool {name} could not be reconstructed: {whose}. Reads return a medium error until the blocks are \
                 rewritten; blockyard pool show {name} lists them"
            );
            self.0.raise(event::BLOCKS_LOST, sentence);
        } else if lost.is_empty() && before > 0 {
            let sentence = format!("pool {name} has no more lost blocks");
            self.0.raise(event::BLOCKS_RECOVERED, sentence);
        }
    }
}

fn range(group: u16, holding: &BlockUse, shown: &BTreeMap<Uuid, Shown>) -> LostRange {
    let (id, is_map) = match holding.user {
        BlockUser::Volume(id) | BlockUser::Snapshot(id) => (id, false),
        BlockUser::Map(id) => (id, true),
    };
    assert_eq!(holding.extent.len, holding.place.len, "a block of a volume lies on one of a group");
    let of = shown.get(&id);
    let block_bytes = of.map_or(BLOCK_BYTES, |of| of.block_bytes);
    // The list counts blocks of 4096 bytes, hosts may count sectors of 512 bytes.
    let each = if is_map { 1 } else { u64::from(BLOCK_BYTES / block_bytes) };
    LostRange {
        volume: of.and_then(|of| of.volume.clone()),
        snapshot: of.and_then(|of| of.snapshot.clone()),
        is_map,
        group,
        lba: holding.extent.start.0 * each,
        blocks: holding.extent.len.0 * each,
        block_bytes: if is_map { BLOCK_BYTES } else { block_bytes },
    }
}

/// Parts of `run` that no volume, snapshot or map uses.
fn vacant(run: Extent, held: &BlockUses) -> Vec<Extent> {
    let mut places: Vec<Extent> = held.found.iter().map(|holding| holding.place.intersection(run)).collect();
    // Holders may overlap and come in any order.
    places.sort_by_key(|place| place.start);
    let (mut at, mut gaps) = (run.start, Vec::new());
    for place in places.into_iter().filter(|place| !place.is_empty()) {
        if at < place.start {
            gaps.push(Extent { start: at, len: Blocks(place.start.0 - at.0) });
        }
        at = at.max(place.end());
    }
    assert!(at <= run.end(), "a gap lies within its run");
    if at < run.end() {
        gaps.push(Extent { start: at, len: Blocks(run.end().0 - at.0) });
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_is_what_lies_between_the_holders() {
        let holding = |start, len| BlockUse {
            user: BlockUser::Volume(Uuid::nil()),
            extent: Extent::new(0, len),
            place: Extent::new(start, len),
        };
        // Two of them share blocks.
        let held = BlockUses { found: vec![holding(14, 2), holding(12, 3), holding(30, 9)], complete: true };
        let gaps = |start, len| {
            vacant(Extent::new(start, len), &held).iter().map(|gap| (gap.start.0, gap.len.0)).collect::<Vec<_>>()
        };
        assert_eq!(gaps(10, 10), [(10, 2), (16, 4)]);
        assert_eq!(gaps(12, 4), []);
        assert_eq!(gaps(20, 3), [(20, 3)]);
    }
}
