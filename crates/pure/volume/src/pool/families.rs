//! The families of a pool that are open, and the work that is done for them in the background.

use super::{Pool, Shared};
use crate::error::PoolError;
use crate::family::plan::{Cleaning, MapRepair, SpaceEvent, Tended, Thresholds};
use crate::family::{Family, MapError, PageCache, Remains, Tuning};
use crate::thin::ThinVolume;
use block::BlockDevice;
use shard::Spawn;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Slabs of which one step of the background work finds out what is free in them.
const LOADS_MAX: usize = 64;

/// The open families of a pool. They stay open, for they know what no disk knows yet.
pub(crate) struct Families<D, G> {
    pub(crate) shared: Rc<Shared<D, G>>,
    open: RefCell<BTreeMap<Uuid, Rc<Family<D, G>>>>,
    /// By volume or snapshot.
    devices: RefCell<BTreeMap<Uuid, Weak<ThinVolume<D, G>>>>,
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
    /// The family, open.
    pub(super) async fn family(self: &Rc<Self>, id: Uuid) -> Result<Rc<Family<D, G>>, PoolError> {
        if let Some(family) = self.opened(id) {
            return Ok(family);
        }
        let record = self.shared.store.look(|catalog| catalog.family(id).cloned());
        let record = record.ok_or(PoolError::VolumeUnknown(id))?;
        self.opened.set(self.opened.get() + 1);
        let cache = (self.cache.clone(), self.opened.get());
        let opened = Family::open(self.shared.clone(), Rc::downgrade(self), &record, cache, self.tuning.get()).await;
        let family = Rc::new(opened.map_err(|error| error.into_pool_error(id))?);
        // Somebody else may have been faster.
        if let Some(family) = self.opened(id) {
            return Ok(family);
        }
        family.follow_catalog();
        self.open.borrow_mut().insert(id, family.clone());
        Ok(family)
    }

    /// What is left of a family whose map is damaged, and what going on with it costs. Nothing is written.
    pub(super) async fn remains(self: &Rc<Self>, id: Uuid) -> Result<Remains<D, G>, PoolError> {
        let record = self.shared.store.look(|catalog| catalog.family(id).cloned());
        let record = record.ok_or(PoolError::VolumeUnknown(id))?;
        self.opened.set(self.opened.get() + 1);
        let cache = (self.cache.clone(), self.opened.get());
        let opened = Remains::open(self.shared.clone(), Rc::downgrade(self), &record, cache, self.tuning.get()).await;
        opened.map_err(|error| error.into_pool_error(id))
    }

    /// The family goes on with what is left of its map.
    pub(super) async fn keep_remains(self: &Rc<Self>, id: Uuid) -> Result<(), PoolError> {
        let family = self.remains(id).await?.keep().await.map_err(|error| error.into_pool_error(id))?;
        self.open.borrow_mut().insert(id, family);
        Ok(())
    }

    /// The family of which the catalog has just heard, open; nothing of it is on any disk.
    pub(super) fn begin(self: &Rc<Self>, id: Uuid) -> Option<Rc<Family<D, G>>> {
        let record = self.shared.store.look(|catalog| catalog.family(id).cloned())?;
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

    /// The device of a volume or a snapshot; all who open it share one.
    pub(super) fn device(&self, id: Uuid, make: impl FnOnce() -> ThinVolume<D, G>) -> Rc<ThinVolume<D, G>> {
        let mut devices = self.devices.borrow_mut();
        if let Some(device) = devices.get(&id).and_then(Weak::upgrade) {
            return device;
        }
        let device = Rc::new(make());
        devices.retain(|_, device| device.strong_count() > 0);
        devices.insert(id, Rc::downgrade(&device));
        device
    }

    /// The open device of a volume or a snapshot.
    pub(super) fn opened_device(&self, id: Uuid) -> Option<Rc<ThinVolume<D, G>>> {
        self.devices.borrow().get(&id).and_then(Weak::upgrade)
    }

    /// Slabs in which nothing is are the pool's again, whoever has them, but for the family `but`; how many.
    pub(crate) fn give_back_all(&self, but: Option<Uuid>) -> u64 {
        // What one cannot give another may.
        let families = self.all_open().into_iter().filter(|family| Some(family.id) != but);
        families.map(|family| family.give_back().unwrap_or(0)).sum()
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// One step of the background work: what nobody sees any more is given back, slabs that became free return
    /// to the pool, maps are written down before their logs are full. To be called again at once while it
    /// says that there is more, and every few seconds else.
    ///
    /// *Errors*: `GroupFails`, `MapDamaged`, `CatalogLost`; the pool goes on, and the next call tries again.
    pub async fn tend(&self) -> Result<Tended, PoolError> {
        let unclean: Vec<Uuid> = self.shared.store.look(|catalog| {
            let families = catalog.families.iter();
            families.filter(|family| family.branches.iter().any(|one| one.cleaning > 0)).map(|one| one.id).collect()
        });
        for id in unclean {
            self.families.family(id).await?;
        }
        let mut tended = Tended::default();
        for family in self.families.all_open() {
            let one = tend_family(&family).await.map_err(|error| error.into_pool_error(family.id))?;
            tended.freed_granules += one.freed_granules;
            tended.freed_slabs += one.freed_slabs;
            tended.more |= one.more;
        }
        Ok(tended)
    }

    /// Commits that nobody waits for any more are carried to their ends by tasks that `spawn` starts. Without it they rest
    /// until somebody waits for the next, and so does who waits for what they hold.
    pub fn carry_on_with(&self, spawn: Spawn) {
        self.shared.spawner.set(spawn);
    }

    /// No commit and no checkpoint of a family is under way.
    pub async fn rest(&self) {
        for family in self.families.all_open() {
            family.rest().await;
        }
    }

    /// Nothing goes on that is under way, as when the process ends: what a family has begun holds it. For simulations,
    /// whose process does not end; the pool is of no use after this.
    pub fn abandon(&self) {
        self.families.all_open().iter().for_each(|family| family.abandon());
    }

    /// How far the cleaning of each volume is that is being cleaned.
    #[must_use]
    pub fn cleanings(&self) -> Vec<Cleaning> {
        let mut cleanings = Vec::new();
        for family in self.families.all_open() {
            for branch in family.branches().into_iter().filter(|branch| branch.cleaning.get() > 0) {
                let total = branch.granules(family.granule_blocks);
                let done = u64::from(branch.cleaned.get().1).min(total);
                cleanings.push(Cleaning { volume: branch.id, done, total });
            }
        }
        cleanings
    }

    /// `hear` hears of what happens to the space of the pool: of a threshold when it is crossed, at once if it is now.
    pub fn on_space(&self, thresholds: Thresholds, hear: impl Fn(SpaceEvent) + 'static) {
        self.shared.watch(thresholds, Rc::new(hear));
    }

    /// `hear` hears of copies of map blocks that were not whole and were written again, so far and from now on.
    pub fn on_map_repair(&self, hear: impl Fn(MapRepair) + 'static) {
        self.shared.watch_maps(Rc::new(hear));
    }

    /// The maps of all families together have about `bytes` of memory for what was looked at last.
    pub fn set_map_cache_bytes(&self, bytes: u64) {
        self.families.cache.resize(usize::try_from(bytes / 4096).unwrap_or(usize::MAX));
    }
}

async fn tend_family<D, G>(family: &Rc<Family<D, G>>) -> Result<Tended, MapError>
where
    D: BlockDevice + 'static,
    G: BlockDevice + 'static,
{
    let _turn = family.care.exclusive(0..1).await;
    let mut tended = Tended::default();
    for branch in family.branches() {
        let cleaned = family.clean_step(&branch).await?;
        tended.freed_granules += cleaned.freed;
        tended.more |= cleaned.more;
    }
    if family.is_commit_due() {
        family.commit().await?;
    }
    if family.is_checkpoint_due() {
        family.checkpoint().await?;
    }
    for _ in 0..LOADS_MAX {
        let unknown = family.space.granules.borrow().unknown();
        let Some(slab) = unknown else { break };
        family.load(slab).await?;
    }
    tended.freed_slabs = family.give_back()?;
    Ok(tended)
}
