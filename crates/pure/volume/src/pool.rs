//! A pool: its catalog, its groups, its volumes, and everything that changes them.

mod check;
mod create;
mod dump;
mod families;
mod gate;
mod members;
mod open;
mod snapshots;
mod status;
mod thin;
mod usage;
mod volumes;
mod watch;

pub use create::{CreatePool, GroupPlan, NewDisk};
pub(crate) use families::Families;
pub(crate) use gate::Gate;
pub use status::{GroupStatus, PoolStatus, VolumeStatus};
pub use volumes::VolumePlan;

use crate::error::PoolError;
use crate::store::Store;
use crate::volume::Volume;
use block::BlockDevice;
use std::cell::RefCell;
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
    gates: Vec<Gate<G>>,
    open: RefCell<BTreeMap<Uuid, Weak<Volume<D, G>>>>,
    watch: Watch,
}

impl<D, G> Shared<D, G> {
    /// The gate of the group at `group` in the catalog.
    pub(crate) fn gate(&self, group: u16) -> &Gate<G> {
        &self.gates[usize::from(group)]
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    fn new(store: Store<D>, groups: Vec<G>) -> Self {
        let gates = store.look(|catalog| {
            groups.into_iter().zip(&catalog.groups).map(|(device, record)| Gate::new(device, record)).collect()
        });
        Self { store, gates, open: RefCell::default(), watch: Watch::default() }
    }

    /// Blocks of a slab of each group, in order.
    pub(crate) fn slab_blocks(&self) -> Vec<u32> {
        self.store.look(|catalog| catalog.groups.iter().map(|group| group.slab_blocks).collect())
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

    /// The device of the group at `group` in the catalog.
    #[must_use]
    pub fn group(&self, group: u16) -> Option<&G> {
        self.shared.gates.get(usize::from(group)).map(Gate::device)
    }

    /// The group must be taken for dirty after a crash: its parity may be stale. Volumes do this by
    /// themselves before they write.
    ///
    /// *Durability*: when it returns. *Errors*: `CatalogLost`, `GroupUnknown`.
    pub async fn mark_dirty(&self, group: u16) -> Result<(), PoolError> {
        self.admit_group(group)?;
        self.shared.begin_write(group).await.map(drop)
    }

    /// The group need not be looked at after a crash; false, and nothing changed, when somebody writes to it now.
    ///
    /// What was written before is flushed first. *Durability*: when it returns.
    pub async fn mark_clean(&self, group: u16) -> Result<bool, PoolError> {
        self.admit_group(group)?;
        self.shared.end_writes(group).await
    }

    fn admit_group(&self, group: u16) -> Result<(), PoolError> {
        self.group(group).map(|_| ()).ok_or(PoolError::GroupUnknown(group))
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
