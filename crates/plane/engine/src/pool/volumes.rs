//! Volumes of a pool and their units: create, open, resize, set policies, delete.

use super::blocked_volumes::CatalogVolume;
use super::device::{Kind, Mapped};
use super::keys::new_key;
use super::refusals::refusal;
use super::replay::LogReplay;
use super::{OpenPool, PoolVolume, find, volume_copy};
use crate::array::{Disk, Group};
use crate::shard_context::{ShardContext, Withdrawn};
use crate::unit::{HostState, Parts, Store, Unit, cache_id, policy_of};
use block::BlockDevice;
use cache::{CacheShard, CachedVolume};
use model::{
    Backend, Provision, Refusal, Size, VolumeId, VolumeName, VolumePolicy, VolumeReport, VolumeSpec, WritePolicy, code,
    first_few,
};
use shard::World;
use std::rc::Rc;
use volume::{BLOCK_BYTES, Provisioning, ThinPlan, ThinStatus, ThinVolume, Uuid, VolumePlan};

/// Creates the volume in its pool and serves it.
///
/// *Durability*: when it returns.
pub(crate) async fn create_volume<W: World>(
    shard: Rc<ShardContext<W>>,
    spec: VolumeSpec,
) -> Result<VolumeReport, Refusal> {
    let pool = find(&shard, spec.name.pool().expect("the conductor sends volumes of pools here"))?;
    pool.watch_space();
    // Two formats: in segments, or with a map.
    let volume = match &spec.backend {
        Backend::Pool { provision: Provision::Segments, stripe_unit, .. } => {
            let plan = VolumePlan {
                id: uuid_of(spec.id),
                name: spec.name.volume().to_string(),
                size_bytes: spec.size.bytes(),
                block_bytes: spec.block_bytes,
                stripe_unit_bytes: stripe_unit.map_or(0, bytes_of),
                created_at: shard.world.unix_seconds(),
            };
            let made = pool.pool.create_volume(plan).await.map_err(|error| refusal(&error, &pool))?;
            PoolVolume::of(&pool, Kind::Segments(made))
        }
        Backend::Pool { provision, granule, zero_detection, encrypted, .. } => {
            let plan = ThinPlan {
                id: uuid_of(spec.id),
                name: spec.name.volume().to_string(),
                size_bytes: spec.size.bytes(),
                block_bytes: spec.block_bytes,
                granule_bytes: granule.map_or(0, bytes_of),
                provisioning: provisioning(*provision),
                zero_detection: *zero_detection,
                // Every new family gets a data key of its own.
                encryption: encrypted.then(|| new_key(&shard.world)),
                created_at: shard.world.unix_seconds(),
            };
            let made = pool.pool.create_thin_volume(plan).await.map_err(|error| refusal(&error, &pool))?;
            pool.start_map_work();
            pool.mapped(made, *provision == Provision::Thick)
        }
        Backend::File { .. } | Backend::Ram | Backend::Null => {
            unreachable!("the conductor sends volumes of pools here")
        }
    };
    Ok(pool.show(spec.id, spec.name, spec.backend, volume))
}

/// Grows the volume and notifies its initiators.
///
/// *Durability*: when it returns.
pub(crate) async fn resize_volume<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    size: Size,
) -> Result<VolumeReport, Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let id = pool.volume_id(&name)?;
    pool.pool.resize_volume(id, size.bytes()).await.map_err(|error| refusal(&error, &pool))?;
    let unit = pool.unit(id, &name)?;
    // The size is published only after it is durable: hosts must not write beyond a size that a crash could take back.
    unit.store().show_growth(size.bytes());
    unit.capacity_changed();
    Ok(pool.report_of(&unit))
}

/// Deletes the volume. Its space is freed at once or in the background.
///
/// *Durability*: when it returns. *Errors*: `VOLUME_HAS_SNAPSHOTS`, with their names.
pub(crate) async fn delete_volume<W: World>(shard: Rc<ShardContext<W>>, name: VolumeName) -> Result<(), Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let id = pool.volume_id(&name)?;
    pool.admit_deletion(id, &name)?;
    // Withdrawn first, so that no command comes in while the volume is deleted.
    let withdrawn = shard.withdraw(VolumeId::from_bytes(id.into_bytes()));
    let written = match &withdrawn {
        Some(Withdrawn { unit, .. }) => {
            // Nothing may be written to the volume after its space was freed.
            unit.stop_sanitizing().await;
            unit.write_through().await
        }
        None => Ok(()),
    };
    let deleted = pool.pool.delete_volume(id).await;
    match (&deleted, &withdrawn) {
        // The volume is still there, so hosts get it back.
        (Err(_), Some(Withdrawn { unit, .. })) => shard.serve(unit.clone()),
        // Its cached writes have no place to go any more.
        (Ok(()), Some(Withdrawn { unit, .. })) if written.is_err() => unit.discard_dirty().await,
        _ => {}
    }
    if deleted.is_ok() {
        pool.blocked.forget(id);
        pool.leave_log(id).await;
    }
    // The space of a clone is freed by the maintenance of the maps.
    pool.maintenance.space.chores.leave();
    deleted.map_err(|error| refusal(&error, &pool))
}

/// Sets the cache policy and the limits of the volume.
///
/// *Errors*: `POLICY_IMPOSSIBLE` if the write policy is not possible; all other settings apply nevertheless.
pub(crate) async fn set_policy<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    policy: VolumePolicy,
) -> Result<VolumeReport, Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let id = pool.volume_id(&name)?;
    let unit = pool.unit(id, &name)?;
    admit_policy(&unit, &policy)?;
    // The catalog must list the volume before the first write is acknowledged from the log.
    if policy.write == WritePolicy::Back
        && let Err(refusal) = pool.enter_log(id, &name).await
    {
        // All settings but the write policy apply.
        let rest = unit.set_policy(VolumePolicy { write: unit.policy().write, ..policy }).await;
        shard.update_queue_depth();
        if let Err(error) = rest {
            tracing::warn!(volume = %name, %error, "a policy");
        }
        return Err(refusal);
    }
    let set = unit.set_policy(policy).await;
    // A minimum IOPS or a priority changes the queue depth of the whole shard.
    shard.update_queue_depth();
    // Only now: until the policy was switched, the log may have held writes of the volume.
    if !unit.is_written_back() {
        pool.leave_log(id).await;
    }
    match set {
        Ok(()) => Ok(pool.report_of(&unit)),
        Err(error) => {
            let message = format!(
                "the write policy of volume {name} is unchanged: acknowledged writes cannot be destaged: {error}"
            );
            Err(Refusal::new(code::POLICY_IMPOSSIBLE, message, "see blockyard status, then try again"))
        }
    }
}

/// Refuses write-back for an encrypted volume: the log would hold its data in clear text (ADR 12).
fn admit_policy<W: World>(unit: &Unit<W>, policy: &VolumePolicy) -> Result<(), Refusal> {
    let is_encrypted = matches!(unit.backend, Backend::Pool { encrypted: true, .. });
    if policy.write != WritePolicy::Back || !is_encrypted {
        return Ok(());
    }
    let message = format!("volume {} is encrypted, and the log device would store its data unencrypted", unit.name);
    Err(Refusal::new(code::POLICY_IMPOSSIBLE, message, "keep write policy through"))
}

/// A volume opened from the catalog.
pub(super) struct Found<W: World> {
    pub id: Uuid,
    pub name: String,
    pub backend: Backend,
    pub device: PoolVolume<W>,
}

/// Serves all volumes of a pool that was just opened, with all of their acknowledged data. `log_refused` is the reason
/// why the disks of the log cannot be used, if so.
///
/// A volume that cannot be opened or lacks data is held back; the others serve. Returns the reports of all.
pub(super) async fn open_all<W: World>(
    pool: &Rc<OpenPool<W>>,
    log_refused: Option<Refusal>,
) -> Result<Vec<VolumeReport>, Refusal> {
    let found = pool.open_volumes(|_| true).await?;
    // Before any volume is served: its latest acknowledged writes may be in the log.
    LogReplay { pool, volumes: &found }.run(log_refused).await;
    let serving = found.into_iter().filter(|found| !pool.blocked.holds(found.id));
    let mut reports: Vec<VolumeReport> = serving.filter_map(|found| pool.show_found(found)).collect();
    pool.watch_space();
    // Not even the maps of a read-only pool may be changed.
    if !pool.pool.status().families.is_empty() && !pool.is_read_only() {
        pool.start_map_work();
    }
    pool.describe_space(&mut reports);
    reports.extend(pool.blocked_reports());
    Ok(reports)
}

/// Back end description of a mapped volume.
pub(super) fn backend_of(volume: &ThinStatus, granule_bytes: u32) -> Backend {
    let provision = match volume.provisioning {
        Provisioning::Thin => Provision::Thin,
        Provisioning::Thick => Provision::Thick,
    };
    let granule = Some(Size::new(u64::from(granule_bytes)));
    let (zero_detection, encrypted) = (volume.zero_detection, volume.is_encrypted);
    Backend::Pool { stripe_unit: None, provision, granule, zero_detection, encrypted }
}

pub(super) fn provisioning(provision: Provision) -> Provisioning {
    if provision == Provision::Thin { Provisioning::Thin } else { Provisioning::Thick }
}

fn bytes_of(size: Size) -> u32 {
    u32::try_from(size.bytes()).unwrap_or(u32::MAX)
}

pub(super) fn uuid_of(volume: VolumeId) -> Uuid {
    Uuid::from_bytes(volume.to_bytes())
}

impl<W: World> OpenPool<W> {
    /// Opens the volumes for which `wanted` is true. One whose map is damaged is held back.
    pub(super) async fn open_volumes(&self, wanted: impl Fn(Uuid) -> bool) -> Result<Vec<Found<W>>, Refusal> {
        let mut all = Vec::new();
        for CatalogVolume { id, name, backend, .. } in self.known_volumes().into_iter().filter(|known| wanted(known.id))
        {
            let device = match backend {
                Backend::Pool { provision: Provision::Segments, .. } => {
                    // Segments have no map that could be damaged, so an error concerns the pool as a whole.
                    let opened = self.pool.open_volume(id).await;
                    PoolVolume::of(self, Kind::Segments(opened.map_err(|error| refusal(&error, self))?))
                }
                Backend::Pool { provision, .. } => match self.pool.open_thin_volume(id).await {
                    Ok(device) => self.mapped(device, provision == Provision::Thick),
                    Err(error) => {
                        // Only this volume is held back; the others serve.
                        self.block_volume(id, &error.to_string());
                        continue;
                    }
                },
                Backend::File { .. } | Backend::Ram | Backend::Null => unreachable!("it is in a pool"),
            };
            all.push(Found { id, name, backend, device });
        }
        Ok(all)
    }

    /// Creates the device of a mapped volume, whose writes cause maintenance of its maps.
    pub(super) fn mapped(&self, device: Rc<ThinVolume<Disk<W>, Group<W>>>, thick: bool) -> PoolVolume<W> {
        PoolVolume::of(self, Kind::Mapped(Mapped { device, thick, chores: self.maintenance.space.chores.clone() }))
    }

    /// Unit of a volume; the refusal says why it does not serve.
    pub(super) fn unit(&self, id: Uuid, name: &VolumeName) -> Result<Rc<Unit<W>>, Refusal> {
        self.shard.unit(VolumeId::from_bytes(id.into_bytes())).ok_or_else(|| self.blocked.refusal(id, name))
    }

    /// Report of a volume with its space.
    pub(super) fn report_of(&self, unit: &Unit<W>) -> VolumeReport {
        let mut reports = [unit.report()];
        self.describe_space(&mut reports);
        let [report] = reports;
        report
    }

    fn admit_deletion(&self, id: Uuid, name: &VolumeName) -> Result<(), Refusal> {
        let status = self.pool.status();
        let volume = status.families.iter().flat_map(|family| &family.volumes).find(|volume| volume.id == id);
        let snapshots = volume.map_or(&[][..], |volume| &volume.snapshots);
        if snapshots.is_empty() {
            return Ok(());
        }
        // Such a snapshot goes with the copy; an operator cannot delete it.
        if snapshots.iter().any(|snapshot| volume_copy::is_for_copy(&snapshot.name)) {
            let message = format!("volume {name} is being copied");
            let hint = "wait until it has finished, or cancel it with blockyard volume cancel-copy";
            return Err(Refusal::new(code::VOLUME_COPYING, message, hint));
        }
        let shown = first_few(snapshots.iter().map(|snapshot| &snapshot.name), 5);
        let message = format!("volume {name} has the snapshots {shown}");
        let hint = format!("delete them first with blockyard snapshot delete {name}@{}", snapshots[0].name);
        Err(Refusal::new(code::VOLUME_HAS_SNAPSHOTS, message, hint))
    }

    /// Serves the volume under its name in the catalog. `None` if it cannot be served.
    pub(super) fn show_found(&self, found: Found<W>) -> Option<VolumeReport> {
        // A name that this version cannot parse; the volume stays in the catalog.
        let Ok(own) = found.name.parse() else {
            tracing::error!(pool = %self.name, found.name, "a volume's name cannot be used; it is not shown");
            return None;
        };
        let name = VolumeName::in_pool(self.name.clone(), own);
        let kept = self.pool.reservations(found.id);
        // A volume must not be served without the reservations of its hosts (ADR 20).
        if !self.shard.understands(&kept) {
            self.block_volume(found.id, "what hosts have reserved or ordered of it cannot be read");
            return None;
        }
        let id = VolumeId::from_bytes(found.id.into_bytes());
        Some(self.show_kept(id, name, found.backend, found.device, kept))
    }

    /// Serves a new volume, which has no host state.
    pub(super) fn show(&self, id: VolumeId, name: VolumeName, backend: Backend, volume: PoolVolume<W>) -> VolumeReport {
        self.show_kept(id, name, backend, volume, Vec::new())
    }

    /// Serves the volume with its kept host state.
    fn show_kept(
        &self,
        id: VolumeId,
        name: VolumeName,
        backend: Backend,
        volume: PoolVolume<W>,
        kept: Vec<u8>,
    ) -> VolumeReport {
        assert_eq!(volume.geometry().block_bytes, BLOCK_BYTES, "volumes of pools have blocks of 4096 bytes");
        let block_bytes = volume.logical_block_bytes();
        // The control plane sets the policy of the volume once it serves.
        let policy = policy_of(&VolumePolicy::default());
        let cache_shard = CacheShard { log: self.log.running(), ..self.shard.cache.clone() };
        let policed = CachedVolume::new(&cache_shard, cache_id(id), volume, &policy);
        let store = Store::in_pool(policed, block_bytes);
        let (read_only, meter) = (self.is_read_only(), self.maintenance.meter.clone());
        let host_state = HostState::in_pool(self.pool.clone(), kept);
        let unit = Rc::new(Unit::new(Parts { id, name, backend, store, read_only, meter, host_state }));
        self.shard.serve(unit.clone());
        self.report_of(&unit)
    }
}
