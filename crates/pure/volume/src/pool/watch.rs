//! How full a pool is, and who hears of it.

use super::Shared;
use crate::catalog::Catalog;
use crate::family::plan::{MapRepair, SpaceEvent, Thresholds};
use crate::layout::BLOCK_BYTES;
use crate::space::SpaceMap;
use crate::store::Change;
use block::{BlockDevice, Blocks};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uuid::Uuid;

/// What is kept for who listens later.
const UNHEARD_MAX: usize = 64;

type Hear = Rc<dyn Fn(SpaceEvent)>;
type HearOfMap = Rc<dyn Fn(MapRepair)>;

/// The thresholds of a pool, and which of them are crossed.
#[derive(Default)]
pub(crate) struct Watch {
    thresholds: Cell<Thresholds>,
    level: Cell<Level>,
    hear: RefCell<Option<Hear>>,
    hear_of_map: RefCell<Option<HearOfMap>>,
    /// What nobody has heard of yet, for maps are read before somebody listens.
    unheard: RefCell<Vec<MapRepair>>,
    /// How many have asked to be left alone until they are through.
    held: Cell<u32>,
    /// What was free when the catalog was as this change made it.
    free: Cell<Option<(Change, u64)>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    #[default]
    Low,
    Soft,
    Hard,
}

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    /// Somebody hears of thresholds that are crossed, now and from now on.
    pub(super) fn watch(&self, thresholds: Thresholds, hear: Hear) {
        self.watch.thresholds.set(thresholds);
        *self.watch.hear.borrow_mut() = Some(hear);
        self.look_at_space();
    }

    /// Tells of the thresholds that what is used has crossed since the last look.
    pub(crate) fn look_at_space(&self) {
        let thresholds = self.watch.thresholds.get();
        if thresholds == Thresholds::default() || self.watch.held.get() > 0 {
            return;
        }
        let (used_bytes, bytes) = self.space();
        // A pool whose volumes have all their space already refuses no write, however full it is.
        let is_taken_later = self.store.look(Catalog::takes_space_later);
        let above = |threshold: u16| {
            let is_set = is_taken_later && threshold > 0;
            is_set && u128::from(used_bytes) * 1000 >= u128::from(bytes) * u128::from(threshold)
        };
        let level = match (above(thresholds.soft), above(thresholds.hard)) {
            (_, true) => Level::Hard,
            (true, false) => Level::Soft,
            _ => Level::Low,
        };
        let before = self.watch.level.replace(level);
        // One step that crosses both thresholds is told once.
        match level {
            Level::Soft if before < level => self.tell(SpaceEvent::Soft { used_bytes, bytes }),
            Level::Hard if before < level => self.tell(SpaceEvent::Hard { used_bytes, bytes }),
            Level::Low if before > level => self.tell(SpaceEvent::Relieved { used_bytes, bytes }),
            _ => {}
        }
    }

    /// What `attempt` says; nobody hears of space before it has ended. What it takes and gives back when it comes to nothing was
    /// never used.
    pub(crate) fn attempt<T>(&self, attempt: impl FnOnce() -> T) -> T {
        self.watch.held.set(self.watch.held.get() + 1);
        let done = attempt();
        self.watch.held.set(self.watch.held.get() - 1);
        self.look_at_space();
        done
    }

    /// A write to the volume was refused for want of space.
    pub(crate) fn tell_exhausted(&self, volume: Uuid) {
        self.tell(SpaceEvent::Exhausted { volume });
    }

    fn tell(&self, event: SpaceEvent) {
        // Not borrowed while it is told: who hears may ask the pool.
        let hear = self.watch.hear.borrow().clone();
        if let Some(hear) = hear {
            hear(event);
        }
    }

    /// Somebody hears of copies of maps that were written again, so far and from now on.
    pub(super) fn watch_maps(&self, hear: HearOfMap) {
        *self.watch.hear_of_map.borrow_mut() = Some(hear.clone());
        let unheard = std::mem::take(&mut *self.watch.unheard.borrow_mut());
        unheard.into_iter().for_each(|repair| hear(repair));
    }

    /// Copies of a block of a map were written again.
    pub(crate) fn tell_of_map(&self, repair: MapRepair) {
        let hear = self.watch.hear_of_map.borrow().clone();
        match hear {
            Some(hear) => hear(repair),
            None if self.watch.unheard.borrow().len() < UNHEARD_MAX => self.watch.unheard.borrow_mut().push(repair),
            None => {}
        }
    }

    /// Bytes of slabs that nobody has. Asked often, counted when the catalog has changed.
    pub(crate) fn free_bytes(&self) -> u64 {
        let now = self.store.latest();
        match self.watch.free.get() {
            Some((change, free)) if change == now => free,
            _ => {
                let (used, all) = self.space();
                self.watch.free.set(Some((now, all - used)));
                all - used
            }
        }
    }

    /// Bytes that are used, and bytes of all slabs.
    fn space(&self) -> (u64, u64) {
        self.store.look(|catalog| {
            let slabs = SpaceMap::of(catalog);
            let bytes = |slabs: u32, blocks: u32| Blocks(u64::from(slabs) * u64::from(blocks)).bytes(BLOCK_BYTES);
            let groups = || catalog.groups.iter();
            let all: u64 = groups().map(|group| bytes(group.slabs, group.slab_blocks)).sum();
            let free: u64 = groups().zip(slabs.free_slabs()).map(|(group, free)| bytes(free, group.slab_blocks)).sum();
            (all - free, all)
        })
    }
}
