//! Volumes of an open pool that do not serve, because their latest acknowledged writes are not on its disks or their
//! map is damaged.

use super::OpenPool;
use super::volumes::{Found, backend_of};
use model::{
    Backend, CheckFinding, CheckKind, Provision, Refusal, Size, Subject, SubjectKind, VolumeId, VolumeName,
    VolumeReport, VolumeState, code, event,
};
use shard::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use volume::Uuid;

/// Reason of a volume whose map was repaired.
const REPAIRED: &str = "its map was repaired; export and import the pool, or restart the daemon, to use what is left";

/// Volumes that do not serve, with the reason.
#[derive(Default)]
pub(super) struct BlockedVolumes(RefCell<BTreeMap<Uuid, String>>);

impl BlockedVolumes {
    pub(super) fn holds(&self, volume: Uuid) -> bool {
        self.0.borrow().contains_key(&volume)
    }

    /// Releases the volume, which was deleted or serves.
    pub(super) fn forget(&self, volume: Uuid) {
        self.0.borrow_mut().remove(&volume);
    }

    /// Sets the reason of the held volumes of these families: their maps were repaired, and they wait for the next
    /// opening only.
    pub(super) fn until_opened_again(&self, all: &[volume::FamilyStatus], families: &[Uuid]) {
        let mut held = self.0.borrow_mut();
        for family in all {
            if families.contains(&family.id) {
                let its = held.iter_mut().filter(|(held, _)| family.volumes.iter().any(|volume| volume.id == **held));
                its.for_each(|(_, why)| REPAIRED.clone_into(why));
            }
        }
    }

    /// Refusal of an operation on a volume that does not serve.
    pub(super) fn refusal(&self, volume: Uuid, name: &VolumeName) -> Refusal {
        let held = self.0.borrow();
        let why = held.get(&volume).map_or(String::new(), |why| format!(": {why}"));
        let message = format!("volume {name} is offline{why}");
        Refusal::new(code::VOLUME_HELD, message, "see blockyard pool check, then open its pool again")
    }
}

impl<W: World> OpenPool<W> {
    /// Holds the volume back for as long as the pool is open, with an event.
    pub(super) fn block_volume(&self, volume: Uuid, why: &str) {
        let name = self.volume_name(volume).map_or_else(|| volume.to_string(), |name| name.to_string());
        tracing::error!(pool = %self.name, volume = name, why, "a volume is offline");
        self.blocked.0.borrow_mut().insert(volume, why.to_owned());
        let sentence = format!("volume {name} is offline: {why}");
        self.shard.raise(event::VOLUME_HELD, Subject::new(SubjectKind::Volume, &name), sentence);
    }

    /// Name of the volume; `None` if it is unknown or being deleted.
    pub(super) fn volume_name(&self, volume: Uuid) -> Option<VolumeName> {
        let name = self.known_volumes().into_iter().find(|known| known.id == volume)?.name;
        Some(VolumeName::in_pool(self.name.clone(), name.parse().ok()?))
    }

    /// Volumes of the pool without those that are being deleted or copied to.
    pub(super) fn known_volumes(&self) -> Vec<CatalogVolume> {
        let status = self.pool.status();
        // Volumes in segments have neither a map nor a key, so these settings are fixed.
        let in_segments = status.volumes.into_iter().map(|volume| CatalogVolume {
            id: volume.id,
            name: volume.name,
            size: Size::new(volume.size_bytes),
            block_bytes: volume.block_bytes,
            backend: Backend::Pool {
                stripe_unit: None,
                provision: Provision::Segments,
                granule: None,
                zero_detection: false,
                encrypted: false,
            },
        });
        let of_family = status.families.into_iter().flat_map(|family| {
            let granule_bytes = family.granule_bytes;
            // Half a copy must not be served; its copy reports it.
            let usable = |volume: &volume::ThinStatus| !volume.is_deleting && !volume.is_partial;
            family.volumes.into_iter().filter(usable).map(move |volume| CatalogVolume {
                id: volume.id,
                backend: backend_of(&volume, granule_bytes),
                name: volume.name,
                size: Size::new(volume.size_bytes),
                block_bytes: volume.block_bytes,
            })
        });
        in_segments.chain(of_family).collect()
    }

    /// Reports of the volumes that do not serve.
    pub(crate) fn blocked_reports(&self) -> Vec<VolumeReport> {
        // The usual case, which needs no list of the pool's volumes.
        if self.blocked.0.borrow().is_empty() {
            return Vec::new();
        }
        let held = self.known_volumes().into_iter().filter(|volume| self.blocked.holds(volume.id));
        let report = |volume: CatalogVolume| {
            let name = VolumeName::in_pool(self.name.clone(), volume.name.parse().ok()?);
            let id = VolumeId::from_bytes(volume.id.into_bytes());
            let why = self.blocked.0.borrow().get(&volume.id).cloned();
            let CatalogVolume { size, block_bytes, backend, .. } = volume;
            // No unit exists, so everything comes from the catalog.
            Some(VolumeReport::offline(name, id, size, block_bytes, backend, (VolumeState::Failed, why)))
        };
        held.filter_map(report).collect()
    }

    /// Findings of `pool check` about the volumes that do not serve.
    pub(super) fn held_findings(&self) -> Vec<CheckFinding> {
        let held = self.blocked.0.borrow();
        let finding = |(volume, why): (&Uuid, &String)| CheckFinding {
            volume: self.volume_name(*volume).map_or_else(|| volume.to_string(), |name| name.to_string()),
            kind: CheckKind::Offline,
            description: why.clone(),
        };
        held.iter().map(finding).collect()
    }

    /// Opens all held volumes and serves them: their log was given up. Returns their reports.
    pub(super) async fn open_blocked(self: &Rc<Self>) -> Vec<VolumeReport> {
        let opened = open_held(self).await.unwrap_or_else(|error| {
            tracing::error!(pool = %self.name, %error, "volumes that waited for the log cannot be opened");
            Vec::new()
        });
        let mut reports: Vec<VolumeReport> = opened.into_iter().filter_map(|found| self.show_found(found)).collect();
        self.describe_space(&mut reports);
        reports
    }
}

/// Opens all held volumes, which are held no longer; all of them stay held where that fails.
pub(super) async fn open_held<W: World>(pool: &OpenPool<W>) -> Result<Vec<Found<W>>, Refusal> {
    // Taken before they are opened, which may hold some of them back again.
    let held = pool.blocked.0.take();
    let opened = pool.open_volumes(|volume| held.contains_key(&volume)).await;
    if opened.is_err() {
        let mut blocked = pool.blocked.0.borrow_mut();
        for (volume, why) in held {
            blocked.entry(volume).or_insert(why);
        }
    }
    opened
}

/// A volume in the catalog.
pub(super) struct CatalogVolume {
    pub id: Uuid,
    pub name: String,
    pub size: Size,
    pub block_bytes: u32,
    pub backend: Backend,
}
