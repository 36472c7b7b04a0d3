//! How a session comes from a LUN to its unit: looked up once, and known from then on.

use crate::access::LunEntry;
use crate::seat::Seat;
use crate::unit::Unit;
use model::VolumeId;
use scsi::{Incoming, Waiting};
use shard::World;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The units at home on one shard.
pub struct Units<W: World> {
    map: RefCell<BTreeMap<VolumeId, Rc<Unit<W>>>>,
    changes: Cell<u64>,
}

impl<W: World> Default for Units<W> {
    fn default() -> Self {
        Self { map: RefCell::default(), changes: Cell::new(0) }
    }
}

impl<W: World> Units<W> {
    /// All of them.
    pub fn borrow(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<Unit<W>>>> {
        self.map.borrow()
    }

    /// All of them, to be changed: whoever knows one looks again.
    pub fn borrow_mut(&self) -> RefMut<'_, BTreeMap<VolumeId, Rc<Unit<W>>>> {
        self.changes.set(self.changes.get() + 1);
        self.map.borrow_mut()
    }
}

/// A unit that knows the session's nexus, and the way to it.
pub struct Reach<W: World> {
    /// Which it is, and where.
    pub entry: LunEntry,
    /// The session's commands for it that wait for data.
    pub incoming: Arc<Incoming>,
    /// The unit, where it has its home on the session's shard. It is not kept open by being known.
    unit: Weak<Unit<W>>,
    /// The count of changes of the shard's units when it was looked up.
    looked_up: Option<u64>,
}

impl<W: World> Reach<W> {
    /// The unit of `entry`.
    pub fn new(entry: LunEntry) -> Self {
        Self { entry, incoming: Arc::default(), unit: Weak::new(), looked_up: None }
    }

    /// The unit is where `entry` says from now on.
    pub fn lead_to(&mut self, entry: LunEntry) {
        self.entry = entry;
        self.looked_up = None;
    }

    /// The unit, while it is at home on this shard.
    #[inline]
    pub fn unit(&mut self, seat: &Seat<W>) -> Option<Rc<Unit<W>>> {
        if self.looked_up != Some(seat.units.changes.get()) {
            self.look_up(seat);
        }
        self.unit.upgrade()
    }

    #[cold]
    fn look_up(&mut self, seat: &Seat<W>) {
        let here = seat.unit(self.entry.unit).filter(|_| self.entry.home == seat.index);
        self.unit = here.as_ref().map_or_else(Weak::new, Rc::downgrade);
        self.looked_up = Some(seat.units.changes.get());
    }

    /// A command waits for its data from now on.
    pub fn enrol(&self) -> Waiting {
        self.incoming.enter()
    }
}
