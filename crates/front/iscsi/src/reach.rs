//! How a session comes from a LUN to its unit: looked up once, and known from then on.

use crate::access::LunEntry;
use crate::iscsi_shard::IscsiShard;
use crate::scsi_unit::ScsiUnit;
use scsi::{Incoming, Waiting};
use shard::World;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// A unit that knows the session's nexus, and the way to it.
pub(crate) struct Reach<W: World> {
    /// Which it is, and where.
    pub entry: LunEntry,
    /// The session's commands for it that wait for data.
    pub incoming: Arc<Incoming>,
    /// The unit, where it has its home on the session's shard. It is not kept open by being known.
    unit: Weak<ScsiUnit<W>>,
    /// The count of changes of the shard's units when it was looked up.
    looked_up: Option<u64>,
}

impl<W: World> Reach<W> {
    /// The unit of `entry`.
    pub(crate) fn new(entry: LunEntry) -> Self {
        Self { entry, incoming: Arc::default(), unit: Weak::new(), looked_up: None }
    }

    /// The unit is where `entry` says from now on.
    pub(crate) fn lead_to(&mut self, entry: LunEntry) {
        self.entry = entry;
        self.looked_up = None;
    }

    /// The unit, while it is at home on this shard.
    #[inline]
    pub(crate) fn unit(&mut self, shard: &IscsiShard<W>) -> Option<Rc<ScsiUnit<W>>> {
        if self.looked_up != Some(shard.units.changes()) {
            self.look_up(shard);
        }
        self.unit.upgrade()
    }

    #[cold]
    fn look_up(&mut self, shard: &IscsiShard<W>) {
        let here = shard.unit_at(&self.entry).filter(|_| self.entry.home == shard.index);
        self.unit = here.as_ref().map_or_else(Weak::new, Rc::downgrade);
        self.looked_up = Some(shard.units.changes());
    }

    /// A command waits for its data from now on.
    pub(crate) fn enrol(&self) -> Waiting {
        self.incoming.enter()
    }
}
