//! Volumes of a pool, and the units that show them.

use super::device::{Kind, Mapped};
use super::held::Known;
use super::keys::new_key;
use super::refusals::refusal;
use super::replay::LogReplay;
use super::{OpenPool, PoolVolume, copy, find};
use crate::array::{Disk, Group};
use crate::shard_context::{ShardContext, Withdrawn};
use crate::unit::{HostState, Parts, Store, Unit, cache_id, policy_of};
use block::BlockDevice;
use cache::{CacheShard, PolicedVolume};
use model::{
    Backend, Provision, Refusal, Size, VolumeId, VolumeName, VolumePolicy, VolumeReport, VolumeSpec, WritePolicy, code,
    first_few,
};
use shard::World;
use std::rc::Rc;
use volume::{BLOCK_BYTES, Provisioning, ThinPlan, ThinStatus, ThinVolume, Uuid, VolumePlan};

/// The volume is in its pool, and serves.
///
/// *Durability*: when it returns.
pub(crate) async fn create_volume<W: World>(
    shard: Rc<ShardContext<W>>,
    spec: VolumeSpec,
) -> Result<VolumeReport, Refusal> {
    let pool = find(&shard, spec.name.pool().expect("the conductor sends volumes of pools here"))?;
    pool.watch_space();
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
                encryption: encrypted.then(|| new_key(&shard.world)),
                created_at: shard.world.unix_seconds(),
            };
            let made = pool.pool.create_thin_volume(plan).await.map_err(|error| refusal(&error, &pool))?;
            pool.begin_tending();
            pool.mapped(made, *provision == Provision::Thick)
        }
        Backend::File { .. } | Backend::Ram | Backend::Null => {
            unreachable!("the conductor sends volumes of pools here")
        }
    };
    Ok(pool.show(spec.id, spec.name, spec.backend, volume))
}

/// The volume has its new size, and its initiators are told.
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
    unit.store().show_growth(size.bytes());
    unit.capacity_changed();
    Ok(pool.report_of(&unit))
}

/// The volume is no more, and its space is free, or becomes free in the background.
///
/// *Durability*: when it returns. *Errors*: `VOLUME_HAS_SNAPSHOTS`, which says which.
pub(crate) async fn delete_volume<W: World>(shard: Rc<ShardContext<W>>, name: VolumeName) -> Result<(), Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let id = pool.volume_id(&name)?;
    pool.admit_deletion(id, &name)?;
    let withdrawn = shard.withdraw(VolumeId::from_bytes(id.into_bytes()));
    let written = match &withdrawn {
        Some(Withdrawn { unit, .. }) => {
            unit.stop_sanitizing().await;
            unit.write_through().await
        }
        None => Ok(()),
    };
    let deleted = pool.pool.delete_volume(id).await;
    match (&deleted, &withdrawn) {
        (Err(_), Some(Withdrawn { unit, .. })) => shard.serve(unit.clone()),
        (Ok(()), Some(Withdrawn { unit, .. })) if written.is_err() => unit.throw_away().await,
        _ => {}
    }
    if deleted.is_ok() {
        pool.held.forget(id);
        pool.leave_log(id).await;
    }
    pool.care.space.chores.leave();
    deleted.map_err(|error| refusal(&error, &pool))
}

/// The volume is cached so, and so fast, from now on.
///
/// *Errors*: `POLICY_IMPOSSIBLE` where writes cannot be acknowledged so; everything else holds all the same.
pub(crate) async fn set_policy<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    policy: VolumePolicy,
) -> Result<VolumeReport, Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let id = pool.volume_id(&name)?;
    let unit = pool.unit(id, &name)?;
    admit_policy(&unit, &policy)?;
    if policy.write == WritePolicy::Back
        && let Err(refusal) = pool.enter_log(id, &name).await
    {
        let rest = unit.set_policy(VolumePolicy { write: unit.policy().write, ..policy }).await;
        shard.share_out_the_line();
        if let Err(error) = rest {
            tracing::warn!(volume = %name, %error, "a policy");
        }
        return Err(refusal);
    }
    let set = unit.set_policy(policy).await;
    shard.share_out_the_line();
    if !unit.is_written_back() {
        pool.leave_log(id).await;
    }
    match set {
        Ok(()) => Ok(pool.report_of(&unit)),
        Err(error) => {
            let message =
                format!("volume {name} is written as before: what was acknowledged cannot be written: {error}");
            Err(Refusal::new(code::POLICY_IMPOSSIBLE, message, "look at blockyard status, and try again"))
        }
    }
}

/// Refuses to write an encrypted volume back: its data would lie in the log as hosts wrote it.
fn admit_policy<W: World>(unit: &Unit<W>, policy: &VolumePolicy) -> Result<(), Refusal> {
    let is_encrypted = matches!(unit.backend, Backend::Pool { encrypted: true, .. });
    if policy.write != WritePolicy::Back || !is_encrypted {
        return Ok(());
    }
    let message =
        format!("volume {} is encrypted, and the log would keep what is written as hosts wrote it", unit.name);
    Err(Refusal::new(code::POLICY_IMPOSSIBLE, message, "leave its write policy at through"))
}

/// A volume that was found in its pool.
pub(super) struct Found<W: World> {
    pub id: Uuid,
    pub name: String,
    pub backend: Backend,
    pub device: PoolVolume<W>,
}

/// All volumes of a pool that was just opened serve, with everything that they have acknowledged; `log_refused` is why the
/// disks of its log are of no use, if they are not.
///
/// One that cannot be opened, or lacks something, does not serve; the others do. The reports of all.
pub(super) async fn open_all<W: World>(
    pool: &Rc<OpenPool<W>>,
    log_refused: Option<Refusal>,
) -> Result<Vec<VolumeReport>, Refusal> {
    let found = pool.open_volumes(|_| true).await?;
    LogReplay { pool, volumes: &found }.run(log_refused).await;
    let serving = found.into_iter().filter(|found| !pool.held.holds(found.id));
    let mut reports: Vec<VolumeReport> = serving.filter_map(|found| pool.show_found(found)).collect();
    pool.watch_space();
    if !pool.pool.status().families.is_empty() && !pool.is_read_only() {
        pool.begin_tending();
    }
    pool.describe_space(&mut reports);
    reports.extend(pool.held_reports());
    Ok(reports)
}

/// What a volume with a map was made with.
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
    /// The volumes that `wanted` asks for; one whose map is damaged is held back.
    pub(super) async fn open_volumes(&self, wanted: impl Fn(Uuid) -> bool) -> Result<Vec<Found<W>>, Refusal> {
        let mut all = Vec::new();
        for Known { id, name, backend, .. } in self.known_volumes().into_iter().filter(|known| wanted(known.id)) {
            let device = match backend {
                Backend::Pool { provision: Provision::Segments, .. } => {
                    let opened = self.pool.open_volume(id).await;
                    PoolVolume::of(self, Kind::Segments(opened.map_err(|error| refusal(&error, self))?))
                }
                Backend::Pool { provision, .. } => match self.pool.open_thin_volume(id).await {
                    Ok(device) => self.mapped(device, provision == Provision::Thick),
                    Err(error) => {
                        self.hold_back(id, &error.to_string());
                        continue;
                    }
                },
                Backend::File { .. } | Backend::Ram | Backend::Null => unreachable!("it lies in a pool"),
            };
            all.push(Found { id, name, backend, device });
        }
        Ok(all)
    }

    /// A volume of a family, whose writes leave something to tend.
    pub(super) fn mapped(&self, device: Rc<ThinVolume<Disk<W>, Group<W>>>, thick: bool) -> PoolVolume<W> {
        PoolVolume::of(self, Kind::Mapped(Mapped { device, thick, chores: self.care.space.chores.clone() }))
    }

    /// The unit of a volume of the pool.
    pub(super) fn unit(&self, id: Uuid, name: &VolumeName) -> Result<Rc<Unit<W>>, Refusal> {
        self.shard.unit(VolumeId::from_bytes(id.into_bytes())).ok_or_else(|| self.held.refusal(id, name))
    }

    /// How a volume of the pool is.
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
        if snapshots.iter().any(|snapshot| copy::is_for_copy(&snapshot.name)) {
            let message = format!("volume {name} is being copied");
            let hint = "wait for the end, or cancel it with blockyard volume cancel-copy";
            return Err(Refusal::new(code::VOLUME_COPYING, message, hint));
        }
        let shown = first_few(snapshots.iter().map(|snapshot| &snapshot.name), 5);
        let message = format!("volume {name} has the snapshots {shown}");
        let hint = format!("delete them first with blockyard snapshot delete {name}@{}", snapshots[0].name);
        Err(Refusal::new(code::VOLUME_HAS_SNAPSHOTS, message, hint))
    }

    /// The volume serves, under the name that the catalog has.
    pub(super) fn show_found(&self, found: Found<W>) -> Option<VolumeReport> {
        let Ok(own) = found.name.parse() else {
            tracing::error!(pool = %self.name, found.name, "a volume's name cannot be used; it is not shown");
            return None;
        };
        let name = VolumeName::in_pool(self.name.clone(), own);
        let kept = self.pool.reservations(found.id);
        if !self.shard.understands(&kept) {
            self.hold_back(found.id, "what hosts have reserved or ordered of it cannot be read");
            return None;
        }
        let id = VolumeId::from_bytes(found.id.into_bytes());
        Some(self.show_kept(id, name, found.backend, found.device, kept))
    }

    /// The volume, which is new, serves.
    pub(super) fn show(&self, id: VolumeId, name: VolumeName, backend: Backend, volume: PoolVolume<W>) -> VolumeReport {
        self.show_kept(id, name, backend, volume, Vec::new())
    }

    /// The volume serves, with what hosts have reserved and ordered of it.
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
        let policy = policy_of(&VolumePolicy::default());
        let cache_shard = CacheShard { log: self.log.running(), ..self.shard.cache.clone() };
        let policed = PolicedVolume::new(&cache_shard, cache_id(id), volume, &policy);
        let store = Store::in_pool(policed, block_bytes);
        let (read_only, meter) = (self.is_read_only(), self.care.meter.clone());
        let host_state = HostState::in_pool(self.pool.clone(), kept);
        let unit = Rc::new(Unit::new(Parts { id, name, backend, store, read_only, meter, host_state }));
        self.shard.serve(unit.clone());
        self.report_of(&unit)
    }
}
