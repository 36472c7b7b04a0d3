//! The groups of an open pool, and one more of them.

use super::{CREATED_BY, GroupState, NewGroup, create, find};
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
/// whoever uses one goes on with it.
pub(super) struct Groups<W: World>(Box<[OnceCell<GroupState<W>>]>);

impl<W: World> Groups<W> {
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    pub fn get(&self, group: usize) -> Option<&GroupState<W>> {
        self.0.get(group)?.get()
    }

    pub fn iter(&self) -> impl Iterator<Item = &GroupState<W>> {
        self.0.iter().map_while(OnceCell::get)
    }

    /// The pool has one more group.
    fn push(&self, group: GroupState<W>) {
        let place = self.0.iter().find(|place| place.get().is_none());
        let set = place.expect("the catalog has room for no more than this").set(group);
        assert!(set.is_ok(), "the place was free");
    }
}

impl<W: World> From<Vec<GroupState<W>>> for Groups<W> {
    fn from(groups: Vec<GroupState<W>>) -> Self {
        let all = Self((0..GROUPS_MAX).map(|_| OnceCell::new()).collect());
        groups.into_iter().for_each(|group| all.push(group));
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
    let number = pool.groups.len();
    let draft = create::draft(&seat, &group)?;
    let plan = draft.plan();
    plan.admit_disks(force).await.map_err(|error| create::named(&error, std::slice::from_ref(&draft)))?;
    let watch = Watch::new(number, draft.integrity);
    let state = draft.state(Rc::new(draft.array(&seat, &watch).await?));
    let labelling = Labelling { now: seat.world.unix_seconds(), created_by: CREATED_BY.to_owned(), force };
    let added = pool.pool.add_group(plan, state.array.clone(), labelling).await;
    let place = added.map_err(|error| create::named(&error, std::slice::from_ref(&draft)))?;
    assert_eq!(usize::from(place), number, "one group is added at a time");
    for slot in state.slots.borrow().iter() {
        slot.disk.iter().for_each(|disk| pool.guard(disk));
    }
    pool.drive(&state);
    pool.groups.push(state);
    watch.bind(&pool);
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
