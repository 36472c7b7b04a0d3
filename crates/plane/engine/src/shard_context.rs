//! One shard of the engine: what lives on it, and how the other shards speak to it.

use crate::events::Events;
use crate::front::FrontUnit;
use crate::limits::Limits;
use crate::memberships::Memberships;
use crate::overlay::Room;
use crate::peers::{Job, Peers, Resident};
use crate::pool::OpenPool;
use crate::remote::{Logins, RemoteDisks};
use crate::unit::{self, Unit};
use block::{Extent, IoError, IoErrorKind};
use cache::CacheShard;
use model::{EventCode, Name, Raised, Subject, Timestamp, VolumeId};
use shard::mailbox::Receiver;
use shard::{RunClock, World};
use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

/// What every shard is given before its thread starts.
pub struct Ticket<W: World> {
    /// Which shard this is; 0 is the conductor.
    pub index: usize,
    /// The bounds of everything.
    pub limits: Limits,
    events: Events,
    remote_logins: Logins,
    overlay_room: Room,
    memberships: Memberships,
    inbox: Receiver<Job<ShardContext<W>>>,
    peers: Peers<Job<ShardContext<W>>>,
}

/// The tickets of all shards of one daemon.
#[must_use]
pub fn tickets<W: World>(limits: Limits) -> Vec<Ticket<W>> {
    assert!(limits.shards > 0, "an engine has a shard");
    let events = Events::new(limits.events_max);
    let remote_logins = Logins::default();
    let overlay_room = Room::new(limits.read_only_bytes_max);
    let memberships = Memberships::default();
    let (peers, inboxes) = Peers::new(limits.shards);
    let ticket = |(index, inbox)| Ticket {
        index,
        limits,
        events: events.clone(),
        remote_logins: remote_logins.clone(),
        overlay_room: overlay_room.clone(),
        memberships: memberships.clone(),
        inbox,
        peers: peers.clone(),
    };
    assert_eq!(inboxes.len(), limits.shards, "each shard has its inbox");
    inboxes.into_iter().enumerate().map(ticket).collect()
}

/// One shard: its world, and what has its home there. Never leaves its thread.
pub struct ShardContext<W: World> {
    /// The outside.
    pub world: W,
    /// Which shard this is; 0 is the conductor.
    pub index: usize,
    /// The bounds of everything.
    pub limits: Limits,
    /// The pools at home here.
    pub pools: RefCell<BTreeMap<Name, Rc<OpenPool<W>>>>,
    /// What has happened, on all shards.
    pub events: Events,
    /// What pools that may not be written keep in memory, on all shards.
    pub overlay_room: Room,
    /// Which members of pools are current, on all shards.
    pub memberships: Memberships,
    /// What the volumes of pools at home here share of memory, and of the way below.
    pub cache: CacheShard<W>,
    /// The disks of other arrays that are open here.
    pub remotes: RemoteDisks<W>,
    units: RefCell<BTreeMap<VolumeId, Rc<Unit<W>>>>,
    fronts: RefCell<Vec<Rc<dyn FrontShard<W>>>>,
    peers: Peers<Job<Self>>,
    /// What the deadlines of disks count on; advanced while a disk is open.
    run_clock: RunClock,
    is_clock_running: Rc<Cell<bool>>,
}

/// A front end on one shard.
pub trait FrontShard<W: World> {
    /// True when it can serve a unit for which this was kept ([`Unit::keep_host_state`]).
    fn understands(&self, host_state: &[u8]) -> bool;

    /// Serves the unit from now on. One that was [withdrawn](Self::withdraw) and is still held is served as before.
    fn serve(&self, unit: &Rc<Unit<W>>) -> Rc<dyn FrontUnit>;

    /// Hosts do not reach the unit any more. Its face is given back, so that the caller can end what it has under way.
    fn withdraw(&self, unit: VolumeId) -> Option<Rc<dyn FrontUnit>>;
}

/// A unit that hosts do not reach any more, with what its front ends made of it.
pub struct Withdrawn<W: World> {
    /// The unit.
    pub unit: Rc<Unit<W>>,
    /// Held so that what they have under way can be ended.
    _faces: Vec<Rc<dyn FrontUnit>>,
}

impl<W: World> Resident<W> for ShardContext<W> {
    fn world(&self) -> &W {
        &self.world
    }
}

impl<W: World> ShardContext<W> {
    /// Starts the shard of `ticket` in `world`; it does what other shards ask from now on.
    pub fn take(world: W, ticket: Ticket<W>) -> Rc<Self> {
        assert!(ticket.index < ticket.limits.shards, "a ticket is for one of the shards");
        block::pool::set_held_bytes_max(ticket.limits.pooled_bytes_per_shard);
        let shard = Rc::new(Self {
            world: world.clone(),
            index: ticket.index,
            limits: ticket.limits,
            units: RefCell::default(),
            fronts: RefCell::default(),
            pools: RefCell::default(),
            cache: unit::cache_of(&world, &ticket.limits, &ticket.events),
            remotes: RemoteDisks::new(world.clone(), ticket.events.clone(), ticket.remote_logins),
            events: ticket.events,
            overlay_room: ticket.overlay_room,
            memberships: ticket.memberships,
            peers: ticket.peers,
            run_clock: RunClock::default(),
            is_clock_running: Rc::default(),
        });
        let here = shard.clone();
        world.spawn(async move {
            while let Some(job) = ticket.inbox.receive().await {
                job(here.clone());
            }
        });
        shard
    }

    /// The time in which this shard ran, for a disk that is opened; it is advanced as long as somebody holds it.
    pub fn run_clock(&self) -> RunClock {
        if !self.is_clock_running.replace(true) {
            let (world, clock, is_running) =
                (self.world.clone(), self.run_clock.clone(), self.is_clock_running.clone());
            self.world.spawn(async move {
                // The shard's own and this one are always there.
                while clock.holders() > 2 {
                    clock.step(&world).await;
                }
                is_running.set(false);
            });
        }
        self.run_clock.clone()
    }

    /// Drops whatever is open as it is, as when the process ends. For simulations, whose process does not.
    pub fn abandon(&self) {
        self.withdraw_where(|_| true);
        self.fronts.take();
        self.pools.take().into_values().for_each(|pool| pool.abandon());
    }

    /// Runs `work` on the shard `home` and returns what it gives; `None` when that shard has stopped.
    pub async fn call<R, F>(&self, home: usize, work: impl FnOnce(Rc<Self>) -> F + Send + 'static) -> Option<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.peers.call(home, work).await
    }

    /// Raises an event now; control hears of it.
    pub fn raise(&self, code: EventCode, subject: Subject, sentence: impl Into<String>) {
        let now = Timestamp::from_unix(self.world.unix_seconds());
        self.events.raise(Raised::new(now, code, subject, sentence));
    }

    /// The unit `id`, while it has its home here.
    pub fn unit(&self, id: VolumeId) -> Option<Rc<Unit<W>>> {
        self.units.borrow().get(&id).cloned()
    }

    /// True when somebody besides its hosts needs what the unit holds: a copy of it, a snapshot, a clone.
    pub fn is_content_needed(&self, unit: &Unit<W>) -> bool {
        unit.is_spared() || self.pool_of(unit).is_some_and(|pool| pool.shares_content_of(unit.id))
    }

    /// Nobody can read any more what the unit, which is encrypted, holds.
    ///
    /// *Durability*: when it returns. *Errors*: its pool is not open, or takes no change.
    pub async fn replace_key(&self, unit: &Unit<W>) -> Result<(), IoError> {
        let pool = self.pool_of(unit).ok_or(IoError::new(IoErrorKind::Gone, Extent::default()))?;
        pool.replace_key(unit).await
    }

    fn pool_of(&self, unit: &Unit<W>) -> Option<Rc<OpenPool<W>>> {
        unit.name.pool().and_then(|name| self.pools.borrow().get(name).cloned())
    }

    /// The units at home here.
    pub fn units(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<Unit<W>>>> {
        self.units.borrow()
    }

    /// Queues the commands of volumes below their caches while some volume has a guarantee or another priority.
    pub fn share_out_the_line(&self) {
        let plain = model::VolumePolicy::default().priority;
        let units = self.units.borrow();
        let mut policies = units.values().map(|unit| unit.policy());
        let competes = policies.any(|policy| policy.guarantee_iops.is_some() || policy.priority != plain);
        self.cache.scheduler.set_depth(if competes { self.limits.line_depth } else { 0 });
    }

    /// Adds a front end: every unit that comes to this shard from now on is served through it.
    pub fn add_front(&self, front: Rc<dyn FrontShard<W>>) {
        assert!(self.units.borrow().is_empty(), "front ends come before the first unit");
        self.fronts.borrow_mut().push(front);
    }

    /// True when every front end can serve a unit for which this was kept.
    pub fn understands(&self, host_state: &[u8]) -> bool {
        self.fronts.borrow().iter().all(|front| front.understands(host_state))
    }

    /// Serves the unit from now on.
    pub fn serve(&self, unit: Rc<Unit<W>>) {
        unit.set_faces(self.fronts.borrow().iter().map(|front| Rc::downgrade(&front.serve(&unit))).collect());
        let before = self.units.borrow_mut().insert(unit.id, unit);
        assert!(before.is_none(), "a volume has one unit");
    }

    /// Hosts do not reach the unit `id` any more; `None` where there is none.
    pub fn withdraw(&self, id: VolumeId) -> Option<Withdrawn<W>> {
        let unit = self.units.borrow_mut().remove(&id)?;
        let faces = self.fronts.borrow().iter().filter_map(|front| front.withdraw(id)).collect();
        Some(Withdrawn { unit, _faces: faces })
    }

    /// Hosts do not reach the units any more that `which` is true of.
    pub fn withdraw_where(&self, which: impl Fn(&Unit<W>) -> bool) {
        let ids: Vec<VolumeId> = self.units.borrow().values().filter(|unit| which(unit)).map(|unit| unit.id).collect();
        ids.into_iter().for_each(|id| drop(self.withdraw(id)));
    }
}
