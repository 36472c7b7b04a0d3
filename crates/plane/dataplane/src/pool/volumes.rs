//! Volumes of a pool, and the units that show them.

use super::refusals::refusal;
use super::{OpenPool, PoolVolume, find};
use crate::seat::Seat;
use crate::unit::{Store, Unit};
use block::Blocks;
use model::{Backend, Refusal, Size, VolumeId, VolumeName, VolumeReport, VolumeSpec, code};
use shard::World;
use std::rc::Rc;
use volume::{BLOCK_BYTES, Sectors, Uuid, VolumePlan};

/// The volume is in its pool, and serves.
///
/// *Durability*: when it returns.
pub async fn create_volume<W: World>(seat: Rc<Seat<W>>, spec: VolumeSpec) -> Result<VolumeReport, Refusal> {
    let name = spec.name.pool().expect("the conductor sends volumes of pools here");
    let pool = find(&seat, name)?;
    let unit_bytes = match &spec.backend {
        Backend::Pool { stripe_unit: Some(unit) } => u32::try_from(unit.bytes()).unwrap_or(u32::MAX),
        _ => 0,
    };
    let plan = VolumePlan {
        id: Uuid::from_bytes(spec.id.to_bytes()),
        name: spec.name.volume().to_string(),
        size_bytes: spec.size.bytes(),
        block_bytes: spec.block_bytes,
        stripe_unit_bytes: unit_bytes,
        created_at: seat.world.unix_seconds(),
    };
    let volume = pool.pool.create_volume(plan).await.map_err(|error| refusal(&error, &pool))?;
    Ok(pool.show(spec.id, spec.name, spec.backend, volume))
}

/// The volume has its new size, and its initiators are told.
///
/// *Durability*: when it returns.
pub async fn resize_volume<W: World>(seat: Rc<Seat<W>>, name: VolumeName, size: Size) -> Result<VolumeReport, Refusal> {
    let pool = find(&seat, name.pool().expect("the conductor sends volumes of pools here"))?;
    let id = pool.volume_id(&name)?;
    pool.pool.resize_volume(id, size.bytes()).await.map_err(|error| refusal(&error, &pool))?;
    let unit = seat.unit(VolumeId::from_bytes(id.into_bytes())).ok_or_else(|| {
        Refusal::new(code::VOLUME_UNKNOWN, format!("volume {name} does not serve"), "open its pool again")
    })?;
    if let Store::Volume512(sectors) = unit.store() {
        sectors.show(Blocks(size.bytes() / 512));
    }
    unit.capacity_changed();
    Ok(unit.report())
}

/// The volume is no more, and its space is free.
///
/// *Durability*: when it returns.
pub async fn delete_volume<W: World>(seat: Rc<Seat<W>>, name: VolumeName) -> Result<(), Refusal> {
    let pool = find(&seat, name.pool().expect("the conductor sends volumes of pools here"))?;
    let id = pool.volume_id(&name)?;
    seat.units.borrow_mut().remove(&VolumeId::from_bytes(id.into_bytes()));
    pool.pool.delete_volume(id).await.map_err(|error| refusal(&error, &pool))
}

/// All volumes of a pool that was just opened serve.
pub(super) async fn open_all<W: World>(pool: &Rc<OpenPool<W>>) -> Result<Vec<VolumeReport>, Refusal> {
    let mut reports = Vec::new();
    for status in pool.pool.status().volumes {
        let volume = pool.pool.open_volume(status.id).await.map_err(|error| refusal(&error, pool))?;
        let Ok(own) = status.name.parse() else {
            tracing::error!(pool = %pool.name, name = status.name, "a volume's name cannot be used; it is not shown");
            continue;
        };
        let name = VolumeName::in_pool(pool.name.clone(), own);
        let id = VolumeId::from_bytes(status.id.into_bytes());
        reports.push(pool.show(id, name, Backend::Pool { stripe_unit: None }, volume));
    }
    Ok(reports)
}

impl<W: World> OpenPool<W> {
    fn show(&self, id: VolumeId, name: VolumeName, backend: Backend, volume: PoolVolume<W>) -> VolumeReport {
        let store = match volume.logical_block_bytes() {
            BLOCK_BYTES => Store::Volume(volume),
            _ => Store::Volume512(Sectors::new(volume)),
        };
        let unit = Unit::new(&self.seat, id, name, backend, store).metered_by(self.care.meter.clone());
        let report = unit.report();
        self.seat.units.borrow_mut().insert(id, Rc::new(unit));
        report
    }
}
