//! Home shards of the volumes of open pools: written by the conductor, read by front ends.

use model::{Refusal, VolumeId, VolumeName, code};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Home shard of one volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeHome {
    /// Identity of the volume.
    pub id: VolumeId,
    /// Index of the shard that has its unit.
    pub home: usize,
    /// False while the volume does not serve; hosts do not see it then.
    pub serves: bool,
}

/// Homes of all volumes. Only the conductor changes them.
pub type VolumeHomes = Rc<RefCell<BTreeMap<VolumeName, VolumeHome>>>;

/// Returns the home of the volume `name`.
///
/// *Errors*: `VOLUME_UNKNOWN`.
pub fn home_of(volumes: &VolumeHomes, name: &VolumeName) -> Result<VolumeHome, Refusal> {
    volumes.borrow().get(name).copied().ok_or_else(|| {
        let hint = "`blockyard volume list` shows the volumes";
        Refusal::new(code::VOLUME_UNKNOWN, format!("volume {name} does not exist"), hint)
    })
}
