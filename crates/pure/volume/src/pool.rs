//! A pool: its catalog, its groups, its volumes, and everything that changes them.

mod create;
mod families;
mod gate;
mod members;
mod open;
mod status;
mod usage;
mod volumes;

pub use create::{CreatePool, GroupPlan, NewDisk};
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

/// An open pool over member disks `D` and groups `G`, both with blocks of 4096 bytes. Cheap to clone.
///
/// Every operation is committed when it returns, and a crash at any instant leaves the pool as it was
/// before or as it is after. Operations may run at the same time; they share commits.
pub struct Pool<D, G> {
    shared: Rc<Shared<D, G>>,
}

impl<D, G> Clone for Pool<D, G> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// What a pool and its open volumes share.
pub(crate) struct Shared<D, G> {
    pub(crate) store: Store<D>,
    gates: Vec<Gate<G>>,
    open: RefCell<BTreeMap<Uuid, Weak<Volume<D, G>>>>,
}

impl<D, G> Shared<D, G> {
    /// The gate of the group at `group` in the catalog.
    pub(crate) fn gate(&self, group: u16) -> &Gate<G> {
        &self.gates[usize::from(group)]
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    fn new(store: Store<D>, groups: Vec<G>) -> Self {
        let clean: Vec<bool> = store.look(|catalog| catalog.groups.iter().map(|group| group.clean).collect());
        let gates = groups.into_iter().zip(clean).map(|(device, clean)| Gate::new(device, clean)).collect();
        Self { store, gates, open: RefCell::default() }
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

impl<D: BlockDevice + 'static, G: BlockDevice> Pool<D, G> {
    fn of(store: Store<D>, groups: Vec<G>) -> Self {
        Self { shared: Rc::new(Shared::new(store, groups)) }
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
