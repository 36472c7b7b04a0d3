//! Stand-in units for presented volumes that are not open. A host that addresses one finds the volume that it knows, in
//! the state NOT READY; its retries succeed once the volume is open, without a rescan.
//!
//! Stand-ins are built from the access table, in which the control plane keeps the geometry of each presented volume.
//! All of them are on one shard. A stand-in never answers for blocks, reservations or saved mode parameters, which are
//! unknown while the volume is closed.

use super::logical;
use crate::access::{AccessView, STAND_INS_HOME};
use crate::iscsi_shard::IscsiShard;
use engine::front::FrontUnit;
use engine::unit::Unit;
use model::{Absence, AbsentVolume, VolumeId};
use shard::World;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Creates and removes the stand-ins of this shard, so that they match the presented volumes that are not open in
/// `view`.
pub(crate) fn follow<W: World>(shard: &Rc<IscsiShard<W>>, view: &AccessView) {
    assert_eq!(shard.index, STAND_INS_HOME, "stand-ins are on one shard");
    let absent = view.access.absent.iter().filter_map(|(id, volume)| Some((*id, (volume, view.absence(*id)?))));
    let absent: BTreeMap<VolumeId, (&AbsentVolume, Absence)> = absent.collect();
    if absent.is_empty() && shard.units.stand_ins().is_empty() {
        return;
    }
    // The map is taken out, so that no borrow of it is held while port groups are set below.
    let mut stand_ins = std::mem::take(&mut *shard.units.stand_ins_mut());
    // A stand-in with an obsolete geometry is recreated: hosts must not read a capacity that is no longer true.
    stand_ins.retain(|id, unit| absent.get(id).is_some_and(|(volume, _)| unit.unit.shape() == volume.attributes));
    for (id, (volume, absence)) in absent {
        if !stand_ins.contains_key(&id)
            && let Some(unit) = Unit::absent(id, volume)
        {
            let unit = Rc::new(logical(shard, Rc::new(unit)));
            unit.set_removable(volume.attributes.removable);
            unit.set_write_cache(volume.attributes.volatile_cache);
            shard.set_port_groups(unit.clone());
            stand_ins.insert(id, unit);
        }
        // Set for existing ones as well, because the reason of the absence may have changed.
        if let Some(unit) = stand_ins.get(&id) {
            unit.logical_unit.set_absence(Some(match absence {
                Absence::Waits => scsi::Absence::BecomingReady,
                Absence::NeedsOperator => scsi::Absence::NeedsOperator,
            }));
        }
    }
    *shard.units.stand_ins_mut() = stand_ins;
}
