//! A unit: what a front end serves to hosts, as far as no host protocol is concerned. The device, its identity, its policy,
//! what it counts, and what is kept for its hosts.

mod absent;
mod alone;
mod host_state;
mod meter;
mod policy;
mod stack;
mod store;

pub use alone::{close_alone, open_alone, resize_alone};
pub use host_state::{HostState, NotKept};
pub use meter::{Clock, HostLoad, Meter};
pub use policy::{cache_id, cache_of, policy_of};
pub use stack::{Layer, Stack};
pub use store::Store;

use self::absent::AbsentDevice;
use crate::front::FrontUnit;
use crate::latency::Latencies;
use crate::shard_context::ShardContext;
use block::IoError;
use cache::Hold;
use model::{
    AbsentVolume, Backend, CacheReport, DiskName, LatencyReport, ShapeOfUnit, Size, TaskStage, UnitShape,
    VolumeActivity, VolumeCounters, VolumeId, VolumeName, VolumePolicy, VolumeReport, VolumeState, WritePolicy,
};
use shard::World;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Bound;
use std::rc::{Rc, Weak};

/// A volume that can be served, at home on this shard.
pub struct Unit<W: World> {
    /// The volume's identity.
    pub id: VolumeId,
    /// The volume's name.
    pub name: VolumeName,
    /// What holds its data.
    pub backend: Backend,
    /// Counts its commands, with those of other units of its pool.
    pub meter: Rc<Meter>,
    /// How long its commands took.
    pub latencies: Latencies,
    store: Rc<Store<W>>,
    read_only: bool,
    policy: Cell<VolumePolicy>,
    host_state: HostState<W>,
    /// What front ends have made of it.
    faces: RefCell<Vec<Weak<dyn FrontUnit>>>,
    /// Holders of [`Spared`].
    spared: Cell<usize>,
}

/// What a unit is made of.
pub struct Parts<W: World> {
    /// The volume's identity.
    pub id: VolumeId,
    /// The volume's name.
    pub name: VolumeName,
    /// What holds its data.
    pub backend: Backend,
    /// The device.
    pub store: Store<W>,
    /// True when no host may write it.
    pub read_only: bool,
    /// What counts its commands.
    pub meter: Rc<Meter>,
    /// What is kept for its hosts.
    pub host_state: HostState<W>,
}

impl<W: World> Unit<W> {
    /// A unit that no front end serves yet.
    pub fn new(parts: Parts<W>) -> Self {
        let Parts { id, name, backend, store, read_only, meter, host_state } = parts;
        let (latencies, policy, faces, spared) = Default::default();
        let store = Rc::new(store);
        Self { id, name, backend, meter, latencies, store, read_only, policy, host_state, faces, spared }
    }

    /// Front ends serve it by these from now on.
    pub(crate) fn set_faces(&self, faces: Vec<Weak<dyn FrontUnit>>) {
        *self.faces.borrow_mut() = faces;
    }

    /// What front ends have made of it, as far as it is served.
    fn faces(&self) -> Vec<Rc<dyn FrontUnit>> {
        self.faces.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    fn tell(&self, what: impl Fn(&dyn FrontUnit)) {
        self.faces().iter().for_each(|face| what(&**face));
    }

    /// True when no host may write it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What was kept for its hosts when it was opened.
    pub fn host_state(&self) -> Vec<u8> {
        self.host_state.found()
    }

    /// True when what is kept for its hosts outlives a restart. A volume of a pool that is not open keeps it there.
    pub fn keeps_host_state(&self) -> bool {
        let is_absent = matches!(&*self.store, Store::Absent(_));
        self.host_state.is_kept() || is_absent && matches!(self.backend, Backend::Pool { .. })
    }

    /// Keeps `bytes` for its hosts in place of what was kept before.
    ///
    /// *Durability*: when it returns. *Errors*: there is no place, or the pool takes no change.
    pub async fn keep_host_state(&self, bytes: Vec<u8>) -> Result<(), NotKept> {
        self.host_state.keep(self.id, bytes).await
    }

    /// How many sessions have sent a command to the unit, and are still there.
    pub fn sessions(&self) -> usize {
        self.faces().iter().map(|face| face.sessions()).sum()
    }

    /// Runs `change`, after which the unit may show something else, and tells its initiators.
    ///
    /// Nothing may wait to be written: see [`Unit::write_through`].
    pub async fn replace_content<T, E>(&self, change: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let changed = match self.store.policed() {
            Some(volume) => volume.replace(change).await?,
            None => change.await?,
        };
        self.tell(|face| face.content_replaced());
        Ok(changed)
    }

    /// What is set for the volume.
    pub fn policy(&self) -> VolumePolicy {
        self.policy.get()
    }

    /// The volume follows `policy` from now on, and its initiators hear when their writes may be lost before a flush.
    ///
    /// *Errors*: what the device below says, or `Unsupported` for `back` without a log; writes are then acknowledged
    /// as before, and everything else holds.
    pub async fn set_policy(&self, policy: VolumePolicy) -> Result<(), IoError> {
        self.tell(|face| face.set_removable(policy.removable));
        let Some(volume) = self.store.policed() else { return Ok(()) };
        let set = volume.set_policy(&policy_of(&policy)).await;
        let write = if set.is_ok() { policy.write } else { self.policy.get().write };
        self.policy.set(VolumePolicy { write, ..policy });
        self.tell(|face| face.set_write_cache(write == WritePolicy::BackVolatile));
        set
    }

    /// Everything acknowledged is on the disks, and writes go through until the policy is set again.
    pub async fn write_through(&self) -> Result<(), IoError> {
        match self.store.policed() {
            Some(volume) => volume.close().await,
            None => Ok(()),
        }
    }

    /// `back` acknowledges from `log` from now on. The volume is not written back just now.
    pub async fn set_log(&self, log: Option<cache::WriteLog>) {
        if let Some(volume) = self.store.policed() {
            volume.set_log(log).await;
        }
    }

    /// True when something may be in the log of its pool.
    pub fn is_written_back(&self) -> bool {
        self.store.policed().is_some_and(|volume| volume.write_policy() == cache::WritePolicy::Back)
    }

    /// What waits to be written is thrown away: the volume is gone for good.
    pub async fn throw_away(&self) {
        if let Some(volume) = self.store.policed() {
            volume.throw_away().await;
        }
    }

    /// The unit has grown, and its initiators are told.
    pub fn capacity_changed(&self) {
        self.tell(|face| face.capacity_changed());
    }

    /// Initiators are told that the pool of the unit has reached a threshold (38/07).
    pub fn soft_threshold_reached(&self) {
        self.tell(|face| face.soft_threshold_reached());
    }

    /// Initiators are told of thresholds that they have set and that others have crossed.
    pub fn check_thresholds(&self) {
        self.tell(|face| face.check_thresholds());
    }

    /// True when blocks take space as they are written.
    pub fn is_thin(&self) -> bool {
        block::BlockDevice::space(&*self.store).is_some()
    }

    /// The device under the unit.
    pub fn store(&self) -> &Rc<Store<W>> {
        &self.store
    }

    /// How long its commands took.
    pub fn latencies(&self) -> Vec<LatencyReport> {
        self.latencies.report()
    }

    /// What hosts have done with it.
    fn activity(&self) -> VolumeActivity {
        VolumeActivity {
            name: self.name.clone(),
            id: self.id,
            counters: self.counters(),
            policy: self.policy.get(),
            cache: self.cache_report(),
            took: self.latencies.took(),
        }
    }

    fn cache_report(&self) -> Option<CacheReport> {
        self.store.policed().map(|volume| policy::cache_report(&volume.counters()))
    }

    fn counters(&self) -> VolumeCounters {
        let mut counters = VolumeCounters::default();
        self.faces().iter().for_each(|face| face.count(&mut counters));
        counters
    }

    /// Nothing is written by a host's order to destroy what it holds any more, before the volume serves anew.
    pub async fn stop_sanitizing(&self) {
        for face in self.faces() {
            face.stop_sanitizing().await;
        }
    }

    /// True while somebody needs what it holds: see [`Spared`].
    pub(crate) fn is_spared(&self) -> bool {
        self.spared.get() > 0
    }

    /// What holds a command for `extent` before it goes below; `None` when it is on its way.
    pub fn hold(&self, extent: block::Extent) -> Option<TaskStage> {
        self.store.hold(extent).map(|hold| match hold {
            Hold::Limit => TaskStage::Limit,
            Hold::Room => TaskStage::Cache,
        })
    }

    /// Where commands are that nothing above holds, and the disk that they wait for, where one is known.
    pub fn below(&self, shard: &ShardContext<W>) -> (TaskStage, Option<DiskName>) {
        match &self.backend {
            Backend::File { .. } => (TaskStage::Disk, None),
            Backend::Ram | Backend::Null => (TaskStage::Running, None),
            Backend::Pool { .. } => {
                let pools = shard.pools.borrow();
                let pool = self.name.pool().and_then(|name| pools.get(name));
                pool.map_or((TaskStage::Running, None), |pool| pool.where_commands_wait())
            }
        }
    }

    /// The unit of a presented volume that is not open: it tells what hosts know of the volume, and has no blocks. `None` where
    /// the shape is none that a unit has.
    pub fn absent(id: VolumeId, volume: &AbsentVolume) -> Option<Self> {
        let AbsentVolume { name, shape, .. } = volume;
        let store = Store::Absent(AbsentDevice::of(shape)?);
        let (name, backend) = (name.clone(), shape.backend.clone());
        let (read_only, meter, host_state) = (false, Rc::default(), HostState::none());
        let unit = Self::new(Parts { id, name, backend, store, read_only, meter, host_state });
        let write = if shape.volatile_cache { WritePolicy::BackVolatile } else { WritePolicy::Through };
        unit.policy.set(VolumePolicy { write, removable: shape.removable, ..VolumePolicy::default() });
        Some(unit)
    }

    /// What hosts are told of the unit.
    pub fn shape(&self) -> UnitShape {
        let device = &*self.store;
        let geometry = block::BlockDevice::geometry(device);
        let policy = self.policy.get();
        UnitShape {
            size: Size::new(geometry.bytes()),
            block_bytes: geometry.block_bytes,
            physical_block_bytes: geometry.physical_block_bytes,
            optimal_bytes: geometry.optimal_bytes,
            atomic_bytes: block::BlockDevice::atomic_bytes_max(device),
            granule_bytes: block::BlockDevice::space(device).map(|space| space.granule_bytes),
            discard_zeroes: geometry.discard_zeroes,
            backend: self.backend.clone(),
            removable: policy.removable,
            volatile_cache: policy.write == WritePolicy::BackVolatile,
        }
    }

    /// How the unit is.
    pub fn report(&self) -> VolumeReport {
        let geometry = block::BlockDevice::geometry(&*self.store);
        let mut report = VolumeReport {
            name: self.name.clone(),
            id: self.id,
            size: Size::new(geometry.bytes()),
            block_bytes: geometry.block_bytes,
            backend: self.backend.clone(),
            state: VolumeState::Online,
            why: None,
            counters: self.counters(),
            space: None,
            policy: self.store.policed().map(|_| self.policy.get()),
            cache: self.cache_report(),
            copy: None,
            reservation: None,
            sanitize: None,
        };
        self.faces().iter().for_each(|face| face.describe(&mut report));
        report
    }
}

/// While it lives, what the unit holds is not destroyed by a host's order: somebody needs it.
pub struct Spared<W: World>(Rc<Unit<W>>);

impl<W: World> Spared<W> {
    /// `None` of a unit that is being sanitized.
    pub fn of(unit: Rc<Unit<W>>) -> Option<Self> {
        if unit.faces().iter().any(|face| face.is_being_sanitized()) {
            return None;
        }
        unit.spared.set(unit.spared.get() + 1);
        Some(Self(unit))
    }
}

impl<W: World> Drop for Spared<W> {
    fn drop(&mut self) {
        assert!(self.0.spared.get() > 0, "who spares a unit lets go of it once");
        self.0.spared.set(self.0.spared.get() - 1);
    }
}

/// Of so many units is told at once what hosts have done with them: commands wait meanwhile.
pub const ACTIVITIES_MAX: usize = 128;

/// What hosts have done with units at home here: the next ones after this one, in the order of their identities.
pub fn activities<W: World>(shard: &ShardContext<W>, after: Option<VolumeId>) -> Vec<VolumeActivity> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let units = shard.units();
    units.range((from, Bound::Unbounded)).take(ACTIVITIES_MAX).map(|(_, unit)| unit.activity()).collect()
}

/// What hosts are told of the units at home here.
pub fn shapes<W: World>(shard: &ShardContext<W>) -> Vec<ShapeOfUnit> {
    shard.units().iter().map(|(id, unit)| (*id, unit.name.clone(), unit.shape())).collect()
}

/// The reports of all units at home here.
pub fn reports<W: World>(shard: &ShardContext<W>) -> Vec<VolumeReport> {
    let mut reports: Vec<VolumeReport> = shard.units().values().map(|unit| unit.report()).collect();
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    for (name, pool) in &*shard.pools.borrow() {
        // Sorted by name, those of one pool stand together.
        let of_pool = |report: &VolumeReport| report.name.pool() == Some(name);
        let first = reports.iter().position(of_pool).unwrap_or(reports.len());
        let count = reports[first..].iter().take_while(|report| of_pool(report)).count();
        pool.describe_space(&mut reports[first..first + count]);
    }
    reports.extend(held_reports(shard));
    reports
}

/// The volumes of the pools at home here that do not serve.
pub fn held_reports<W: World>(shard: &ShardContext<W>) -> Vec<VolumeReport> {
    shard.pools.borrow().values().flat_map(|pool| pool.held_reports()).collect()
}

/// The report of one that is at home here.
pub fn report<W: World>(shard: &ShardContext<W>, id: VolumeId, name: &VolumeName) -> Option<VolumeReport> {
    let pools = shard.pools.borrow();
    let pool = name.pool().and_then(|pool| pools.get(pool));
    let Some(unit) = shard.unit(id) else {
        return pool?.held_reports().into_iter().find(|held| held.name == *name);
    };
    let mut report = unit.report();
    if let Some(pool) = pool {
        pool.describe_space(std::slice::from_mut(&mut report));
    }
    Some(report)
}
