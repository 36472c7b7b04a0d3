//! A unit: the part of a volume that is independent of host protocols, namely its device stack, identity, policy,
//! counters and the host state kept with it.
//!
//! Created by pools and by volumes without a pool, served to hosts by front ends. Nothing here may depend on a host
//! protocol.

mod absent;
mod host_state;
mod meter;
mod policy;
mod stack;
mod standalone;
mod store;

pub use host_state::{HostState, NotKept};
pub use meter::{CommandStart, HostLoad, Meter};
pub use policy::{cache_id, cache_of, policy_of};
pub use stack::{Layer, Stack};
pub use standalone::{close_standalone, open_standalone, resize_standalone};
pub use store::Store;

use self::absent::AbsentDevice;
use crate::front::FrontUnit;
use crate::latency::Latencies;
use crate::shard_context::ShardContext;
use block::IoError;
use cache::Stall;
use model::{
    AbsentVolume, Backend, CacheReport, DiskName, LatencyReport, NamedUnitAttributes, Size, TaskStage, UnitAttributes,
    VolumeActivity, VolumeCounters, VolumeId, VolumeName, VolumePolicy, VolumeReport, VolumeState, WritePolicy,
};
use shard::World;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Bound;
use std::rc::{Rc, Weak};

/// A volume that can be served to hosts, at home on this shard.
pub struct Unit<W: World> {
    /// Identity of the volume.
    pub id: VolumeId,
    /// Name of the volume.
    pub name: VolumeName,
    /// Storage that holds its data.
    pub backend: Backend,
    /// Counter of its commands, shared with the other units of its pool.
    pub meter: Rc<Meter>,
    /// Latencies of its commands.
    pub latencies: Latencies,
    store: Rc<Store<W>>,
    read_only: bool,
    policy: Cell<VolumePolicy>,
    host_state: HostState<W>,
    /// Objects that front ends built for it; they hold the unit, not the other way round.
    faces: RefCell<Vec<Weak<dyn FrontUnit>>>,
    /// Number of live [`SanitizeGuard`] guards.
    spared: Cell<usize>,
}

/// Components of a unit.
pub struct Parts<W: World> {
    /// Identity of the volume.
    pub id: VolumeId,
    /// Name of the volume.
    pub name: VolumeName,
    /// Storage that holds its data.
    pub backend: Backend,
    /// Device stack.
    pub store: Store<W>,
    /// True if hosts may not write to it.
    pub read_only: bool,
    /// Counter of its commands.
    pub meter: Rc<Meter>,
    /// Bytes that are kept for its hosts.
    pub host_state: HostState<W>,
}

impl<W: World> Unit<W> {
    /// Creates a unit that no front end serves yet.
    pub fn new(parts: Parts<W>) -> Self {
        let Parts { id, name, backend, store, read_only, meter, host_state } = parts;
        // The default policy holds until the control plane sets that of the volume.
        let (latencies, policy, faces, spared) = Default::default();
        let store = Rc::new(store);
        Self { id, name, backend, meter, latencies, store, read_only, policy, host_state, faces, spared }
    }

    /// Sets the objects by which front ends serve it from now on.
    pub(crate) fn set_faces(&self, faces: Vec<Weak<dyn FrontUnit>>) {
        *self.faces.borrow_mut() = faces;
    }

    /// Objects of front ends that still serve it.
    fn faces(&self) -> Vec<Rc<dyn FrontUnit>> {
        // Collected, so that no borrow is held while a front end runs.
        self.faces.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    fn notify(&self, what: impl Fn(&dyn FrontUnit)) {
        self.faces().iter().for_each(|face| what(&**face));
    }

    /// True if hosts may not write to it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Host state as it was when the unit was opened.
    pub fn host_state(&self) -> Vec<u8> {
        self.host_state.found()
    }

    /// True if host state outlives a restart. A volume whose pool is not open counts too: its state is in that pool.
    pub fn keeps_host_state(&self) -> bool {
        let is_absent = matches!(&*self.store, Store::Absent(_));
        self.host_state.is_kept() || is_absent && matches!(self.backend, Backend::Pool { .. })
    }

    /// Replaces the kept host state by `bytes`.
    ///
    /// *Durability*: when it returns. *Errors*: `Full` or `Gone`, see [`NotKept`].
    pub async fn keep_host_state(&self, bytes: Vec<u8>) -> Result<(), NotKept> {
        self.host_state.keep(self.id, bytes).await
    }

    /// Number of open sessions that have sent a command to the unit.
    pub fn sessions(&self) -> usize {
        self.faces().iter().map(|face| face.sessions()).sum()
    }

    /// Runs `change`, after which the unit may show other content, and notifies its initiators.
    ///
    /// The caller makes sure that no write is waiting in the cache: see [`Unit::write_through`].
    pub async fn replace_content<T, E>(&self, change: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        // The cache drops what was read before or during the change.
        let changed = match self.store.policed() {
            Some(volume) => volume.replace(change).await?,
            None => change.await?,
        };
        // After the change: hosts that read at once must get the new content.
        self.notify(|face| face.content_replaced());
        Ok(changed)
    }

    /// Policy that is in effect.
    pub fn policy(&self) -> VolumePolicy {
        self.policy.get()
    }

    /// Applies `policy` to the volume, and notifies its initiators if the write cache becomes volatile or ceases to be.
    ///
    /// *Errors*: the error of the device below, or `Unsupported` for `back` without a log device; the write policy then
    /// stays as it was, and all other settings apply.
    pub async fn set_policy(&self, policy: VolumePolicy) -> Result<(), IoError> {
        // Removability concerns the logical unit alone, so it applies to volumes without a pool as well.
        self.notify(|face| face.set_removable(policy.removable));
        // Volumes without a pool have neither a cache nor limits.
        let Some(volume) = self.store.policed() else { return Ok(()) };
        let set = volume.set_policy(&policy_of(&policy)).await;
        // Report the write policy that is in effect, not the one that was asked for: hosts rely on it for their
        // flushes.
        let write = if set.is_ok() { policy.write } else { self.policy.get().write };
        self.policy.set(VolumePolicy { write, ..policy });
        self.notify(|face| face.set_write_cache(write == WritePolicy::BackVolatile));
        set
    }

    /// Writes all acknowledged data to the disks. Writes then go through until the policy is set again.
    pub async fn write_through(&self) -> Result<(), IoError> {
        match self.store.policed() {
            Some(volume) => volume.close().await,
            None => Ok(()),
        }
    }

    /// Sets the log device of the policy `back`. The volume must not be in write-back at this time.
    pub async fn set_log(&self, log: Option<cache::WriteLog>) {
        if let Some(volume) = self.store.policed() {
            volume.set_log(log).await;
        }
    }

    /// True if the log device of its pool may hold writes of it.
    pub fn is_written_back(&self) -> bool {
        self.store.policed().is_some_and(|volume| volume.write_policy() == cache::WritePolicy::Back)
    }

    /// Discards all writes that are not on disk yet: the volume was deleted.
    pub async fn discard_dirty(&self) {
        if let Some(volume) = self.store.policed() {
            volume.discard_dirty().await;
        }
    }

    /// Notifies initiators that the capacity has grown.
    pub fn capacity_changed(&self) {
        self.notify(|face| face.capacity_changed());
    }

    /// Notifies initiators that the pool of the unit has reached its soft threshold (ASC/ASCQ 38h/07h).
    pub fn soft_threshold_reached(&self) {
        self.notify(|face| face.soft_threshold_reached());
    }

    /// Notifies initiators of thresholds that they set and that commands of others have crossed.
    pub fn check_thresholds(&self) {
        self.notify(|face| face.check_thresholds());
    }

    /// True if the unit is thin provisioned.
    pub fn is_thin(&self) -> bool {
        // Devices that are allocated in full report no space; see `PoolVolume`.
        block::BlockDevice::space(&*self.store).is_some()
    }

    /// Device stack below the unit.
    pub fn store(&self) -> &Rc<Store<W>> {
        &self.store
    }

    /// Latencies of its commands, by operation.
    pub fn latencies(&self) -> Vec<LatencyReport> {
        self.latencies.report()
    }

    /// Activity of hosts since the start.
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

    /// Stops a SANITIZE of a host. When it returns the operation writes nothing more, so the volume can be served anew.
    pub async fn stop_sanitizing(&self) {
        for face in self.faces() {
            face.stop_sanitizing().await;
        }
    }

    /// True while a [`SanitizeGuard`] guard protects the content.
    pub(crate) fn is_protected(&self) -> bool {
        self.spared.get() > 0
    }

    /// Reason why a command for `extent` waits above the device; `None` if it is below.
    pub fn wait_reason(&self, extent: block::Extent) -> Option<TaskStage> {
        self.store.wait_reason(extent).map(|hold| match hold {
            Stall::Limit => TaskStage::Limit,
            Stall::BackPressure => TaskStage::Cache,
        })
    }

    /// Stage of the commands that nothing above the device holds, and the disk that they wait for if it is known.
    pub fn wait_stage(&self, shard: &ShardContext<W>) -> (TaskStage, Option<DiskName>) {
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

    /// Creates the unit of a presented volume that is not open. It reports what hosts know of the volume and has no
    /// blocks. `None` if no unit can have this shape.
    pub fn absent(id: VolumeId, volume: &AbsentVolume) -> Option<Self> {
        let AbsentVolume { name, attributes: shape, .. } = volume;
        let store = Store::Absent(AbsentDevice::of(shape)?);
        let (name, backend) = (name.clone(), shape.backend.clone());
        let (read_only, meter, host_state) = (false, Rc::default(), HostState::none());
        let unit = Self::new(Parts { id, name, backend, store, read_only, meter, host_state });
        // The caching mode is part of what hosts know of the unit (WCE in MODE SENSE).
        let write = if shape.volatile_cache { WritePolicy::BackVolatile } else { WritePolicy::Through };
        unit.policy.set(VolumePolicy { write, removable: shape.removable, ..VolumePolicy::default() });
        Some(unit)
    }

    /// Properties of the unit that hosts see.
    pub fn shape(&self) -> UnitAttributes {
        let device = &*self.store;
        let geometry = block::BlockDevice::geometry(device);
        let policy = self.policy.get();
        // Everything that a stand-in needs to answer hosts as the unit did (ADR 25).
        UnitAttributes {
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

    /// Report of the unit for the control plane.
    pub fn report(&self) -> VolumeReport {
        let geometry = block::BlockDevice::geometry(&*self.store);
        let mut report = VolumeReport {
            name: self.name.clone(),
            id: self.id,
            size: Size::new(geometry.bytes()),
            block_bytes: geometry.block_bytes,
            backend: self.backend.clone(),
            state: VolumeState::Online,
            reason: None,
            counters: self.counters(),
            space: None,
            policy: self.store.policed().map(|_| self.policy.get()),
            cache: self.cache_report(),
            copy: None,
            reservation: None,
            sanitize: None,
        };
        // Front ends add what only they know: reservations and a running SANITIZE.
        self.faces().iter().for_each(|face| face.describe(&mut report));
        report
    }
}

/// Guard that keeps a SANITIZE of a host from destroying the content of a unit, because something else needs it.
pub struct SanitizeGuard<W: World>(Rc<Unit<W>>);

impl<W: World> SanitizeGuard<W> {
    /// Takes a guard; `None` while the unit is being sanitized.
    pub fn of(unit: Rc<Unit<W>>) -> Option<Self> {
        if unit.faces().iter().any(|face| face.is_being_sanitized()) {
            return None;
        }
        // No await since the check: a SANITIZE that starts from here on finds the guard.
        unit.spared.set(unit.spared.get() + 1);
        Some(Self(unit))
    }
}

impl<W: World> Drop for SanitizeGuard<W> {
    fn drop(&mut self) {
        assert!(self.0.spared.get() > 0, "who spares a unit lets go of it once");
        self.0.spared.set(self.0.spared.get() - 1);
    }
}

/// Units in one batch of [`activities`]. Commands wait while a batch is collected, so it is bounded.
pub const ACTIVITIES_MAX: usize = 128;

/// Activity of the next units at home here after `after`, in the order of their identities.
pub fn activities<W: World>(shard: &ShardContext<W>, after: Option<VolumeId>) -> Vec<VolumeActivity> {
    // Resumes after an identity, not a position: units may come and go between batches.
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let units = shard.units();
    units.range((from, Bound::Unbounded)).take(ACTIVITIES_MAX).map(|(_, unit)| unit.activity()).collect()
}

/// Shapes of the units at home here, as hosts see them.
pub fn shapes<W: World>(shard: &ShardContext<W>) -> Vec<NamedUnitAttributes> {
    shard.units().iter().map(|(id, unit)| (*id, unit.name.clone(), unit.shape())).collect()
}

/// Reports of all units at home here, and of the volumes of pools that do not serve.
pub fn reports<W: World>(shard: &ShardContext<W>) -> Vec<VolumeReport> {
    let mut reports: Vec<VolumeReport> = shard.units().values().map(|unit| unit.report()).collect();
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    for (name, pool) in &*shard.pools.borrow() {
        // Names are sorted, so the reports of one pool are consecutive.
        let of_pool = |report: &VolumeReport| report.name.pool() == Some(name);
        let first = reports.iter().position(of_pool).unwrap_or(reports.len());
        let count = reports[first..].iter().take_while(|report| of_pool(report)).count();
        pool.describe_space(&mut reports[first..first + count]);
    }
    reports.extend(blocked_reports(shard));
    reports
}

/// Reports of the volumes that do not serve, in the pools at home here.
pub fn blocked_reports<W: World>(shard: &ShardContext<W>) -> Vec<VolumeReport> {
    shard.pools.borrow().values().flat_map(|pool| pool.blocked_reports()).collect()
}

/// Report of one volume at home here, whether it serves or not.
pub fn report<W: World>(shard: &ShardContext<W>, id: VolumeId, name: &VolumeName) -> Option<VolumeReport> {
    let pools = shard.pools.borrow();
    let pool = name.pool().and_then(|pool| pools.get(pool));
    let Some(unit) = shard.unit(id) else {
        // No unit: the pool holds the volume back, or there is none.
        return pool?.blocked_reports().into_iter().find(|held| held.name == *name);
    };
    let mut report = unit.report();
    if let Some(pool) = pool {
        pool.describe_space(std::slice::from_mut(&mut report));
    }
    Some(report)
}
