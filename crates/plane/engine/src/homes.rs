//! Where the volumes of open pools have their homes, as the conductor keeps it and front ends read it.

use model::{VolumeId, VolumeName};
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
