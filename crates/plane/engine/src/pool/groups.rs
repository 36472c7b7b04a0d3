//! The groups of an open pool, and one more of them.

use super::overwrite::Overwriting;
use super::{CREATED_BY, GroupState, NewGroup, OpenPool, create, find};
use crate::array::{Disk, Group, Watch};
use crate::guarded::Guarded;
use crate::shard_context::ShardContext;
use model::{Name, PoolReport, Refusal, Size, Subject, event};
use shard::World;
use std::cell::OnceCell;
use std::ops::Index;
use std::rc::Rc;
use volume::catalog::GROUPS_MAX;
use volume::{GroupPlan, Labelling, PoolError};

/// The groups of a pool, by their places in its catalog. There may be more of them while the pool is open, and
/// whoever uses one goes on with it. The place of a group that was removed, or that cannot serve, is empty.
pub(super) struct Groups<W: World>(Box<[OnceCell<GroupState<W>>]>);

impl<W: World> Groups<W> {
    /// Those that are there, and their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &GroupState<W>)> {
        (0..self.0.len()).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// The group at this place, if there is one.
    pub(super) fn get(&self, place: usize) -> Option<&GroupState<W>> {
        self.0.get(place)?.get().filter(|group| !group.removed.get())
    }

    /// The pool has one more group.
    pub(super) fn set(&self, place: usize, group: GroupState<W>) {
        let set = self.0[place].set(group);
        assert!(set.is_ok(), "a place is used once while a pool is open");
    }
}

impl<W: World> FromIterator<(usize, GroupState<W>)> for Groups<W> {
    fn from_iter<I: IntoIterator<Item = (usize, GroupState<W>)>>(groups: I) -> Self {
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

/// The pool has one more group of these disks, and its volumes may lie on it.
///
/// *Errors*: as of making a pool, with nothing changed. *Durability*: when it returns.
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
        "pool {} has one more group: {} of {} disks, {} more",
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
    /// The pool has one more group, which `add` has put into its catalog; at which place.
    ///
    /// *Errors*: as of making a pool, with nothing changed.
    pub(super) async fn make_group(
        self: &Rc<Self>,
        group: &NewGroup,
        force: bool,
        add: impl AsyncFnOnce(GroupPlan<Disk<W>>, Group<W>, Labelling) -> Result<u16, PoolError>,
    ) -> Result<usize, Refusal> {
        let shard = &self.shard;
        let draft = create::draft(shard, group).await?;
        let named = |error| create::named(&error, std::slice::from_ref(&draft));
        if force {
            Overwriting { disks: &draft.disks(), pool: Some(self.pool.id()), node: None }.admit(shard).await?;
        }
        let plan = draft.plan();
        plan.admit_disks(force).await.map_err(named)?;
        let place = self.pool.status().groups.len();
        let watch = Watch::new(place, draft.integrity);
        let state = draft.state(Rc::new(Guarded::new(draft.array(shard, &watch).await?)));
        let labelling = Labelling { now: shard.world.unix_seconds(), created_by: CREATED_BY.to_owned(), force };
        let added = add(plan, state.array.clone(), labelling).await.map_err(named)?;
        assert_eq!(usize::from(added), place, "one group is added at a time");
        self.take_in(place, state, &watch);
        Ok(place)
    }

    /// The group that was just made is one of the pool's.
    pub(super) fn take_in(self: &Rc<Self>, place: usize, group: GroupState<W>, watch: &Watch<W>) {
        assert!(!group.slots.borrow().is_empty(), "a group has members");
        for slot in group.slots.borrow().iter() {
            slot.disk.iter().for_each(|disk| self.guarding.cover(disk));
        }
        self.drive(&group);
        self.groups.set(place, group);
        watch.bind(self);
    }
}
