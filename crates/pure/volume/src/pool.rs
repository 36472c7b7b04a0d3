//! A pool: its catalog, its groups, its volumes, and everything that changes them.

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
mod status;
mod thin;
mod usage;
mod volumes;
mod watch;

pub use create::{CreatePool, GroupPlan, NewDisk};
pub(crate) use families::Families;
pub(crate) use gate::Gate;
pub use groups::Labelling;
pub use log::WriteLog;
pub(crate) use lost::add as add_holding;
pub use lost::{Holder, Holding, Holdings};
pub use members::{Decayed, Members};
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
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;
use watch::Watch;

/// An open pool over member disks `D` and groups `G`, both with blocks of 4096 bytes. Cheap to clone.
///
/// Every operation is committed when it returns, and a crash at any instant leaves the pool as it was
/// before or as it is after. Operations may run at the same time; they share commits.
pub struct Pool<D, G> {
    shared: Rc<Shared<D, G>>,
    families: Rc<Families<D, G>>,
}

impl<D, G> Clone for Pool<D, G> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), families: self.families.clone() }
    }
}

/// What a pool and its open volumes share.
pub(crate) struct Shared<D, G> {
    pub(crate) store: Store<D>,
    /// One for each group with volumes, by its place; groups are added and never go.
    gates: Box<[OnceCell<Gate<G>>]>,
    /// True while a group is being added or removed.
    regrouping: Cell<bool>,
    open: RefCell<BTreeMap<Uuid, Weak<Volume<D, G>>>>,
    /// What wraps the keys of encrypted volumes.
    key: RefCell<Option<PoolKey>>,
    watch: Watch,
    heartbeats: Heartbeats,
    /// Carries on with what nobody waits for any more.
    pub(crate) spawner: Spawner,
}

impl<D, G> Shared<D, G> {
    /// The gate of the group at `group` in the catalog.
    ///
    /// *Panics*: when no volume can lie there.
    pub(crate) fn gate(&self, group: u16) -> &Gate<G> {
        self.gate_of(group).expect("volumes lie on groups that have slabs")
    }

    /// The gate of a group on which volumes can lie.
    pub(crate) fn gate_of(&self, group: u16) -> Option<&Gate<G>> {
        self.gates.get(usize::from(group)).and_then(OnceCell::get)
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    fn new(store: Store<D>, groups: Vec<G>) -> Self {
        let gates: Box<[OnceCell<Gate<G>>]> = (0..GROUPS_MAX).map(|_| OnceCell::new()).collect();
        store.look(|catalog| {
            let with_slabs = catalog.groups.iter().zip(&gates).filter(|(group, _)| group.role == GroupRole::Data);
            for ((record, gate), device) in with_slabs.zip(groups) {
                let gate = gate.set(Gate::new(device, record));
                assert!(gate.is_ok(), "each gate is set once");
            }
        });
        let (open, key, watch) = (RefCell::default(), RefCell::default(), Watch::default());
        let spawner = store.spawner().clone();
        Self {
            store,
            gates,
            regrouping: Cell::new(false),
            open,
            key,
            watch,
            heartbeats: Heartbeats::default(),
            spawner,
        }
    }

    /// Blocks of a slab of each group, in order.
    pub(crate) fn slab_blocks(&self) -> Vec<u32> {
        self.store.look(|catalog| catalog.groups.iter().map(|group| group.slab_blocks).collect())
    }

    /// How the slabs of a group hold blocks of maps.
    pub(crate) fn map_shape(&self, group: u16) -> MapShape {
        self.store.look(|catalog| MapShape::of(&catalog.groups[usize::from(group)]))
    }

    /// The open volume `id`.
    fn opened(&self, id: Uuid) -> Option<Rc<Volume<D, G>>> {
        self.open.borrow().get(&id).and_then(Weak::upgrade)
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    fn of(store: Store<D>, groups: Vec<G>) -> Self {
        let shared = Rc::new(Shared::new(store, groups));
        Self { families: Rc::new(Families::new(shared.clone())), shared }
    }

    /// Which pool it is.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.shared.store.look(|catalog| catalog.pool)
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> String {
        self.shared.store.look(|catalog| catalog.name.clone())
    }

    /// The device of the group at `group` in the catalog, when volumes can lie there.
    #[must_use]
    pub fn group(&self, group: u16) -> Option<&G> {
        self.shared.gate_of(group).map(Gate::device)
    }

    /// The group need not be looked at after a crash; false, and nothing changed, when somebody writes to it now.
    ///
    /// What was written before is flushed first. Volumes lie on no group for the log, which has sums: nothing makes it dirty.
    /// *Durability*: when it returns.
    pub async fn mark_clean(&self, group: u16) -> Result<bool, PoolError> {
        self.admit_group(group)?;
        match self.shared.gate_of(group) {
            Some(_) => self.shared.end_writes(group).await,
            None => self.shared.store.committed(self.shared.store.latest()).await.map(|()| true),
        }
    }

    fn admit_group(&self, group: u16) -> Result<(), PoolError> {
        let role = self.shared.store.look(|catalog| catalog.groups.get(usize::from(group)).map(|group| group.role));
        let known = role.is_some_and(|role| role != GroupRole::Removed);
        if known { Ok(()) } else { Err(PoolError::GroupUnknown(group)) }
    }
}

#[cfg(test)]
impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Families that are opened from now on are tuned so.
    pub(crate) fn tune(&self, tuning: crate::family::Tuning) {
        self.families.tuning.set(tuning);
    }

    /// The open family of a volume.
    pub(crate) fn open_family(&self, volume: Uuid) -> Option<Rc<crate::family::Family<D, G>>> {
        let family = self.shared.store.look(|catalog| catalog.branch(volume).map(|(family, _)| family.id));
        self.families.opened(family?)
    }
}
