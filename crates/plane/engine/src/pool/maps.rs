//! Repaired copies of map blocks: counted and reported, folded into one event per second.

use super::OpenPool;
use model::{Subject, SubjectKind, event};
use shard::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use volume::{MapRepair, Uuid};

/// Repairs within this time are one event.
const TOGETHER: Duration = Duration::from_secs(1);

/// Repairs of one structure of one family: number of copies, and the first block.
struct Repaired {
    copies: u64,
    first: u64,
}

/// Repairs that were not reported yet, by family and structure.
#[derive(Default)]
pub(super) struct MapRepairs {
    untold: RefCell<BTreeMap<(Uuid, &'static str), Repaired>>,
    is_telling: Cell<bool>,
}

impl MapRepairs {
    fn note<W: World>(&self, pool: &Rc<OpenPool<W>>, repair: MapRepair) {
        let MapRepair { family, what, block, copies } = repair;
        tracing::warn!(pool = %pool.name, volume = %family, what, block, copies, "a copy of a map block was repaired");
        let mut untold = self.untold.borrow_mut();
        // One entry for each structure of a family: a sick disk must not fill the event list.
        untold.entry((family, what)).or_insert(Repaired { copies: 0, first: block }).copies += copies;
        drop(untold);
        // The first repair starts the timer; others join its event.
        if !self.is_telling.replace(true) {
            let (weak, world) = (Rc::downgrade(pool), pool.shard.world.clone());
            pool.spawn(async move {
                world.sleep(TOGETHER).await;
                if let Some(pool) = weak.upgrade() {
                    pool.map_repairs.raise_events(&pool);
                }
            });
        }
    }

    fn raise_events<W: World>(&self, pool: &OpenPool<W>) {
        // Cleared before the events are raised: a repair that comes from here on starts its own timer.
        self.is_telling.set(false);
        for ((family, what), Repaired { copies, first }) in self.untold.take() {
            let volume = pool.family_name(family);
            let plural = if copies == 1 { "" } else { "s" };
            let sentence = format!(
                "{copies} damaged {what}{plural} in the map of volume {volume} repaired from another copy, the first at \
                 map block {first}; check the disks of pool {} and what else writes to them",
                pool.name
            );
            pool.shard.raise(event::METADATA_REPAIRED, Subject::new(SubjectKind::Volume, &volume), sentence);
        }
    }
}

impl<W: World> OpenPool<W> {
    /// Subscribes to repairs of map blocks, including those from before.
    pub(super) fn watch_maps(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        self.pool.on_map_repair(move |repair| {
            if let Some(pool) = weak.upgrade() {
                pool.map_repairs.note(&pool, repair);
            }
        });
    }
}
