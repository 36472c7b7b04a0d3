//! Where the volumes of open pools have their homes, as the conductor keeps it and front ends read it.

use model::{Refusal, VolumeId, VolumeName, code};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The home of one volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeHome {
    /// The volume's identity.
    pub id: VolumeId,
    /// The shard that its unit is on.
    pub home: usize,
    /// False while it does not serve: hosts do not see it then.
    pub serves: bool,
}

/// The homes of all volumes, changed by the conductor alone.
pub type VolumeHomes = Rc<RefCell<BTreeMap<VolumeName, VolumeHome>>>;

/// The home of the volume `name`.
///
/// *Errors*: `VOLUME_UNKNOWN`.
pub fn home_of(volumes: &VolumeHomes, name: &VolumeName) -> Result<VolumeHome, Refusal> {
    volumes.borrow().get(name).copied().ok_or_else(|| {
        let hint = "`blockyard volume list` shows the volumes";
        Refusal::new(code::VOLUME_UNKNOWN, format!("no volume is called {name}"), hint)
    })
}
