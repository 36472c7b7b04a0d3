//! Units of one shard.

use super::ScsiUnit;
use model::VolumeId;
use shard::World;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Units whose home is this shard.
pub struct Units<W: World> {
    map: RefCell<BTreeMap<VolumeId, Rc<ScsiUnit<W>>>>,
    /// Stand-ins of presented volumes that are not open.
    stand_ins: RefCell<BTreeMap<VolumeId, Rc<ScsiUnit<W>>>>,
    /// Generation of both maps.
    changes: Cell<u64>,
}

impl<W: World> Default for Units<W> {
    fn default() -> Self {
        Self { map: RefCell::default(), stand_ins: RefCell::default(), changes: Cell::new(0) }
    }
}

impl<W: World> Units<W> {
    /// All units.
    pub fn borrow(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.map.borrow()
    }

    /// All units, for modification. Invalidates all cached lookups.
    pub fn borrow_mut(&self) -> RefMut<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.changes.set(self.changes.get() + 1);
        self.map.borrow_mut()
    }

    /// Stand-ins of volumes that are not open.
    pub fn stand_ins(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.stand_ins.borrow()
    }

    /// Stand-ins, for modification. Invalidates all cached lookups.
    pub fn stand_ins_mut(&self) -> RefMut<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.changes.set(self.changes.get() + 1);
        self.stand_ins.borrow_mut()
    }

    /// Number of modifications. A cached lookup is valid while this is unchanged.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }
}
