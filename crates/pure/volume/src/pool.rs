//! Open pool: its catalog, groups and volumes, and all operations that change them.
//!
//! One shard owns a pool (`docs/adr/0004-a-pool-has-one-home-shard.md`), so state is kept in cells without
//! locks.

mod announce;
mod check;
mod copies;
mod create;
mod dump;
mod families;
mod gate;
mod groups;
mod keys;
mod log;
mod lost;
mod members;
mod open;
mod owner;
mod reservations;
mod scrub;
mod snapshots;
mod space_monitor;
mod status;
mod thin;
mod usage;
mod volumes;

pub use create::{CreatePool, GroupPlan, NewDisk};
pub(crate) use families::Families;
pub(crate) use gate::WriteGate;
pub use groups::LabelParams;
pub use log::WriteLog;
pub(crate) use lost::add as add_block_use;
pub use lost::{BlockUse, BlockUser, BlockUses};
pub use members::{DamagedMetadata, Members};
pub use owner::Ownership;
pub use status::{GroupStatus, PoolSpace, PoolStatus, VolumeStatus};
pub use volumes::VolumePlan;

use crate::catalog::{GROUPS_MAX, GroupRole, MapShape};
use crate::crypt::PoolKey;
use crate::error::PoolError;
use crate::store::Store;
use crate::volume::Volume;
use block::BlockDevice;
use owner::Heartbeats;
use shard::Spawner;
use space_monitor::SpaceMonitor;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Open pool over member disks `D` and groups `G`, both with blocks of 4096 bytes. Clones share one pool.
///
/// Every operation is committed when it returns; a crash at any instant leaves the pool as before or as after
/// it. Operations may run concurrently; they share commits.
pub struct Pool<D, G> {
    shared: Rc<Shared<D, G>>,
    families: Rc<Families<D, G>>,
}

impl<D, G> Clone for Pool<D, G> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), families: self.families.clone() }
    }
}

/// State shared by a pool and its open volumes.
pub(crate) struct Shared<D, G> {
    pub(crate) store: Store<D>,
    /// Write gates by group index, set for groups with slabs; groups are added but never removed from the
    /// array.
    gates: Box<[OnceCell<WriteGate<G>>]>,
    /// True while a group is being added or removed.
    membership_changing: Cell<bool>,
    // Weak: an open volume lives as long as its users, and the pool only shares it.
    open: RefCell<BTreeMap<Uuid, Weak<Volume<D, G>>>>,
    /// Pool key, which wraps the data keys of encrypted volumes.
    key: RefCell<Option<PoolKey>>,
    space_monitor: SpaceMonitor,
    heartbeats: Heartbeats,
    /// Spawner for work that has lost all waiters.
    pub(crate) spawner: Spawner,
}

impl<D, G> Shared<D, G> {
    /// Write gate of the group at index `group`.
    ///
    /// *Panics*: when the group cannot hold volumes.
    pub(crate) fn gate(&self, group: u16) -> &WriteGate<G> {
        self.gate_of(group).expect("volumes lie on groups that have slabs")
    }

    /// Write gate of a group; none where it cannot hold volumes.
    pub(crate) fn gate_of(&self, group: u16) -> Option<&WriteGate<G>> {
        self.gates.get(usize::from(group)).and_then(OnceCell::get)
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    fn new(store: Store<D>, groups: Vec<G>) -> Self {
        // The slice has its full length from the start: a group that is added later sets its cell, and
        // references to gates stay valid.
        let gates: Box<[OnceCell<WriteGate<G>>]> = (0..GROUPS_MAX).map(|_| OnceCell::new()).collect();
        store.with_catalog(|catalog| {
            // Only data groups have a device here; a log group is served by the owner of the log.
            let with_slabs = catalog.groups.iter().zip(&gates).filter(|(group, _)| group.role == GroupRole::Data);
            for ((record, gate), device) in with_slabs.zip(groups) {
                let gate = gate.set(WriteGate::new(device, record));
                assert!(gate.is_ok(), "each gate is set once");
            }
        });
        let (open, key, watch) = (RefCell::default(), RefCell::default(), SpaceMonitor::default());
        let spawner = store.spawner().clone();
        Self {
            store,
            gates,
            membership_changing: Cell::new(false),
            open,
            key,
            space_monitor: watch,
            heartbeats: Heartbeats::default(),
            spawner,
        }
    }

    /// Slab size of each group in blocks, in catalog order.
    pub(crate) fn slab_blocks(&self) -> Vec<u32> {
        self.store.with_catalog(|catalog| catalog.groups.iter().map(|group| group.slab_blocks).collect())
    }

    /// Placement of map blocks in the slabs of a group.
    pub(crate) fn map_shape(&self, group: u16) -> MapShape {
        self.store.with_catalog(|catalog| MapShape::of(&catalog.groups[usize::from(group)]))
    }

    /// Open volume `id`, if any.
    fn opened(&self, id: Uuid) -> Option<Rc<Volume<D, G>>> {
        self.open.borrow().get(&id).and_then(Weak::upgrade)
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    fn of(store: Store<D>, groups: Vec<G>) -> Self {
        let shared = Rc::new(Shared::new(store, groups));
        Self { families: Rc::new(Families::new(shared.clone())), shared }
    }

    /// UUID of the pool.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.shared.store.with_catalog(|catalog| catalog.pool)
    }

    /// Name of the pool.
    #[must_use]
    pub fn name(&self) -> String {
        self.shared.store.with_catalog(|catalog| catalog.name.clone())
    }

    /// Device of the group at index `group`, if it can hold volumes.
    #[must_use]
    pub fn group(&self, group: u16) -> Option<&G> {
        self.shared.gate_of(group).map(WriteGate::device)
    }

    /// Records that the group needs no resync after a crash; returns false, without a change, while a write to
    /// it is in flight.
    ///
    /// Flushes earlier writes first. A log group keeps checksums and holds no volumes, so nothing marks it
    /// dirty. *Durability*: when it returns.
    pub async fn mark_clean(&self, group: u16) -> Result<bool, PoolError> {
        self.admit_group(group)?;
        match self.shared.gate_of(group) {
            Some(_) => self.shared.mark_clean_if_idle(group).await,
            // A log group has no clean flag to change; the call still makes earlier changes durable.
            None => self.shared.store.committed(self.shared.store.latest()).await.map(|()| true),
        }
    }

    fn admit_group(&self, group: u16) -> Result<(), PoolError> {
        let role =
            self.shared.store.with_catalog(|catalog| catalog.groups.get(usize::from(group)).map(|group| group.role));
        // A removed group keeps its index, but nothing can be done with it.
        let known = role.is_some_and(|role| role != GroupRole::Removed);
        if known { Ok(()) } else { Err(PoolError::GroupUnknown(group)) }
    }
}

#[cfg(test)]
impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Sets the tuning of families opened from now on.
    pub(crate) fn tune(&self, tuning: crate::family::Tuning) {
        self.families.tuning.set(tuning);
    }

    /// Open family of a volume.
    pub(crate) fn open_family(&self, volume: Uuid) -> Option<Rc<crate::family::Family<D, G>>> {
        let family = self.shared.store.with_catalog(|catalog| catalog.branch(volume).map(|(family, _)| family.id));
        self.families.opened(family?)
    }
}
