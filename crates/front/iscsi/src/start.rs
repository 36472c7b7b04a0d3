//! How the shards of a daemon start: the engine's part of each, and this front end on it.

use crate::faces::Faces;
use crate::iscsi_shard::{IscsiShard, Message, Shared};
use crate::recording::Recordings;
use crate::registry::Registry;
use crate::scsi_unit::TraceRoom;
use engine::peers::Peers;
use engine::{Limits, ShardContext};
use shard::mailbox::Receiver;
use shard::{StreamOptions, World};
use std::rc::Rc;
use std::time::Duration;

/// What every shard is given before its thread starts: the engine's part and the front end's.
pub struct Ticket<W: World> {
    /// Which shard this is; 0 is the conductor.
    pub index: usize,
    engine: engine::Ticket<W>,
    shared: Shared<W>,
    inbox: Receiver<Message<W>>,
}

/// The tickets of all shards of one daemon.
#[must_use]
pub fn tickets<W: World>(limits: Limits, stream_options: &StreamOptions) -> Vec<Ticket<W>> {
    let (peers, inboxes) = Peers::new(limits.shards);
    let shared = Shared {
        registry: Registry::new(limits),
        stream_options: stream_options.clone(),
        recordings: Recordings::new(limits.recordings_max),
        trace_room: TraceRoom::new(limits.traced_commands_max),
        peers,
    };
    let ticket = |(engine, inbox): (engine::Ticket<W>, _)| {
        let shared = shared.clone();
        Ticket { index: engine.index, engine, shared, inbox }
    };
    engine::tickets(limits).into_iter().zip(inboxes).map(ticket).collect()
}

impl<W: World> Ticket<W> {
    /// Starts the engine's shard in `world`, and the front end on it.
    pub fn start(self, world: W) -> Rc<IscsiShard<W>> {
        let Self { engine, shared, inbox, .. } = self;
        let engine = ShardContext::take(world.clone(), engine);
        let config = target_config(&engine.limits);
        let shard = Rc::new(IscsiShard::new(engine.clone(), shared, config));
        engine.add_front(Rc::new(Faces::new(&shard)));
        world.spawn(shard.clone().take_messages(inbox));
        shard
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
        login_timeout: Duration::from_millis(limits.login_ms),
        idle_interval: Duration::from_millis(limits.idle_ms),
        answer_timeout: Duration::from_millis(limits.answer_ms),
        ..iscsi::target::Config::default()
    }
}
