//! The fake's snapshots: names without content.

use super::Fake;
use crate::system::now;
use model::{
    Backend, Order, Refusal, Report, Size, SnapshotReport, SnapshotState, SpaceReport, VolumeName, VolumeReport,
    VolumeSpec,
};

impl Fake {
    pub(super) fn obey_of_snapshots(&mut self, order: &Order) -> Result<Report, Refusal> {
        match order {
            Order::CreateSnapshots { snapshots, lock } => {
                for (name, id) in snapshots {
                    let size = self.volume_named(&name.volume).size;
                    self.snapshots.push(SnapshotReport {
                        name: name.clone(),
                        id: *id,
                        state: SnapshotState::Whole,
                        created: now(),
                        size,
                        mapped: Size::ZERO,
                        frees: Size::ZERO,
                        lock: *lock,
                        cloned: false,
                        set: (snapshots.len() > 1).then_some(snapshots[0].1),
                    });
                }
                let made = |report: &&SnapshotReport| snapshots.iter().any(|(_, id)| *id == report.id);
                Ok(Report::Snapshots(self.snapshots.iter().filter(made).cloned().collect()))
            }
            Order::DeleteSnapshot { snapshot } => {
                self.snapshots.retain(|known| known.name != *snapshot);
                Ok(Report::Done)
            }
            Order::LockSnapshot { snapshot, lock } => {
                let known = self.snapshots.iter_mut().find(|known| known.name == *snapshot);
                let known = known.expect("control asks for snapshots that are there");
                known.lock = *lock;
                Ok(Report::Snapshots(vec![known.clone()]))
            }
            Order::CloneSnapshot { snapshot, volume, id, provision, zero_detection } => {
                let known = self.snapshots.iter_mut().find(|known| known.name == *snapshot);
                let known = known.expect("control asks for snapshots that are there");
                known.cloned = true;
                let spec = VolumeSpec {
                    name: volume.clone(),
                    id: *id,
                    size: known.size,
                    block_bytes: 512,
                    backend: Backend::Pool {
                        stripe_unit: None,
                        provision: *provision,
                        granule: None,
                        zero_detection: *zero_detection,
                        encrypted: false,
                    },
                };
                self.clones.insert(volume.clone(), snapshot.clone());
                self.create_volume(&spec).map(|_| Report::Volume(self.volume_named(volume)))
            }
            Order::RollBack { snapshot, .. } => Ok(Report::Volume(self.volume_named(&snapshot.volume))),
            _ => Ok(Report::Snapshots(self.snapshots.clone())),
        }
    }

    /// The volume is gone; what it was a clone of may be deleted.
    pub(super) fn forget_snapshots_of(&mut self, name: &VolumeName) {
        self.snapshots.retain(|snapshot| snapshot.name.volume != *name);
        let origin = self.clones.remove(name);
        let cloned: Vec<_> = self.clones.values().cloned().collect();
        for snapshot in self.snapshots.iter_mut().filter(|snapshot| Some(&snapshot.name) == origin.as_ref()) {
            snapshot.cloned = cloned.contains(&snapshot.name);
        }
    }

    pub(super) fn volume_named(&self, name: &VolumeName) -> VolumeReport {
        let found = self.volumes().into_iter().find(|volume| volume.name == *name);
        found.expect("control asks for volumes that are open")
    }

    /// What a volume in a pool takes, as far as the fake knows.
    pub(super) fn space(&self, name: &VolumeName) -> Option<SpaceReport> {
        name.pool()?;
        let own = self.snapshots.iter().filter(|snapshot| snapshot.name.volume == *name).count();
        let snapshots = u32::try_from(own).expect("few snapshots");
        Some(SpaceReport { snapshots, clone_of: self.clones.get(name).cloned(), ..SpaceReport::default() })
    }
}
