//! Groups of an open pool, and the addition of a group.

use super::overwrite::Overwriting;
use super::{CREATED_BY, GroupState, NewGroup, OpenPool, create, find};
use crate::array::{Disk, Group, GroupListener};
use crate::loss_tracking::LossTrackingArray;
use crate::shard_context::ShardContext;
use model::{Name, PoolReport, Refusal, Size, Subject, event};
use shard::World;
use std::cell::OnceCell;
use std::ops::Index;
use std::rc::Rc;
use volume::catalog::GROUPS_MAX;
use volume::{GroupPlan, LabelParams, PoolError};

/// Groups of a pool by their number in its catalog. Groups can be added while the pool is open, and a reference to one
/// stays valid. The entry of a removed group, or of one that cannot serve, is empty.
pub(super) struct Groups<W: World>(Box<[OnceCell<GroupState<W>>]>);

impl<W: World> Groups<W> {
    /// Iterates over the present groups with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &GroupState<W>)> {
        (0..self.0.len()).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// Returns the group with this number, if there is one.
    pub(super) fn get(&self, place: usize) -> Option<&GroupState<W>> {
        self.0.get(place)?.get().filter(|group| !group.removed.get())
    }

    /// Adds a group.
    pub(super) fn set(&self, place: usize, group: GroupState<W>) {
        // Set once instead of a growing vector: references to groups live across awaits.
        let set = self.0[place].set(group);
        assert!(set.is_ok(), "a place is used once while a pool is open");
    }
}

impl<W: World> FromIterator<(usize, GroupState<W>)> for Groups<W> {
    fn from_iter<I: IntoIterator<Item = (usize, GroupState<W>)>>(groups: I) -> Self {
        // All places exist from the start, so that references stay valid when a group is added.
        let all = Self((0..GROUPS_MAX).map(|_| OnceCell::new()).collect());
        groups.into_iter().for_each(|(place, group)| all.set(place, group));
        all
    }
}

impl<W: World> Index<usize> for Groups<W> {
    type Output = GroupState<W>;

    fn index(&self, group: usize) -> &GroupState<W> {
        self.0[group].get().expect("groups are asked for by their places")
    }
}

/// Adds a group of these disks to the pool. Its volumes may use it from then on.
///
/// *Errors*: as for creating a pool, with nothing changed. *Durability*: when it returns.
pub(crate) async fn add_group<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    group: NewGroup,
    force: bool,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.admit_own("add the group there")?;
    let before = pool.pool.status().bytes;
    let add = async |plan, array, labelling| pool.pool.add_group(plan, array, labelling).await;
    pool.make_group(&group, force, add).await?;
    let after = pool.pool.status().bytes;
    assert!(after >= before, "a pool with one more group is not smaller");
    let gained = Size::new(after - before);
    let sentence = format!(
        "pool {} expanded by a group: {} of {} disks, {} more",
        pool.name,
        group.level,
        group.disks.len(),
        gained.iec()
    );
    tracing::info!("{sentence}");
    shard.raise(event::POOL_GREW, Subject::pool(&pool.name), sentence);
    Ok(pool.report())
}

impl<W: World> OpenPool<W> {
    /// Creates a group and lets `add` enter it into the catalog. Returns its number.
    ///
    /// *Errors*: as for creating a pool, with nothing changed.
    pub(super) async fn make_group(
        self: &Rc<Self>,
        group: &NewGroup,
        force: bool,
        add: impl AsyncFnOnce(GroupPlan<Disk<W>>, Group<W>, LabelParams) -> Result<u16, PoolError>,
    ) -> Result<usize, Refusal> {
        let shard = &self.shard;
        let draft = create::draft(shard, group).await?;
        let named = |error| create::named(&error, std::slice::from_ref(&draft));
        // Even with `force`, disks to which a living node writes are not overwritten.
        if force {
            Overwriting { disks: &draft.disks(), pool: Some(self.pool.id()), node: None }.admit(shard).await?;
        }
        // Admitted before the array is formatted, which is the first write to the disks.
        let plan = draft.plan();
        plan.admit_disks(force).await.map_err(named)?;
        // The listener needs the number before the catalog gives it; the assertion below compares the two.
        let place = self.pool.status().groups.len();
        let watch = GroupListener::new(place, draft.integrity);
        let state = draft.state(Rc::new(LossTrackingArray::new(draft.array(shard, &watch).await?)));
        let labelling = LabelParams { now: shard.world.unix_seconds(), created_by: CREATED_BY.to_owned(), force };
        let added = add(plan, state.array.clone(), labelling).await.map_err(named)?;
        assert_eq!(usize::from(added), place, "one group is added at a time");
        self.take_in(place, state, &watch);
        Ok(place)
    }

    /// Takes the new group into service.
    pub(super) fn take_in(self: &Rc<Self>, place: usize, group: GroupState<W>, watch: &GroupListener<W>) {
        assert!(!group.slots.borrow().is_empty(), "a group has members");
        // Disks must be behind the fence before the array writes to them.
        for slot in group.slots.borrow().iter() {
            slot.disk.iter().for_each(|disk| self.ownership_guard.cover(disk));
        }
        self.drive(&group);
        // Findings and failures that came before are delivered when the listener is bound.
        self.groups.set(place, group);
        // Bound last: a finding looks its group up by the number.
        watch.bind(self);
    }
}
