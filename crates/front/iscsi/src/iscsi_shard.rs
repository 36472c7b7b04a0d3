//! iSCSI front end on one shard: its units, the access snapshot, and the messages between shards.

use crate::access::{AccessView, LunEntry, LunMap};
use crate::coalesced_events::CoalescedEvents;
use crate::recording::Recordings;
use crate::registry::Registry;
use crate::scheduling::Scheduler;
use crate::scsi_unit::{self, Completed, PendingCommand, ScsiUnit, TraceRoom, Units};
use engine::{
    Limits, ShardContext,
    peers::{Job, Peers, ShardState, begin},
};
use model::{Host, Name, Target, VolumeId, event};
use shard::mailbox::{Receiver, Sender};
use shard::{StreamOptions, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Message from another shard.
pub enum Message<W: World> {
    /// Command for a unit of this shard, from a session on another one. Separate from `Run` because it is frequent and
    /// needs no allocation of a closure.
    Execute(RemoteCommand),
    /// Any other work, to be run on this shard.
    Run(Job<IscsiShard<W>>),
}

/// Command sent to the home shard of its unit, with the channel of its result.
pub struct RemoteCommand {
    /// Unit on the receiving shard.
    pub entry: LunEntry,
    /// Command with its issuer.
    pub command: PendingCommand,
    /// Channel for the result.
    pub back: Sender<Completed>,
}

impl<W: World> From<Job<IscsiShard<W>>> for Message<W> {
    fn from(job: Job<IscsiShard<W>>) -> Self {
        Self::Run(job)
    }
}

/// State shared by all shards of the front end.
pub struct Shared<W: World> {
    /// Registry of sessions, for all shards.
    pub registry: Registry,
    /// Socket options of connections.
    pub stream_options: StreamOptions,
    /// Packet captures.
    pub recordings: Recordings,
    /// Memory budget of the I/O traces.
    pub trace_room: TraceRoom,
    /// Message queues of the shards.
    pub peers: Peers<Message<W>>,
}

impl<W: World> Clone for Shared<W> {
    fn clone(&self) -> Self {
        Self {
            registry: self.registry.clone(),
            stream_options: self.stream_options.clone(),
            recordings: self.recordings.clone(),
            trace_room: self.trace_room.clone(),
            peers: self.peers.clone(),
        }
    }
}

/// Front end on one shard. Never leaves its thread.
pub struct IscsiShard<W: World> {
    /// Runtime environment: clock, sockets, timers, tasks.
    pub world: W,
    /// Index of the shard; 0 is the conductor.
    pub index: usize,
    /// Resource limits.
    pub limits: Limits,
    /// Engine on this shard.
    pub engine: Rc<ShardContext<W>>,
    /// Registry of sessions, for all shards.
    pub registry: Registry,
    /// Socket options of connections.
    pub stream_options: StreamOptions,
    /// Configuration of the iSCSI protocol state machine.
    pub target_config: Rc<iscsi::target::Config>,
    /// Current access snapshot.
    pub access: RefCell<Arc<AccessView>>,
    /// Generation of `access`, by which sessions detect a new snapshot.
    pub access_epoch: Cell<u64>,
    /// LUN maps derived from the current snapshot, keyed by target, host and portal group; shared by all sessions with
    /// the same key.
    lun_maps: RefCell<BTreeMap<(Name, Name, u16), Rc<LunMap>>>,
    /// Units whose home is this shard.
    pub units: Units<W>,
    /// Withdrawn units. One that is still referenced can be put back into service.
    pub withdrawn: RefCell<BTreeMap<VolumeId, Weak<ScsiUnit<W>>>>,
    /// Reservations of presented units that were withdrawn, until the units return: closing and reopening a pool loses
    /// none of them.
    pub handed_over: RefCell<BTreeMap<VolumeId, scsi::PersistentState>>,
    /// Scheduling state of the sessions.
    pub scheduler: Scheduler,
    /// Packet captures, on all shards.
    pub recordings: Recordings,
    /// Memory budget of the I/O traces, on all shards.
    pub trace_room: TraceRoom,
    /// Coalesced events about commands to unmapped LUNs, of this shard's sessions.
    pub unmapped_lun_events: CoalescedEvents<W>,
    /// Coalesced events about connections closed because of a timeout or protocol violation, of this shard's sessions.
    pub cut_off: CoalescedEvents<W>,
    peers: Peers<Message<W>>,
}

impl<W: World> ShardState<W> for IscsiShard<W> {
    fn world(&self) -> &W {
        &self.world
    }
}

impl<W: World> IscsiShard<W> {
    /// Creates the front end on the shard of `engine`.
    pub fn new(engine: Rc<ShardContext<W>>, shared: Shared<W>, target_config: iscsi::target::Config) -> Self {
        let Shared { registry, stream_options, recordings, trace_room, peers } = shared;
        let repeats = |code| CoalescedEvents::new(engine.world.clone(), engine.events.clone(), code);
        Self {
            world: engine.world.clone(),
            index: engine.index,
            limits: engine.limits,
            registry,
            stream_options,
            target_config: Rc::new(target_config),
            access: RefCell::default(),
            access_epoch: Cell::new(0),
            lun_maps: RefCell::default(),
            units: Units::default(),
            withdrawn: RefCell::default(),
            handed_over: RefCell::default(),
            scheduler: Scheduler::default(),
            unmapped_lun_events: repeats(event::LUN_HIDDEN),
            cut_off: repeats(event::HOST_CUT_OFF),
            recordings,
            trace_room,
            engine,
            peers,
        }
    }

    /// Drops all state without cleanup, as at a crash of the process. For simulations, whose process continues.
    pub fn abandon(&self) {
        drop(std::mem::take(&mut *self.units.borrow_mut()));
        self.engine.abandon();
    }

    /// Runs `work` on the shard `home` and returns its result; `None` when that shard has stopped.
    pub async fn call<R, F>(&self, home: usize, work: impl FnOnce(Rc<Self>) -> F + Send + 'static) -> Option<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.peers.call(home, work).await
    }

    /// Posts a message to the shard `home`.
    pub fn post(&self, home: usize, message: Message<W>) {
        self.peers.post(home, message);
    }

    /// Returns the unit `id`, while its home is this shard.
    pub fn unit(&self, id: VolumeId) -> Option<Rc<ScsiUnit<W>>> {
        self.units.borrow().get(&id).cloned()
    }

    /// Returns the unit or stand-in of a LUN, while its home is this shard.
    pub fn unit_at(&self, entry: &LunEntry) -> Option<Rc<ScsiUnit<W>>> {
        match entry.stand_in {
            true => self.units.stand_ins().get(&entry.unit).cloned(),
            false => self.unit(entry.unit),
        }
    }

    /// Replaces the access snapshot. Sessions of this shard notice it in their next quantum.
    pub fn set_access(&self, access: Arc<AccessView>) {
        // Sessions compare the epoch, so it changes with every snapshot.
        let before = self.access.replace(access);
        self.access_epoch.set(self.access_epoch.get() + 1);
        // The maps were derived from the previous snapshot.
        self.lun_maps.take();
        if self.access.borrow().port_groups() != before.port_groups() {
            // Collected first: setting port groups runs code of the units, during which the maps must not be borrowed.
            let units: Vec<_> = self.units.borrow().values().chain(self.units.stand_ins().values()).cloned().collect();
            units.into_iter().for_each(|unit| self.set_port_groups(unit));
        }
    }

    /// Returns the LUN map of `host` in `target` through portals of the group `tag`, by the current snapshot.
    pub fn luns(&self, target: &Target, host: &Host, tag: u16) -> Rc<LunMap> {
        let mut maps = self.lun_maps.borrow_mut();
        let map = maps.entry((target.name.clone(), host.name.clone(), tag));
        map.or_insert_with(|| Rc::new(self.access.borrow().luns(target, host, tag))).clone()
    }

    /// Puts the unit into service.
    pub fn serve(&self, unit: Rc<ScsiUnit<W>>) {
        // States first, so that no command finds the unit without them.
        self.set_port_groups(unit.clone());
        self.units.borrow_mut().insert(unit.unit.id, unit);
    }

    /// Applies the configured ALUA states to the unit. Commands through a port group that loses access may take time to
    /// drain, which is not awaited.
    pub fn set_port_groups(&self, unit: Rc<ScsiUnit<W>>) {
        let groups = self.access.borrow().port_groups();
        // Not awaited: a group that loses access drains its commands first.
        begin(&self.world, async move { unit.set_port_groups(&groups).await });
    }

    /// Processes messages of other shards until all senders are dropped.
    pub async fn take_messages(self: Rc<Self>, inbox: Receiver<Message<W>>) {
        while let Some(message) = inbox.receive().await {
            match message {
                Message::Run(job) => job(self.clone()),
                Message::Execute(errand) => self.run_remote_command(errand),
            }
        }
    }

    /// Executes a command from another shard. The result is discarded if the session has ended.
    fn run_remote_command(&self, errand: RemoteCommand) {
        let RemoteCommand { entry, command: ran, back } = errand;
        let _ = match self.unit_at(&entry) {
            None => back.send(scsi_unit::answer_closed_unit(ran)),
            // Most commands complete at once and need no task of their own.
            Some(unit) => match scsi_unit::run_fast_path(&unit, ran.as_fast_path()) {
                Some(end) => back.send(Completed { task: ran.task, clock: ran.clock, result: end }),
                None => {
                    return begin(&self.world, async move { drop(back.send(scsi_unit::run(unit, ran).await)) });
                }
            },
        };
    }
}
