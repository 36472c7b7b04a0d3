//! Creation, opening, resizing and deletion of segmented volumes.

use super::{Pool, WriteGate};
use crate::catalog::{Catalog, SEGMENTS_MAX, VOLUME_BYTES_MAX, VOLUMES_MAX, VolumeRecord};
use crate::error::PoolError;
use crate::label::NAME_BYTES_MAX;
use crate::layout::{BLOCK_BYTES, BODY_BYTES_MAX};
use crate::space::{SpaceMap, Units};
use crate::volume::Volume;
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

/// Parameters of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// UUID of the new volume.
    pub id: Uuid,
    /// Name, unique among the volumes of the pool.
    pub name: String,
    /// Size in bytes as hosts see it, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Logical block size as hosts see it: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// Stripe unit in bytes: data on one group before the next group follows; 0 for one full stripe of each
    /// group.
    pub stripe_unit_bytes: u32,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Creates the volume, which reads as zeros, and opens it.
    ///
    /// *Durability*: when it returns. *Errors*: `NameInvalid`, `NameTaken`, `IdTaken`, `VolumeBlockSize`,
    /// `VolumeSize`, `VolumeTooLarge`, `StripeUnit`, `TooManyVolumes`, `Full`, `CatalogFull`, `CatalogLost`.
    pub async fn create_volume(&self, plan: VolumePlan) -> Result<Rc<Volume<D, G>>, PoolError> {
        let id = plan.id;
        let stripes = self.stripe_bytes();
        let ((), change) = self.shared.store.change(|catalog| {
            admit_plan(&plan, catalog)?;
            let mut record = VolumeRecord {
                id: plan.id,
                name: plan.name,
                size_bytes: plan.size_bytes,
                block_bytes: plan.block_bytes,
                stripe_unit_bytes: plan.stripe_unit_bytes,
                created_at: plan.created_at,
                segments: Vec::new(),
            };
            allocate(&mut record, catalog, &stripes)?;
            admit_size(catalog, &record, None)?;
            catalog.volumes.push(record);
            Ok(())
        })?;
        self.shared.store.committed(change).await?;
        self.shared.check_space_thresholds();
        self.open_volume(id).await
    }

    /// Opens the volume. All callers share one device.
    ///
    /// *Errors*: `VolumeUnknown`, `CatalogLost`.
    pub async fn open_volume(&self, id: Uuid) -> Result<Rc<Volume<D, G>>, PoolError> {
        // Uncommitted volumes must not be used, or data of a volume could be acknowledged that a crash undoes.
        self.shared.store.committed(self.shared.store.latest()).await?;
        if let Some(volume) = self.shared.opened(id) {
            return Ok(volume);
        }
        // No await until the entry is made: two callers cannot open two devices of one volume.
        let volume = Volume::open(self.shared.clone(), id).ok_or(PoolError::VolumeUnknown(id))?;
        let volume = Rc::new(volume);
        let mut open = self.shared.open.borrow_mut();
        // Entries of closed volumes are dropped here, so the map stays as small as the number of open ones.
        open.retain(|_, volume| volume.strong_count() > 0);
        open.insert(id, Rc::downgrade(&volume));
        Ok(volume)
    }

    /// Grows the volume to `size_bytes`; the new part reads as zeros. Open devices see the new size.
    ///
    /// *Durability*: when it returns. *Errors*: `VolumeUnknown`, `VolumeSize`, `VolumeTooLarge`,
    /// `VolumeShrink`, `Full`, `CatalogFull`, `CatalogLost`.
    pub async fn resize_volume(&self, id: Uuid, size_bytes: u64) -> Result<(), PoolError> {
        if self.shared.store.with_catalog(|catalog| catalog.branch(id).is_some()) {
            return self.resize_thin(id, size_bytes).await;
        }
        let stripes = self.stripe_bytes();
        let ((), change) = self.shared.store.change(|catalog| {
            let at = catalog.volumes.iter().position(|volume| volume.id == id).ok_or(PoolError::VolumeUnknown(id))?;
            // A copy: an error on the way must leave the catalog unchanged.
            let mut record = catalog.volumes[at].clone();
            if size_bytes < record.size_bytes {
                return Err(PoolError::VolumeShrink { bytes: record.size_bytes, asked_bytes: size_bytes });
            }
            admit_bytes(size_bytes, record.block_bytes)?;
            record.size_bytes = size_bytes;
            allocate(&mut record, catalog, &stripes)?;
            admit_size(catalog, &record, Some(at))?;
            catalog.volumes[at] = record;
            Ok(())
        })?;
        self.shared.store.committed(change).await?;
        self.shared.check_space_thresholds();
        // After the commit: no host may write behind an end that a crash takes back.
        if let Some(volume) = self.shared.opened(id) {
            volume.grow(size_bytes);
        }
        Ok(())
    }

    /// Deletes the volume and frees its slabs. Open devices of it fail with `Gone` from now on.
    ///
    /// *Durability*: when it returns. *Errors*: `VolumeUnknown`, `HasSnapshots`, `CatalogLost`.
    pub async fn delete_volume(&self, id: Uuid) -> Result<(), PoolError> {
        if self.shared.store.with_catalog(|catalog| catalog.branch(id).is_some()) {
            self.delete_thin(id).await?;
            // Reservations of a deleted volume are not committed, but a later volume with the same UUID must
            // not inherit them.
            let forgotten = self.shared.store.change(|catalog| Ok(catalog.reservations.remove(&id)));
            return forgotten.map(drop);
        }
        if self.shared.store.with_catalog(|catalog| catalog.volume(id).is_none()) {
            return Err(PoolError::VolumeUnknown(id));
        }
        // Writes in flight must end before its slabs are allocated to another volume.
        if let Some(volume) = self.shared.opened(id) {
            volume.close().await;
        }
        let ((), change) = self.shared.store.change(|catalog| {
            // Looked up again: another caller may have deleted it while operations ended.
            let at = catalog.volumes.iter().position(|volume| volume.id == id).ok_or(PoolError::VolumeUnknown(id))?;
            catalog.volumes.remove(at);
            catalog.reservations.remove(&id);
            Ok(())
        })?;
        // A closed device must not be handed out to the next one who opens a volume of this UUID.
        self.shared.open.borrow_mut().remove(&id);
        self.shared.store.committed(change).await?;
        self.shared.check_space_thresholds();
        Ok(())
    }

    /// Full stripe size of each group in bytes, in order; one block where no volume can be.
    fn stripe_bytes(&self) -> Vec<u32> {
        let groups = self.shared.store.with_catalog(|catalog| catalog.groups.len());
        let stripe = |gate: &WriteGate<G>| gate.device().geometry().optimal_bytes;
        let gates = self.shared.gates.iter().take(groups);
        gates.map(|gate| gate.get().map_or(BLOCK_BYTES, stripe)).collect()
    }
}

fn admit_plan(plan: &VolumePlan, catalog: &Catalog) -> Result<(), PoolError> {
    admit_identity(catalog, plan.id, &plan.name)?;
    if !matches!(plan.block_bytes, 512 | BLOCK_BYTES) {
        return Err(PoolError::VolumeBlockSize(plan.block_bytes));
    }
    admit_bytes(plan.size_bytes, plan.block_bytes)
}

/// Admits one more volume of any kind with this UUID and name.
pub(super) fn admit_identity(catalog: &Catalog, id: Uuid, name: &str) -> Result<(), PoolError> {
    if !is_name(name) {
        return Err(PoolError::NameInvalid(name.to_owned()));
    }
    if catalog.has_name(name) {
        return Err(PoolError::NameTaken(name.to_owned()));
    }
    if catalog.has_id(id) {
        return Err(PoolError::IdTaken(id));
    }
    if catalog.volume_count() >= VOLUMES_MAX {
        return Err(PoolError::TooManyVolumes);
    }
    Ok(())
}

/// True for a valid name of a pool or volume.
pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}

pub(super) fn admit_bytes(bytes: u64, block_bytes: u32) -> Result<(), PoolError> {
    if bytes == 0 || !bytes.is_multiple_of(u64::from(block_bytes)) {
        return Err(PoolError::VolumeSize { bytes, block_bytes });
    }
    if bytes > VOLUME_BYTES_MAX {
        return Err(PoolError::VolumeTooLarge { bytes });
    }
    Ok(())
}

/// Allocates the slabs that the size of `record` still requires.
fn allocate(record: &mut VolumeRecord, catalog: &Catalog, stripe_bytes: &[u32]) -> Result<(), PoolError> {
    let needed = record.size_bytes.div_ceil(u64::from(BLOCK_BYTES));
    // Allocation is in whole rows, so a small growth may need no new slab.
    let missing = needed.saturating_sub(record.allocated_blocks());
    // Chosen anew when a volume grows: groups may have been added or have got more members.
    let units = Units::choose(record.stripe_unit_bytes, stripe_bytes, &catalog.groups)?;
    let segments = SpaceMap::of(catalog).take(&catalog.groups, &units, missing)?;
    record.append(segments);
    Ok(())
}

/// Refuses what could make the catalog outgrow its slot, now or when all slabs are initialized in the worst
/// order: whatever is admitted can always be committed.
fn admit_size(catalog: &Catalog, record: &VolumeRecord, replaces: Option<usize>) -> Result<(), PoolError> {
    let others =
        || catalog.volumes.iter().enumerate().filter(|(at, _)| Some(*at) != replaces).map(|(_, volume)| volume);
    let segments: usize = others().map(|volume| volume.segments.len()).sum();
    let bytes = catalog.emitted_bytes_max() + record.emitted_bytes_max();
    // A volume that grows replaces its own record.
    let replaced = replaces.map_or(0, |at| catalog.volumes[at].emitted_bytes_max());
    if segments + record.segments.len() > SEGMENTS_MAX || bytes - replaced > BODY_BYTES_MAX {
        return Err(PoolError::CatalogFull);
    }
    Ok(())
}
