//! Shapes of presented volumes: what hosts are told while the volumes are not open.

use super::State;
use model::{AbsentVolume, Name, NamedUnitAttributes, UnitAttributes, VolumeId, VolumeName, VolumeReport, VolumeState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shape of a volume's logical unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitShapeRecord {
    /// Identity of the volume; a shape never applies to another volume of the same name.
    pub volume_id: VolumeId,
    /// Shape of the unit when it was open last.
    pub shape: UnitAttributes,
}

impl State {
    /// Records the shapes of open volumes that are presented; other volumes are dropped.
    pub(crate) fn learn_shapes(&mut self, shapes: &[NamedUnitAttributes]) {
        let open: BTreeMap<(&VolumeName, VolumeId), &UnitAttributes> =
            shapes.iter().map(|(id, name, shape)| ((name, *id), shape)).collect();
        // Moved out, so that records of volumes that are not presented any more are dropped.
        let mut known = std::mem::take(&mut self.shapes);
        for record in &self.presentations {
            let now = open.get(&(&record.volume, record.volume_id)).map(|shape| (*shape).clone());
            let before = known.remove(&record.volume).filter(|before| before.volume_id == record.volume_id);
            // The open unit is authoritative; while it is closed, its last known shape stays.
            if let Some(shape) = now.or(before.map(|before| before.shape)) {
                let record_of = UnitShapeRecord { volume_id: record.volume_id, shape };
                // A volume may be presented several times, and has one shape.
                self.shapes.entry(record.volume.clone()).or_insert(record_of);
            }
        }
    }

    /// Returns true when [`State::learn_shapes`] would change the state.
    pub(crate) fn lacks_shapes(&self, shapes: &[NamedUnitAttributes]) -> bool {
        // A dry run on copies of the two parts that are read and written.
        let mut next =
            Self { presentations: self.presentations.clone(), shapes: self.shapes.clone(), ..Self::default() };
        next.learn_shapes(shapes);
        next.shapes != self.shapes
    }

    /// Returns the presented volumes with their shapes. Hosts see them while they are not open.
    pub(super) fn absent(&self) -> BTreeMap<VolumeId, AbsentVolume> {
        // A presentation may have ended since the shapes were recorded.
        let is_presented = |name: &VolumeName| self.presentations.iter().any(|record| record.volume == *name);
        let shapes = self.shapes.iter().filter(|(name, _)| is_presented(name));
        shapes
            .map(|(name, record)| (record.volume_id, AbsentVolume::waiting(name.clone(), record.shape.clone())))
            .collect()
    }

    /// Reports the presented volumes of a pool that is not open, with `why` as the reason.
    pub(crate) fn away_with<'a>(&'a self, pool: &'a Name, why: &'a str) -> impl Iterator<Item = VolumeReport> + 'a {
        let of_pool = self.shapes.iter().filter(move |(name, _)| name.pool() == Some(pool));
        of_pool.map(move |(name, UnitShapeRecord { volume_id, shape })| {
            let state = (VolumeState::Missing, Some(why.to_owned()));
            VolumeReport::offline(name.clone(), *volume_id, shape.size, shape.block_bytes, shape.backend.clone(), state)
        })
    }
}
