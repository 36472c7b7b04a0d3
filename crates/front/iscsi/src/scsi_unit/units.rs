//! The units of one shard.

use super::ScsiUnit;
use model::VolumeId;
use shard::World;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The units at home on one shard.
pub struct Units<W: World> {
    map: RefCell<BTreeMap<VolumeId, Rc<ScsiUnit<W>>>>,
    /// Those of presented volumes that are not open.
    stand_ins: RefCell<BTreeMap<VolumeId, Rc<ScsiUnit<W>>>>,
    changes: Cell<u64>,
}

impl<W: World> Default for Units<W> {
    fn default() -> Self {
        Self { map: RefCell::default(), stand_ins: RefCell::default(), changes: Cell::new(0) }
    }
}

impl<W: World> Units<W> {
    /// All of them.
    pub fn borrow(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.map.borrow()
    }

    /// All of them, to be changed: whoever knows one looks again.
    pub fn borrow_mut(&self) -> RefMut<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.changes.set(self.changes.get() + 1);
        self.map.borrow_mut()
    }

    /// The stand-ins of volumes that are not open.
    pub fn stand_ins(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.stand_ins.borrow()
    }

    /// The stand-ins, to be changed: whoever knows one looks again.
    pub fn stand_ins_mut(&self) -> RefMut<'_, BTreeMap<VolumeId, Rc<ScsiUnit<W>>>> {
        self.changes.set(self.changes.get() + 1);
        self.stand_ins.borrow_mut()
    }

    /// How often they were changed: a unit that was looked up is known as long as this stays.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }
}
