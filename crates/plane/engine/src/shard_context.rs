//! Context of one shard of the engine: the pools and units at home on it, and calls to the other shards.
//!
//! Created once per thread by the daemon, the simulator or a test, and used by the conductor, by pools and by front
//! ends. A context never leaves its thread; other shards reach it only by messages.

use crate::events::Events;
use crate::front::FrontUnit;
use crate::limits::Limits;
use crate::memberships::Memberships;
use crate::overlay::OverlayBudget;
use crate::peers::{Job, Peers, ShardState};
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

/// Everything that a shard is given before its thread starts.
pub struct ShardSeed<W: World> {
    /// Index of the shard; shard 0 is the conductor.
    pub index: usize,
    /// Bounds of the engine.
    pub limits: Limits,
    events: Events,
    remote_logins: Logins,
    overlay_room: OverlayBudget,
    memberships: Memberships,
    inbox: Receiver<Job<ShardContext<W>>>,
    peers: Peers<Job<ShardContext<W>>>,
}

/// Creates the seeds of all shards of one daemon.
#[must_use]
pub fn shard_seeds<W: World>(limits: Limits) -> Vec<ShardSeed<W>> {
    assert!(limits.shards > 0, "an engine has a shard");
    let events = Events::new(limits.events_max);
    let remote_logins = Logins::default();
    let overlay_room = OverlayBudget::new(limits.read_only_bytes_max);
    let memberships = Memberships::default();
    let (peers, inboxes) = Peers::new(limits.shards);
    let ticket = |(index, inbox)| ShardSeed {
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

/// Context of one shard: its world, and the pools and units that have their home there. Never leaves its thread.
pub struct ShardContext<W: World> {
    /// Clock, disks and sockets of the shard.
    pub world: W,
    /// Index of the shard; shard 0 is the conductor.
    pub index: usize,
    /// Bounds of the engine.
    pub limits: Limits,
    /// Pools at home on this shard, by name.
    pub pools: RefCell<BTreeMap<Name, Rc<OpenPool<W>>>>,
    /// Event queue of all shards.
    pub events: Events,
    /// Memory that all read-only pools share for what recovery would write, on all shards.
    pub overlay_room: OverlayBudget,
    /// Current members of pools as the node remembers them, on all shards.
    pub memberships: Memberships,
    /// Read cache, write memory and scheduler that the volumes at home here share.
    pub cache: CacheShard<W>,
    /// Remote disks (iSCSI) that are open on this shard.
    pub remotes: RemoteDisks<W>,
    units: RefCell<BTreeMap<VolumeId, Rc<Unit<W>>>>,
    fronts: RefCell<Vec<Rc<dyn FrontShard<W>>>>,
    peers: Peers<Job<Self>>,
    /// Clock of the disk deadlines; advanced while a disk is open.
    run_clock: RunClock,
    is_clock_running: Rc<Cell<bool>>,
}

/// State of a front end on one shard.
pub trait FrontShard<W: World> {
    /// True if the front end can decode `host_state`, kept for a unit by [`Unit::keep_host_state`].
    fn understands(&self, host_state: &[u8]) -> bool;

    /// Serves the unit from now on. A unit that was [withdrawn](Self::withdraw) and is still held is served as before.
    fn serve(&self, unit: &Rc<Unit<W>>) -> Rc<dyn FrontUnit>;

    /// Withdraws the unit from hosts. Returns the front end's object for it, so that the caller can end the commands in
    /// flight.
    fn withdraw(&self, unit: VolumeId) -> Option<Rc<dyn FrontUnit>>;
}

/// A unit withdrawn from hosts, with the objects that front ends built for it.
pub struct Withdrawn<W: World> {
    /// The withdrawn unit.
    pub unit: Rc<Unit<W>>,
    /// Held so that commands in flight can end.
    _faces: Vec<Rc<dyn FrontUnit>>,
}

impl<W: World> ShardState<W> for ShardContext<W> {
    fn world(&self) -> &W {
        &self.world
    }
}

impl<W: World> ShardContext<W> {
    /// Starts the shard of `ticket` in `world`. It runs the jobs of other shards from now on.
    pub fn take(world: W, ticket: ShardSeed<W>) -> Rc<Self> {
        assert!(ticket.index < ticket.limits.shards, "a ticket is for one of the shards");
        // Bounds the free buffers that this thread keeps.
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
        // Jobs run in the order in which they were posted.
        world.spawn(async move {
            while let Some(job) = ticket.inbox.receive().await {
                job(here.clone());
            }
        });
        shard
    }

    /// Run time of this shard, the clock of a disk's deadlines. It advances as long as a disk holds it.
    pub fn run_clock(&self) -> RunClock {
        // One task advances the clock for all disks. The flag keeps a second one from being started.
        if !self.is_clock_running.replace(true) {
            let (world, clock, is_running) =
                (self.world.clone(), self.run_clock.clone(), self.is_clock_running.clone());
            self.world.spawn(async move {
                // Two holders are always there: the context and this task. A third one is an open disk.
                while clock.holders() > 2 {
                    clock.step(&world).await;
                }
                // No await since the holders were counted, so no disk gets a clock that stands still.
                is_running.set(false);
            });
        }
        self.run_clock.clone()
    }

    /// Drops all units and pools without closing them, like a process that ends. For simulations.
    pub fn abandon(&self) {
        self.withdraw_where(|_| true);
        self.fronts.take();
        self.pools.take().into_values().for_each(|pool| pool.abandon());
    }

    /// Runs `work` on the shard `home` and returns its result; `None` when that shard has stopped.
    pub async fn call<R, F>(&self, home: usize, work: impl FnOnce(Rc<Self>) -> F + Send + 'static) -> Option<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.peers.call(home, work).await
    }

    /// Raises an event with the present time for the control plane.
    pub fn raise(&self, code: EventCode, subject: Subject, sentence: impl Into<String>) {
        let now = Timestamp::from_unix(self.world.unix_seconds());
        self.events.raise(Raised::new(now, code, subject, sentence));
    }

    /// Returns the unit `id` if its home is on this shard.
    pub fn unit(&self, id: VolumeId) -> Option<Rc<Unit<W>>> {
        self.units.borrow().get(&id).cloned()
    }

    /// True if the content of the unit is in use besides by its hosts: by a copy, a snapshot or a clone.
    pub fn is_content_needed(&self, unit: &Unit<W>) -> bool {
        unit.is_protected() || self.pool_of(unit).is_some_and(|pool| pool.shares_content_of(unit.id))
    }

    /// Replaces the data key of an encrypted unit, which makes its present content unreadable (CRYPTOGRAPHIC ERASE).
    ///
    /// *Durability*: when it returns. *Errors*: `Gone` if its pool is not open; otherwise the pool takes no change.
    pub async fn replace_key(&self, unit: &Unit<W>) -> Result<(), IoError> {
        let pool = self.pool_of(unit).ok_or(IoError::new(IoErrorKind::Gone, Extent::default()))?;
        pool.replace_key(unit).await
    }

    fn pool_of(&self, unit: &Unit<W>) -> Option<Rc<OpenPool<W>>> {
        unit.name.pool().and_then(|name| self.pools.borrow().get(name).cloned())
    }

    /// Units at home on this shard, by identity.
    pub fn units(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<Unit<W>>>> {
        self.units.borrow()
    }

    /// Sets the queue depth below the caches: bounded while some volume has a minimum IOPS or another priority,
    /// otherwise unbounded.
    pub fn update_queue_depth(&self) {
        let plain = model::VolumePolicy::default().priority;
        let units = self.units.borrow();
        let mut policies = units.values().map(|unit| unit.policy());
        let competes = policies.any(|policy| policy.guarantee_iops.is_some() || policy.priority != plain);
        // Depth 0 switches the scheduler off: without competing volumes a queue would only add latency.
        self.cache.scheduler.set_depth(if competes { self.limits.line_depth } else { 0 });
    }

    /// Adds a front end. It serves every unit that is opened on this shard from now on.
    pub fn add_front(&self, front: Rc<dyn FrontShard<W>>) {
        assert!(self.units.borrow().is_empty(), "front ends come before the first unit");
        self.fronts.borrow_mut().push(front);
    }

    /// True if every front end can decode `host_state`.
    pub fn understands(&self, host_state: &[u8]) -> bool {
        self.fronts.borrow().iter().all(|front| front.understands(host_state))
    }

    /// Serves the unit through all front ends from now on.
    pub fn serve(&self, unit: Rc<Unit<W>>) {
        // The engine holds the front ends' objects weakly and they hold the unit, so a withdrawn unit is freed (ADR
        // 20).
        unit.set_faces(self.fronts.borrow().iter().map(|front| Rc::downgrade(&front.serve(&unit))).collect());
        let before = self.units.borrow_mut().insert(unit.id, unit);
        assert!(before.is_none(), "a volume has one unit");
    }

    /// Withdraws the unit `id` from hosts; `None` if there is none.
    pub fn withdraw(&self, id: VolumeId) -> Option<Withdrawn<W>> {
        // Removed from the table first: a command that comes in now finds no unit.
        let unit = self.units.borrow_mut().remove(&id)?;
        let faces = self.fronts.borrow().iter().filter_map(|front| front.withdraw(id)).collect();
        Some(Withdrawn { unit, _faces: faces })
    }

    /// Withdraws all units for which `which` is true.
    pub fn withdraw_where(&self, which: impl Fn(&Unit<W>) -> bool) {
        // Collected first: withdrawing changes the table.
        let ids: Vec<VolumeId> = self.units.borrow().values().filter(|unit| which(unit)).map(|unit| unit.id).collect();
        ids.into_iter().for_each(|id| drop(self.withdraw(id)));
    }
}
