//! Open families of a pool and their background work.

use super::{Pool, Shared};
use crate::error::PoolError;
use crate::family::plan::{GcProgress, MaintenanceResult, MapRepair, SpaceEvent, Thresholds};
use crate::family::{Family, MapError, PageCache, Salvage, Tuning};
use crate::thin::ThinVolume;
use block::BlockDevice;
use shard::Spawn;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Number of slabs whose free granules one background step reads.
const LOADS_MAX: usize = 64;

/// Open families of a pool. They stay open, because they hold state that no disk has yet.
pub(crate) struct Families<D, G> {
    pub(crate) shared: Rc<Shared<D, G>>,
    open: RefCell<BTreeMap<Uuid, Rc<Family<D, G>>>>,
    /// Open devices, by volume or snapshot.
    devices: RefCell<BTreeMap<Uuid, Weak<ThinVolume<D, G>>>>,
    // One cache for all families, so that the memory budget is that of the pool.
    cache: Rc<PageCache>,
    opened: Cell<u32>,
    pub(crate) tuning: Cell<Tuning>,
}

impl<D: BlockDevice + 'static, G: BlockDevice> Families<D, G> {
    pub(super) fn new(shared: Rc<Shared<D, G>>) -> Self {
        Self {
            shared,
            open: RefCell::default(),
            devices: RefCell::default(),
            cache: Rc::default(),
            opened: Cell::new(0),
            tuning: Cell::default(),
        }
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Families<D, G> {
    /// Opens the family, or returns the open one.
    pub(super) async fn family(self: &Rc<Self>, id: Uuid) -> Result<Rc<Family<D, G>>, PoolError> {
        if let Some(family) = self.opened(id) {
            return Ok(family);
        }
        let record = self.shared.store.with_catalog(|catalog| catalog.family(id).cloned());
        let record = record.ok_or(PoolError::VolumeUnknown(id))?;
        // Each opening has its own keys in the shared cache, so pages of an earlier one are never found.
        self.opened.set(self.opened.get() + 1);
        let cache = (self.cache.clone(), self.opened.get());
        let opened = Family::open(self.shared.clone(), Rc::downgrade(self), &record, cache, self.tuning.get()).await;
        let family = Rc::new(opened.map_err(|error| error.into_pool_error(id))?);
        // Another caller may have opened it meanwhile.
        if let Some(family) = self.opened(id) {
            return Ok(family);
        }
        // The catalog may have changed since the record was copied.
        family.follow_catalog();
        self.open.borrow_mut().insert(id, family.clone());
        Ok(family)
    }

    /// Examines a family with a damaged map: what is left and what continuing with it costs. Writes nothing.
    pub(super) async fn salvage(self: &Rc<Self>, id: Uuid) -> Result<Salvage<D, G>, PoolError> {
        let record = self.shared.store.with_catalog(|catalog| catalog.family(id).cloned());
        let record = record.ok_or(PoolError::VolumeUnknown(id))?;
        // Keys of its own in the shared cache, as for any opening: this map may be at an older checkpoint.
        self.opened.set(self.opened.get() + 1);
        let cache = (self.cache.clone(), self.opened.get());
        let opened = Salvage::open(self.shared.clone(), Rc::downgrade(self), &record, cache, self.tuning.get()).await;
        opened.map_err(|error| error.into_pool_error(id))
    }

    /// Continues the family with what is left of its map.
    pub(super) async fn accept_salvage(self: &Rc<Self>, id: Uuid) -> Result<(), PoolError> {
        // Such a family does not open, so none of this UUID is in the map.
        let family = self.salvage(id).await?.accept().await.map_err(|error| error.into_pool_error(id))?;
        self.open.borrow_mut().insert(id, family);
        Ok(())
    }

    /// Opens a family that the catalog has just been given; nothing of it is on any disk.
    pub(super) fn begin(self: &Rc<Self>, id: Uuid) -> Option<Rc<Family<D, G>>> {
        let record = self.shared.store.with_catalog(|catalog| catalog.family(id).cloned())?;
        self.opened.set(self.opened.get() + 1);
        let cache = (self.cache.clone(), self.opened.get());
        let family = Family::new(self.shared.clone(), Rc::downgrade(self), &record, cache, self.tuning.get());
        let family = Rc::new(family);
        self.open.borrow_mut().insert(id, family.clone());
        Some(family)
    }

    pub(super) fn opened(&self, id: Uuid) -> Option<Rc<Family<D, G>>> {
        self.open.borrow().get(&id).cloned()
    }

    pub(super) fn all_open(&self) -> Vec<Rc<Family<D, G>>> {
        self.open.borrow().values().cloned().collect()
    }

    pub(super) fn forget(&self, id: Uuid) {
        self.open.borrow_mut().remove(&id);
    }

    /// Device of a volume or snapshot; all callers share one.
    pub(super) fn device(&self, id: Uuid, make: impl FnOnce() -> ThinVolume<D, G>) -> Rc<ThinVolume<D, G>> {
        let mut devices = self.devices.borrow_mut();
        if let Some(device) = devices.get(&id).and_then(Weak::upgrade) {
            return device;
        }
        let device = Rc::new(make());
        // Entries of closed devices are dropped here, so that the map does not grow.
        devices.retain(|_, device| device.strong_count() > 0);
        devices.insert(id, Rc::downgrade(&device));
        device
    }

    /// Open device of a volume or snapshot, if any.
    pub(super) fn opened_device(&self, id: Uuid) -> Option<Rc<ThinVolume<D, G>>> {
        self.devices.borrow().get(&id).and_then(Weak::upgrade)
    }

    /// Returns empty slabs of all families except `but` to the pool; returns their number.
    pub(crate) fn return_all_empty_slabs(&self, but: Option<Uuid>) -> u64 {
        // An error of one family does not keep the others from returning slabs.
        let families = self.all_open().into_iter().filter(|family| Some(family.id) != but);
        families.map(|family| family.return_empty_slabs().unwrap_or(0)).sum()
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Runs one step of the background work: frees unreferenced versions, returns empty slabs to the pool, and
    /// writes checkpoints before logs are full.
    ///
    /// The caller repeats it at once while more work is due, and every few seconds otherwise. *Errors*:
    /// `GroupFails`, `MapDamaged`, `CatalogLost`; the pool continues, and the next call retries.
    pub async fn run_maintenance(&self) -> Result<MaintenanceResult, PoolError> {
        let unclean: Vec<Uuid> = self.shared.store.with_catalog(|catalog| {
            let families = catalog.families.iter();
            families.filter(|family| family.branches.iter().any(|one| one.cleaning > 0)).map(|one| one.id).collect()
        });
        // A family with unfinished cleaning is opened, or it would never be cleaned after a restart.
        for id in unclean {
            self.families.family(id).await?;
        }
        let mut tended = MaintenanceResult::default();
        for family in self.families.all_open() {
            let one = maintain_family(&family).await.map_err(|error| error.into_pool_error(family.id))?;
            tended.freed_granules += one.freed_granules;
            tended.freed_slabs += one.freed_slabs;
            tended.more |= one.more;
        }
        Ok(tended)
    }

    /// Sets the spawner that finishes commits whose waiters were all dropped. Without it such a commit pauses
    /// until the next waiter, and so does every task that waits for the locks it holds.
    pub fn set_spawner(&self, spawn: Spawn) {
        self.shared.spawner.set(spawn);
    }

    /// Waits until no commit and no checkpoint of a family is in progress.
    pub async fn drain(&self) {
        for family in self.families.all_open() {
            family.drain().await;
        }
    }

    /// Stops everything in progress, as the end of the process would. For simulations, whose process continues;
    /// the pool is unusable afterwards.
    pub fn abort(&self) {
        self.families.all_open().iter().for_each(|family| family.abort());
    }

    /// Progress of the cleaning of each volume being cleaned.
    #[must_use]
    pub fn gc_progress(&self) -> Vec<GcProgress> {
        let mut cleanings = Vec::new();
        for family in self.families.all_open() {
            for branch in family.branches().into_iter().filter(|branch| branch.cleaning.get() > 0) {
                let total = branch.granules(family.granule_blocks);
                let done = u64::from(branch.cleaned.get().1).min(total);
                cleanings.push(GcProgress { volume: branch.id, done, total });
            }
        }
        cleanings
    }

    /// Registers the observer of space events; it is notified at once if a threshold is crossed now.
    pub fn on_space(&self, thresholds: Thresholds, hear: impl Fn(SpaceEvent) + 'static) {
        self.shared.observe_space(thresholds, Rc::new(hear));
    }

    /// Registers the observer of repaired map blocks, past and future.
    pub fn on_map_repair(&self, hear: impl Fn(MapRepair) + 'static) {
        self.shared.observe_map_repairs(Rc::new(hear));
    }

    /// Sets the memory budget of the cached map pages of all families, in bytes.
    pub fn set_map_cache_bytes(&self, bytes: u64) {
        self.families.cache.resize(usize::try_from(bytes / 4096).unwrap_or(usize::MAX));
    }
}

async fn maintain_family<D, G>(family: &Rc<Family<D, G>>) -> Result<MaintenanceResult, MapError>
where
    D: BlockDevice + 'static,
    G: BlockDevice + 'static,
{
    // Excludes a check of the whole map while versions are removed.
    let _turn = family.maintenance_lock.exclusive(0..1).await;
    let mut tended = MaintenanceResult::default();
    for branch in family.branches() {
        let cleaned = family.gc_step(&branch).await?;
        tended.freed_granules += cleaned.freed;
        tended.more |= cleaned.more;
    }
    // Commits and checkpoints are made here before a writer has to wait for one.
    if family.is_commit_due() {
        family.commit().await?;
    }
    if family.is_checkpoint_due() {
        family.checkpoint().await?;
    }
    // Slabs are read ahead here, so that writers rarely have to wait for it.
    for _ in 0..LOADS_MAX {
        let unknown = family.space.granules.borrow().unknown();
        let Some(slab) = unknown else { break };
        family.load(slab).await?;
    }
    // Last, so that granules freed in this step count.
    tended.freed_slabs = family.return_empty_slabs()?;
    Ok(tended)
}
