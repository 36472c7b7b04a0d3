//! One shard of the data plane: what lives on it, and how it is spoken to.

use crate::access::{AccessView, LunMap};
use crate::events::Events;
use crate::limits::Limits;
use crate::overlay::Room;
use crate::pool::OpenPool;
use crate::recording::Recordings;
use crate::registry::Registry;
use crate::remote::{Logins, RemoteDisks};
use crate::repeats::Repeats;
use crate::turns::Turns;
use crate::unit::{self, Done, Ran, TraceRoom, Unit, Units};
use cache::CacheShard;
use model::{EventCode, Host, Name, Raised, Subject, Target, Timestamp, VolumeId, event};
use shard::mailbox::{self, Receiver, Sender};
use shard::{StreamOptions, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

/// What comes to a shard from other shards.
pub enum Letter<W: World> {
    /// A command for a unit at home here, from a session that lives elsewhere.
    Execute(Errand),
    /// Anything rare: run this here.
    Run(Box<dyn FnOnce(Rc<Seat<W>>) + Send>),
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

/// What every shard is given before its thread starts.
pub struct Ticket<W: World> {
    /// Which shard this is; 0 is the conductor.
    pub index: usize,
    /// The bounds of everything.
    pub limits: Limits,
    /// Who is logged in, over all shards.
    pub registry: Registry,
    /// How connections are set up.
    pub stream_options: StreamOptions,
    events: Events,
    remote_logins: Logins,
    recordings: Recordings,
    trace_room: TraceRoom,
    overlay_room: Room,
    inbox: Receiver<Letter<W>>,
    peers: Vec<Sender<Letter<W>>>,
}

/// The tickets of all shards of one daemon.
#[must_use]
pub fn tickets<W: World>(limits: Limits, stream_options: &StreamOptions) -> Vec<Ticket<W>> {
    let registry = Registry::new(limits);
    let events = Events::new(limits.events_max);
    let remote_logins = Logins::default();
    let recordings = Recordings::new(limits.recordings_max);
    let trace_room = TraceRoom::new(limits.traced_commands_max);
    let overlay_room = Room::new(limits.read_only_bytes_max);
    let (peers, inboxes): (Vec<_>, Vec<_>) = (0..limits.shards).map(|_| mailbox::channel()).unzip();
    let ticket = |(index, inbox)| Ticket {
        index,
        limits,
        registry: registry.clone(),
        stream_options: stream_options.clone(),
        events: events.clone(),
        remote_logins: remote_logins.clone(),
        recordings: recordings.clone(),
        trace_room: trace_room.clone(),
        overlay_room: overlay_room.clone(),
        inbox,
        peers: peers.clone(),
    };
    inboxes.into_iter().enumerate().map(ticket).collect()
}

/// One shard: its world, and what has its home there. Never leaves its thread.
pub struct Seat<W: World> {
    /// The outside.
    pub world: W,
    /// Which shard this is; 0 is the conductor.
    pub index: usize,
    /// The bounds of everything.
    pub limits: Limits,
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
    /// Who was served of late.
    pub turns: Turns,
    /// The pools at home here.
    pub pools: RefCell<BTreeMap<Name, Rc<OpenPool<W>>>>,
    /// What has happened, on all shards.
    pub events: Events,
    /// What goes over the wire and is recorded, on all shards.
    pub recordings: Recordings,
    /// What traces of units may keep, on all shards.
    pub trace_room: TraceRoom,
    /// What pools that may not be written keep in memory, on all shards.
    pub overlay_room: Room,
    /// Hosts of this shard's sessions that ask for logical units that they do not see.
    pub hidden: Repeats<W>,
    /// Hosts of this shard's sessions that did not answer or broke the protocol.
    pub cut_off: Repeats<W>,
    /// What the volumes of pools at home here share of memory, and of the way below.
    pub cache: CacheShard<W>,
    /// The disks of other arrays that are open here.
    pub remotes: RemoteDisks<W>,
    peers: Vec<Sender<Letter<W>>>,
}

impl<W: World> Seat<W> {
    /// Whatever is open is let go of as it is, as when the process ends. For simulations, whose process does not.
    pub fn abandon(&self) {
        drop(std::mem::take(&mut *self.units.borrow_mut()));
        self.pools.take().into_values().for_each(|pool| pool.abandon());
    }

    /// Takes the seat of `ticket` in `world`, and starts to answer letters.
    pub fn take(world: W, ticket: Ticket<W>) -> Rc<Self> {
        block::pool::set_held_bytes_max(ticket.limits.pooled_bytes_per_shard);
        let seat = Rc::new(Self {
            world: world.clone(),
            index: ticket.index,
            limits: ticket.limits,
            registry: ticket.registry,
            stream_options: ticket.stream_options,
            target_config: Rc::new(ticket.limits.target_config()),
            access: RefCell::default(),
            access_epoch: Cell::new(0),
            lun_maps: RefCell::default(),
            units: Units::default(),
            pools: RefCell::default(),
            cache: unit::cache_of(&world, &ticket.limits, &ticket.events),
            turns: Turns::default(),
            remotes: RemoteDisks::new(world.clone(), ticket.events.clone(), ticket.remote_logins),
            hidden: Repeats::told_to(world.clone(), ticket.events.clone(), event::LUN_HIDDEN),
            cut_off: Repeats::told_to(world.clone(), ticket.events.clone(), event::HOST_CUT_OFF),
            events: ticket.events,
            recordings: ticket.recordings,
            trace_room: ticket.trace_room,
            overlay_room: ticket.overlay_room,
            peers: ticket.peers,
        });
        world.spawn(seat.clone().answer_letters(ticket.inbox));
        seat
    }

    /// Runs `work` on the shard `home` and returns what it gives; `None` when that shard has stopped.
    pub async fn call<R, F>(&self, home: usize, work: impl FnOnce(Rc<Self>) -> F + Send + 'static) -> Option<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let (post, inbox) = mailbox::channel();
        self.post(
            home,
            Letter::Run(Box::new(move |seat: Rc<Self>| {
                let world = seat.world.clone();
                begin(&world, async move {
                    // Nobody waits for the answer any more when this fails; the work is done all the same.
                    let _ = post.send(work(seat).await);
                });
            })),
        );
        inbox.receive().await
    }

    /// Puts a letter into the mailbox of the shard `home`.
    pub fn post(&self, home: usize, letter: Letter<W>) {
        // A shard whose mailbox is closed has stopped, and the daemon is stopping with it.
        let _ = self.peers[home].send(letter);
    }

    /// It has happened now; control hears of it.
    pub fn raise(&self, code: EventCode, subject: Subject, sentence: impl Into<String>) {
        let now = Timestamp::from_unix(self.world.unix_seconds());
        self.events.raise(Raised::new(now, code, subject, sentence));
    }

    /// The unit `id`, while it has its home here.
    pub fn unit(&self, id: VolumeId) -> Option<Rc<Unit<W>>> {
        self.units.borrow().get(&id).cloned()
    }

    /// Commands of volumes wait in one line while some volume has a guarantee or another priority; else nobody waits.
    pub fn share_out_the_line(&self) {
        let plain = model::VolumePolicy::default().priority;
        let units = self.units.borrow();
        let mut policies = units.values().map(|unit| unit.policy());
        let competes = policies.any(|policy| policy.guarantee_iops.is_some() || policy.priority != plain);
        self.cache.scheduler.set_depth(if competes { self.limits.line_depth } else { 0 });
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

    /// The unit serves here from now on.
    pub fn serve(self: &Rc<Self>, unit: Rc<Unit<W>>) {
        self.set_port_groups(unit.clone());
        self.units.borrow_mut().insert(unit.id, unit.clone());
        unit.go_on_sanitizing(self);
    }

    /// The unit is served through portal groups as the operator says. What a host has begun through a group that loses
    /// access may take its time, and nobody waits for it here.
    fn set_port_groups(&self, unit: Rc<Unit<W>>) {
        let groups = self.access.borrow().port_groups();
        begin(&self.world, async move { unit.set_port_groups(&groups).await });
    }

    async fn answer_letters(self: Rc<Self>, inbox: Receiver<Letter<W>>) {
        while let Some(letter) = inbox.receive().await {
            match letter {
                Letter::Run(work) => work(self.clone()),
                Letter::Execute(errand) => self.run_errand(errand),
            }
        }
    }

    /// Starts a command from elsewhere; a session that is gone meanwhile takes no answers.
    fn run_errand(&self, errand: Errand) {
        let Errand { unit, ran, back } = errand;
        let _ = match self.unit(unit) {
            None => back.send(unit::absent(ran)),
            Some(unit) => match unit::run_at_once(&unit, ran.brief()) {
                Some(end) => back.send(Done { task: ran.task, clock: ran.clock, end }),
                None => return begin(&self.world, async move { drop(back.send(unit::run(unit, ran).await)) }),
            },
        };
    }
}

/// Runs `work` on this shard; its first step is done when this returns.
///
/// Commands enter the task set of their unit, and functions find them there, in the order in which their
/// letters came: that must not hang on the order in which tasks are run.
pub fn begin<W: World>(world: &W, work: impl Future<Output = ()> + 'static) {
    let mut work = Box::pin(work);
    // The task polls it again, with a waker that is its own.
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        world.spawn(work);
    }
}
