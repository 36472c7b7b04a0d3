//! The iSCSI front end on one shard: the units that it serves, who may see them, and how its shards speak to each other.

use crate::access::{AccessView, LunMap};
use crate::events::Events;
use crate::front::{FrontShard, FrontUnit};
use crate::limits::Limits;
use crate::peers::{Job, Peers, Resident, begin};
use crate::recording::Recordings;
use crate::registry::Registry;
use crate::repeats::Repeats;
use crate::scsi_unit::{self, Done, Ran, ScsiUnit, TraceRoom, Units};
use crate::seat::{self, Seat};
use crate::turns::Turns;
use crate::unit::Unit;
use model::{Host, Name, Target, VolumeId, event};
use scsi::Kept;
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
    pub unit: VolumeId,
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

/// What every shard is given before its thread starts: the engine's part and the front end's.
pub struct Ticket<W: World> {
    /// Which shard this is; 0 is the conductor.
    pub index: usize,
    engine: seat::Ticket<W>,
    registry: Registry,
    stream_options: StreamOptions,
    recordings: Recordings,
    trace_room: TraceRoom,
    inbox: Receiver<Message<W>>,
    peers: Peers<Message<W>>,
}

/// The tickets of all shards of one daemon.
#[must_use]
pub fn tickets<W: World>(limits: Limits, stream_options: &StreamOptions) -> Vec<Ticket<W>> {
    let registry = Registry::new(limits);
    let recordings = Recordings::new(limits.recordings_max);
    let trace_room = TraceRoom::new(limits.traced_commands_max);
    let (peers, inboxes) = Peers::new(limits.shards);
    let ticket = |(engine, inbox): (seat::Ticket<W>, _)| Ticket {
        index: engine.index,
        engine,
        registry: registry.clone(),
        stream_options: stream_options.clone(),
        recordings: recordings.clone(),
        trace_room: trace_room.clone(),
        inbox,
        peers: peers.clone(),
    };
    seat::tickets(limits).into_iter().zip(inboxes).map(ticket).collect()
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
    pub engine: Rc<Seat<W>>,
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
    withdrawn: RefCell<BTreeMap<VolumeId, Weak<ScsiUnit<W>>>>,
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

/// Makes the faces of the engine's units.
struct Faces<W: World>(Weak<IscsiShard<W>>);

impl<W: World> FrontShard<W> for Faces<W> {
    fn understands(&self, host_state: &[u8]) -> bool {
        Kept::parse(host_state).is_ok()
    }

    fn serve(&self, unit: &Rc<Unit<W>>) -> Rc<dyn FrontUnit> {
        self.0.upgrade().expect("the front end lives as long as its shard").serve(unit)
    }

    fn withdraw(&self, unit: VolumeId) -> Option<Rc<dyn FrontUnit>> {
        let shard = self.0.upgrade()?;
        let unit = shard.units.borrow_mut().remove(&unit)?;
        let mut withdrawn = shard.withdrawn.borrow_mut();
        withdrawn.retain(|_, unit| unit.strong_count() > 0);
        withdrawn.insert(unit.unit.id, Rc::downgrade(&unit));
        Some(unit)
    }
}

impl<W: World> IscsiShard<W> {
    /// Starts the engine's shard of `ticket` in `world`, and the front end on it.
    pub fn start(world: W, ticket: Ticket<W>) -> Rc<Self> {
        let Ticket { index, engine, registry, stream_options, recordings, trace_room, inbox, peers } = ticket;
        let engine = Seat::take(world.clone(), engine);
        let repeats = |code| Repeats::told_to(world.clone(), Events::clone(&engine.events), code);
        let shard = Rc::new(Self {
            world: world.clone(),
            index,
            limits: engine.limits,
            registry,
            stream_options,
            target_config: Rc::new(target_config(&engine.limits)),
            access: RefCell::default(),
            access_epoch: Cell::new(0),
            lun_maps: RefCell::default(),
            units: Units::default(),
            withdrawn: RefCell::default(),
            turns: Turns::default(),
            hidden: repeats(event::LUN_HIDDEN),
            cut_off: repeats(event::HOST_CUT_OFF),
            recordings,
            trace_room,
            engine: engine.clone(),
            peers,
        });
        engine.add_front(Rc::new(Faces(Rc::downgrade(&shard))));
        world.spawn(shard.clone().take_messages(inbox));
        shard
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

    /// Replaces the access table; sessions of this shard see it in their next turn.
    pub fn set_access(&self, access: Arc<AccessView>) {
        let before = self.access.replace(access);
        self.access_epoch.set(self.access_epoch.get() + 1);
        self.lun_maps.take();
        if self.access.borrow().port_groups() != before.port_groups() {
            let units: Vec<_> = self.units.borrow().values().cloned().collect();
            units.into_iter().for_each(|unit| self.set_port_groups(unit));
        }
    }

    /// What `host` sees in `target` through portals of the group `tag`, by the present access table.
    pub fn luns(&self, target: &Target, host: &Host, tag: u16) -> Rc<LunMap> {
        let mut maps = self.lun_maps.borrow_mut();
        let map = maps.entry((target.name.clone(), host.name.clone(), tag));
        map.or_insert_with(|| Rc::new(self.access.borrow().luns(target, host, tag))).clone()
    }

    fn serve(self: &Rc<Self>, unit: &Rc<Unit<W>>) -> Rc<ScsiUnit<W>> {
        let before = self.withdrawn.borrow_mut().remove(&unit.id).and_then(|before| before.upgrade());
        let before = before.filter(|before| Rc::ptr_eq(&before.unit, unit));
        let served = before.unwrap_or_else(|| Rc::new(ScsiUnit::new(self, unit.clone())));
        self.set_port_groups(served.clone());
        self.units.borrow_mut().insert(unit.id, served.clone());
        served.go_on_sanitizing(self);
        served
    }

    /// The unit is served through portal groups as the operator says. What a host has begun through a group that loses
    /// access may take its time, and nobody waits for it here.
    fn set_port_groups(&self, unit: Rc<ScsiUnit<W>>) {
        let groups = self.access.borrow().port_groups();
        begin(&self.world, async move { unit.set_port_groups(&groups).await });
    }

    async fn take_messages(self: Rc<Self>, inbox: Receiver<Message<W>>) {
        while let Some(message) = inbox.receive().await {
            match message {
                Message::Run(job) => job(self.clone()),
                Message::Execute(errand) => self.run_errand(errand),
            }
        }
    }

    /// Starts a command from elsewhere; a session that is gone meanwhile takes no answers.
    fn run_errand(&self, errand: Errand) {
        let Errand { unit, ran, back } = errand;
        let _ = match self.unit(unit) {
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

/// The bounds of one connection, as its machine takes them.
#[must_use]
pub fn target_config(limits: &Limits) -> iscsi::target::Config {
    let mut login = iscsi::login::TargetConfig::default();
    // Whoever comes back waits at the target for what is left of the session before.
    login.offer.time2wait_s = 0;
    login.offer.connections_max = limits.connections_per_session;
    login.offer.error_recovery_level = 2;
    iscsi::target::Config {
        login,
        commands_max: limits.commands_per_session,
        data_out_bytes_max: limits.transfer_bytes_max,
        login_timeout: std::time::Duration::from_millis(limits.login_ms),
        idle_interval: std::time::Duration::from_millis(limits.idle_ms),
        answer_timeout: std::time::Duration::from_millis(limits.answer_ms),
        ..iscsi::target::Config::default()
    }
}
