//! What the state knows of presented volumes for the time in which they are not open.

use super::State;
use model::{AbsentVolume, Name, ShapeOfUnit, UnitShape, VolumeId, VolumeName, VolumeReport, VolumeState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What hosts are told of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapeRecord {
    /// Which volume of that name.
    pub volume_id: VolumeId,
    /// As its unit was when it was open last.
    pub shape: UnitShape,
}

impl State {
    /// The open volumes are of these shapes: those that are presented are remembered, others are not.
    pub(crate) fn learn_shapes(&mut self, shapes: &[ShapeOfUnit]) {
        let open: BTreeMap<(&VolumeName, VolumeId), &UnitShape> =
            shapes.iter().map(|(id, name, shape)| ((name, *id), shape)).collect();
        let mut known = std::mem::take(&mut self.shapes);
        for record in &self.presentations {
            let now = open.get(&(&record.volume, record.volume_id)).map(|shape| (*shape).clone());
            let before = known.remove(&record.volume).filter(|before| before.volume_id == record.volume_id);
            if let Some(shape) = now.or(before.map(|before| before.shape)) {
                let record_of = ShapeRecord { volume_id: record.volume_id, shape };
                self.shapes.entry(record.volume.clone()).or_insert(record_of);
            }
        }
    }

    /// True when [`State::learn_shapes`] would change something.
    pub(crate) fn lacks_shapes(&self, shapes: &[ShapeOfUnit]) -> bool {
        let mut next =
            Self { presentations: self.presentations.clone(), shapes: self.shapes.clone(), ..Self::default() };
        next.learn_shapes(shapes);
        next.shapes != self.shapes
    }

    /// What hosts are told of presented volumes that are not open.
    pub(super) fn absent(&self) -> BTreeMap<VolumeId, AbsentVolume> {
        let is_presented = |name: &VolumeName| self.presentations.iter().any(|record| record.volume == *name);
        let shapes = self.shapes.iter().filter(|(name, _)| is_presented(name));
        shapes
            .map(|(name, record)| (record.volume_id, AbsentVolume::waiting(name.clone(), record.shape.clone())))
            .collect()
    }

    /// The presented volumes of a pool that is not open, which `why` says.
    pub(crate) fn away_with<'a>(&'a self, pool: &'a Name, why: &'a str) -> impl Iterator<Item = VolumeReport> + 'a {
        let of_pool = self.shapes.iter().filter(move |(name, _)| name.pool() == Some(pool));
        of_pool.map(move |(name, ShapeRecord { volume_id, shape })| {
            let state = (VolumeState::Missing, Some(why.to_owned()));
            VolumeReport::away(name.clone(), *volume_id, shape.size, shape.block_bytes, shape.backend.clone(), state)
        })
    }
}
