//! The groups of an open pool, and one more of them.

use super::{CREATED_BY, GroupState, NewGroup, OpenPool, create, find};
use crate::array::Watch;
use crate::seat::Seat;
use model::{Name, PoolReport, Refusal, Size, Subject, code, event};
use shard::World;
use std::cell::OnceCell;
use std::ops::Index;
use std::rc::Rc;
use volume::Labelling;
use volume::catalog::GROUPS_MAX;

/// The groups of a pool, by their places in its catalog. There may be more of them while the pool is open, and
/// whoever uses one goes on with it. The place of a group that was removed, or that cannot serve, is empty.
pub(super) struct Groups<W: World>(Box<[OnceCell<GroupState<W>>]>);

impl<W: World> Groups<W> {
    /// Those that are there, and their places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &GroupState<W>)> {
        (0..self.0.len()).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// The group at this place, if there is one.
    pub fn get(&self, place: usize) -> Option<&GroupState<W>> {
        self.0.get(place)?.get().filter(|group| !group.removed.get())
    }

    /// The pool has one more group.
    pub fn set(&self, place: usize, group: GroupState<W>) {
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
pub async fn add_group<W: World>(
    seat: Rc<Seat<W>>,
    pool: Name,
    group: NewGroup,
    force: bool,
) -> Result<PoolReport, Refusal> {
    let pool = find(&seat, &pool)?;
    if pool.is_fenced() {
        let message = format!("another node has pool {}", pool.name);
        return Err(Refusal::new(code::POOL_FENCED, message, "add the group there"));
    }
    let before = pool.pool.status().bytes;
    let number = pool.next_place();
    let draft = create::draft(&seat, &group)?;
    let plan = draft.plan();
    plan.admit_disks(force).await.map_err(|error| create::named(&error, std::slice::from_ref(&draft)))?;
    let watch = Watch::new(number, draft.integrity);
    let state = draft.state(Rc::new(draft.array(&seat, &watch).await?));
    let labelling = Labelling { now: seat.world.unix_seconds(), created_by: CREATED_BY.to_owned(), force };
    let added = pool.pool.add_group(plan, state.array.clone(), labelling).await;
    let place = added.map_err(|error| create::named(&error, std::slice::from_ref(&draft)))?;
    assert_eq!(usize::from(place), number, "one group is added at a time");
    pool.take_in(number, state, &watch);
    let gained = Size::new(pool.pool.status().bytes - before);
    let sentence = format!(
        "pool {} has one more group: {} of {} disks, {} more",
        pool.name,
        group.level,
        group.disks.len(),
        gained.iec()
    );
    tracing::info!("{sentence}");
    seat.raise(event::POOL_GREW, Subject::pool(&pool.name), sentence);
    Ok(pool.report())
}

impl<W: World> OpenPool<W> {
    /// The place that the next group gets.
    pub(super) fn next_place(&self) -> usize {
        self.pool.status().groups.len()
    }

    /// The group that was just made is one of the pool's.
    pub(super) fn take_in(self: &Rc<Self>, place: usize, group: GroupState<W>, watch: &Watch<W>) {
        for slot in group.slots.borrow().iter() {
            slot.disk.iter().for_each(|disk| self.guard(disk));
        }
        self.drive(&group);
        self.groups.set(place, group);
        watch.bind(self);
    }
}
