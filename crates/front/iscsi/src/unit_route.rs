//! Cached route from a LUN of a session to its unit.

use crate::access::LunEntry;
use crate::iscsi_shard::IscsiShard;
use crate::scsi_unit::ScsiUnit;
use scsi::{PendingDataCounter, PendingDataGuard};
use shard::World;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Route to a unit to which the session's nexus is attached.
pub(crate) struct UnitRoute<W: World> {
    /// Identity and home shard of the unit.
    pub entry: LunEntry,
    /// Commands of the session for the unit that still wait for data.
    pub pending_data: Arc<PendingDataCounter>,
    /// Cached unit, if its home is the session's shard. A weak reference, so that the cache does not keep a closed unit
    /// open.
    unit: Weak<ScsiUnit<W>>,
    /// Change counter of the shard's units at the time of the lookup; `None` forces a new lookup.
    looked_up: Option<u64>,
}

impl<W: World> UnitRoute<W> {
    /// Creates a route to the unit of `entry`, which is looked up at first use.
    pub(crate) fn new(entry: LunEntry) -> Self {
        Self { entry, pending_data: Arc::default(), unit: Weak::new(), looked_up: None }
    }

    /// Redirects the route to the location given in `entry`.
    pub(crate) fn redirect(&mut self, entry: LunEntry) {
        self.entry = entry;
        self.looked_up = None;
    }

    /// Returns the unit, if its home is this shard.
    #[inline]
    pub(crate) fn unit(&mut self, shard: &IscsiShard<W>) -> Option<Rc<ScsiUnit<W>>> {
        // Comparing a counter on every command is cheaper than a lookup in the map of units.
        if self.looked_up != Some(shard.units.changes()) {
            self.look_up(shard);
        }
        self.unit.upgrade()
    }

    #[cold]
    fn look_up(&mut self, shard: &IscsiShard<W>) {
        // Only a unit of this shard is cached; those of other shards are never touched from here.
        let here = shard.unit_at(&self.entry).filter(|_| self.entry.home == shard.index);
        self.unit = here.as_ref().map_or_else(Weak::new, Rc::downgrade);
        self.looked_up = Some(shard.units.changes());
    }

    /// Registers a command that waits for its data.
    pub(crate) fn begin_wait(&self) -> PendingDataGuard {
        self.pending_data.enter()
    }
}
