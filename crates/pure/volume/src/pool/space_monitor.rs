//! Space thresholds of a pool and notification of its observers.

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

/// Maximum number of events kept for an observer that registers later.
const PENDING_REPAIRS_MAX: usize = 64;

type SpaceObserver = Rc<dyn Fn(SpaceEvent)>;
type RepairObserver = Rc<dyn Fn(MapRepair)>;

/// Thresholds of a pool, the current level and its observers.
#[derive(Default)]
pub(crate) struct SpaceMonitor {
    thresholds: Cell<Thresholds>,
    level: Cell<Level>,
    space_observer: RefCell<Option<SpaceObserver>>,
    repair_observer: RefCell<Option<RepairObserver>>,
    /// Repairs not reported yet: maps are read before an observer registers.
    pending_repairs: RefCell<Vec<MapRepair>>,
    /// Number of attempts during which no space event is raised.
    suppressed: Cell<u32>,
    /// Free bytes as of this change of the catalog (cached).
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
    /// Registers the observer of threshold crossings; it is notified at once if one is crossed now.
    pub(super) fn observe_space(&self, thresholds: Thresholds, hear: SpaceObserver) {
        self.space_monitor.thresholds.set(thresholds);
        *self.space_monitor.space_observer.borrow_mut() = Some(hear);
        self.check_space_thresholds();
    }

    /// Raises an event when usage has crossed a threshold since the last call.
    pub(crate) fn check_space_thresholds(&self) {
        let thresholds = self.space_monitor.thresholds.get();
        // Returns before the catalog is summed up, because this runs after every lease.
        if thresholds == Thresholds::default() || self.space_monitor.suppressed.get() > 0 {
            return;
        }
        let (used_bytes, bytes) = self.space();
        // When all volumes have their space already, no write can be refused, however full the pool is.
        let is_taken_later = self.store.with_catalog(Catalog::allocates_on_write);
        let above = |threshold: u16| {
            // In 128 bits, because the bytes of a large pool times 1,000 exceed 64.
            let is_set = is_taken_later && threshold > 0;
            is_set && u128::from(used_bytes) * 1000 >= u128::from(bytes) * u128::from(threshold)
        };
        let level = match (above(thresholds.soft), above(thresholds.hard)) {
            (_, true) => Level::Hard,
            (true, false) => Level::Soft,
            _ => Level::Low,
        };
        // Events are raised on transitions only.
        let before = self.space_monitor.level.replace(level);
        // A step that crosses both thresholds raises one event.
        match level {
            Level::Soft if before < level => self.notify(SpaceEvent::Soft { used_bytes, bytes }),
            Level::Hard if before < level => self.notify(SpaceEvent::Hard { used_bytes, bytes }),
            // Falling from hard to soft raises no event: the pool is still nearly full.
            Level::Low if before > level => self.notify(SpaceEvent::Relieved { used_bytes, bytes }),
            _ => {}
        }
    }

    /// Runs `attempt` without space events: what a failed attempt allocates and frees again was never used.
    pub(crate) fn without_space_events<T>(&self, attempt: impl FnOnce() -> T) -> T {
        self.space_monitor.suppressed.set(self.space_monitor.suppressed.get() + 1);
        let done = attempt();
        self.space_monitor.suppressed.set(self.space_monitor.suppressed.get() - 1);
        self.check_space_thresholds();
        done
    }

    /// Raises the event that a write to the volume was refused for lack of space.
    pub(crate) fn report_exhausted(&self, volume: Uuid) {
        self.notify(SpaceEvent::Exhausted { volume });
    }

    fn notify(&self, event: SpaceEvent) {
        // The observer is cloned first, because it may call the pool.
        let hear = self.space_monitor.space_observer.borrow().clone();
        if let Some(hear) = hear {
            hear(event);
        }
    }

    /// Registers the observer of map repairs, past and future.
    pub(super) fn observe_map_repairs(&self, hear: RepairObserver) {
        *self.space_monitor.repair_observer.borrow_mut() = Some(hear.clone());
        // Maps are read while the pool is opened, before anybody can listen.
        let unheard = std::mem::take(&mut *self.space_monitor.pending_repairs.borrow_mut());
        unheard.into_iter().for_each(|repair| hear(repair));
    }

    /// Reports the repair of a map block.
    pub(crate) fn report_map_repair(&self, repair: MapRepair) {
        let hear = self.space_monitor.repair_observer.borrow().clone();
        match hear {
            Some(hear) => hear(repair),
            // Bounded, because an observer may never register.
            None if self.space_monitor.pending_repairs.borrow().len() < PENDING_REPAIRS_MAX => {
                self.space_monitor.pending_repairs.borrow_mut().push(repair)
            }
            None => {}
        }
    }

    /// Free bytes of the pool. Called often, so it is recomputed only after a change of the catalog.
    pub(crate) fn free_bytes(&self) -> u64 {
        let now = self.store.latest();
        match self.space_monitor.free.get() {
            Some((change, free)) if change == now => free,
            _ => {
                let (used, all) = self.space();
                self.space_monitor.free.set(Some((now, all - used)));
                all - used
            }
        }
    }

    /// Bytes used and bytes of all slabs.
    fn space(&self) -> (u64, u64) {
        self.store.with_catalog(|catalog| {
            let slabs = SpaceMap::of(catalog);
            let bytes = |slabs: u32, blocks: u32| Blocks(u64::from(slabs) * u64::from(blocks)).bytes(BLOCK_BYTES);
            let groups = || catalog.groups.iter();
            let all: u64 = groups().map(|group| bytes(group.slabs, group.slab_blocks)).sum();
            let free: u64 = groups().zip(slabs.free_slabs()).map(|(group, free)| bytes(free, group.slab_blocks)).sum();
            (all - free, all)
        })
    }
}
