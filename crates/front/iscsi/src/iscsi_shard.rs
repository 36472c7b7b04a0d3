//! The iSCSI front end on one shard: the units that it serves, who may see them, and how its shards speak to each other.

use crate::access::{AccessView, LunEntry, LunMap};
use crate::recording::Recordings;
use crate::registry::Registry;
use crate::repeats::Repeats;
use crate::scsi_unit::{self, Done, Ran, ScsiUnit, TraceRoom, Units};
use crate::turns::Turns;
use engine::{
    Limits, ShardContext,
    peers::{Job, Peers, Resident, begin},
};
use model::{Host, Name, Target, VolumeId, event};
use shard::mailbox::{Receiver, Sender};
use shard::{StreamOptions, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// A message from another shard.
pub enum Message<W: World> {
    /// A command for a unit at home here, from a session that lives elsewhere.
    Execute(Errand),
    /// Anything rare: run this here.
    Run(Job<IscsiShard<W>>),
}

/// A command on its way to its unit's home, with the way back.
pub struct Errand {
    /// The unit at home on the receiving shard.
    pub entry: LunEntry,
    /// What is asked, by whom.
    pub ran: Ran,
    /// Where the outcome goes.
    pub back: Sender<Done>,
}

impl<W: World> From<Job<IscsiShard<W>>> for Message<W> {
    fn from(job: Job<IscsiShard<W>>) -> Self {
        Self::Run(job)
    }
}

/// What all shards of the front end share.
pub struct Shared<W: World> {
    /// Who is logged in, over all shards.
    pub registry: Registry,
    /// How connections are set up.
    pub stream_options: StreamOptions,
    /// What goes over the wire and is recorded.
    pub recordings: Recordings,
    /// What traces of units may keep.
    pub trace_room: TraceRoom,
    /// The mailboxes of the shards.
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

/// The front end on one shard. Never leaves its thread.
pub struct IscsiShard<W: World> {
    /// The outside.
    pub world: W,
    /// Which shard this is; 0 is the conductor.
    pub index: usize,
    /// The bounds of everything.
    pub limits: Limits,
    /// The engine on this shard.
    pub engine: Rc<ShardContext<W>>,
    /// Who is logged in, over all shards.
    pub registry: Registry,
    /// How connections are set up.
    pub stream_options: StreamOptions,
    /// What connections negotiate, and their bounds.
    pub target_config: Rc<iscsi::target::Config>,
    /// Who may see what; replaced whole.
    pub access: RefCell<Arc<AccessView>>,
    /// Counts replacements of `access`, so that sessions notice.
    pub access_epoch: Cell<u64>,
    /// What sessions that were here since then see, one for all of a host in a target through a portal group.
    lun_maps: RefCell<BTreeMap<(Name, Name, u16), Rc<LunMap>>>,
    /// The units at home here.
    pub units: Units<W>,
    /// Units that were withdrawn; one that is still held may come back.
    pub withdrawn: RefCell<BTreeMap<VolumeId, Weak<ScsiUnit<W>>>>,
    /// What hosts had reserved of presented units that were withdrawn, until they are served again: a pool that is closed and
    /// opened again has lost nothing of it.
    pub handed_over: RefCell<BTreeMap<VolumeId, scsi::Kept>>,
    /// Which sessions were served last.
    pub turns: Turns,
    /// What goes over the wire and is recorded, on all shards.
    pub recordings: Recordings,
    /// What traces of units may keep, on all shards.
    pub trace_room: TraceRoom,
    /// Hosts of this shard's sessions that ask for logical units that they do not see.
    pub hidden: Repeats<W>,
    /// Hosts of this shard's sessions that did not answer or broke the protocol.
    pub cut_off: Repeats<W>,
    peers: Peers<Message<W>>,
}

impl<W: World> Resident<W> for IscsiShard<W> {
    fn world(&self) -> &W {
        &self.world
    }
}

impl<W: World> IscsiShard<W> {
    /// The front end on the shard of `engine`, whose connections negotiate by `target_config`.
    pub fn new(engine: Rc<ShardContext<W>>, shared: Shared<W>, target_config: iscsi::target::Config) -> Self {
        let Shared { registry, stream_options, recordings, trace_room, peers } = shared;
        let repeats = |code| Repeats::told_to(engine.world.clone(), engine.events.clone(), code);
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
            turns: Turns::default(),
            hidden: repeats(event::LUN_HIDDEN),
            cut_off: repeats(event::HOST_CUT_OFF),
            recordings,
            trace_room,
            engine,
            peers,
        }
    }

    /// Drops whatever is open as it is, as when the process ends. For simulations, whose process does not.
    pub fn abandon(&self) {
        drop(std::mem::take(&mut *self.units.borrow_mut()));
        self.engine.abandon();
    }

    /// Runs `work` on the shard `home` and returns what it gives; `None` when that shard has stopped.
    pub async fn call<R, F>(&self, home: usize, work: impl FnOnce(Rc<Self>) -> F + Send + 'static) -> Option<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.peers.call(home, work).await
    }

    /// Puts a message into the mailbox of the shard `home`.
    pub fn post(&self, home: usize, message: Message<W>) {
        self.peers.post(home, message);
    }

    /// The unit `id`, while it has its home here.
    pub fn unit(&self, id: VolumeId) -> Option<Rc<ScsiUnit<W>>> {
        self.units.borrow().get(&id).cloned()
    }

    /// The unit behind a LUN, or its stand-in, while its home is here.
    pub fn unit_at(&self, entry: &LunEntry) -> Option<Rc<ScsiUnit<W>>> {
        match entry.stand_in {
            true => self.units.stand_ins().get(&entry.unit).cloned(),
            false => self.unit(entry.unit),
        }
    }

    /// Replaces the access table; sessions of this shard see it in their next turn.
    pub fn set_access(&self, access: Arc<AccessView>) {
        let before = self.access.replace(access);
        self.access_epoch.set(self.access_epoch.get() + 1);
        self.lun_maps.take();
        if self.access.borrow().port_groups() != before.port_groups() {
            let units: Vec<_> = self.units.borrow().values().chain(self.units.stand_ins().values()).cloned().collect();
            units.into_iter().for_each(|unit| self.set_port_groups(unit));
        }
    }

    /// What `host` sees in `target` through portals of the group `tag`, by the present access table.
    pub fn luns(&self, target: &Target, host: &Host, tag: u16) -> Rc<LunMap> {
        let mut maps = self.lun_maps.borrow_mut();
        let map = maps.entry((target.name.clone(), host.name.clone(), tag));
        map.or_insert_with(|| Rc::new(self.access.borrow().luns(target, host, tag))).clone()
    }

    /// Serves the unit from now on.
    pub fn serve(&self, unit: Rc<ScsiUnit<W>>) {
        self.set_port_groups(unit.clone());
        self.units.borrow_mut().insert(unit.unit.id, unit);
    }

    /// The unit is served through portal groups as the operator says. What a host has begun through a group that loses
    /// access may take its time, and nobody waits for it here.
    pub fn set_port_groups(&self, unit: Rc<ScsiUnit<W>>) {
        let groups = self.access.borrow().port_groups();
        begin(&self.world, async move { unit.set_port_groups(&groups).await });
    }

    /// Does what other shards ask, until they are gone.
    pub async fn take_messages(self: Rc<Self>, inbox: Receiver<Message<W>>) {
        while let Some(message) = inbox.receive().await {
            match message {
                Message::Run(job) => job(self.clone()),
                Message::Execute(errand) => self.run_errand(errand),
            }
        }
    }

    /// Starts a command from elsewhere; a session that is gone meanwhile takes no answers.
    fn run_errand(&self, errand: Errand) {
        let Errand { entry, ran, back } = errand;
        let _ = match self.unit_at(&entry) {
            None => back.send(scsi_unit::absent(ran)),
            Some(unit) => match scsi_unit::run_at_once(&unit, ran.brief()) {
                Some(end) => back.send(Done { task: ran.task, clock: ran.clock, end }),
                None => {
                    return begin(&self.world, async move { drop(back.send(scsi_unit::run(unit, ran).await)) });
                }
            },
        };
    }
}
