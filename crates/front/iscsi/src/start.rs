//! Startup of the shards of a daemon: the engine's part of each shard, and this front end on top of it.

use crate::iscsi_shard::{IscsiShard, Message, Shared};
use crate::recording::Recordings;
use crate::registry::Registry;
use crate::scsi_unit::TraceRoom;
use crate::unit_factory::UnitFactory;
use engine::peers::Peers;
use engine::{Limits, ShardContext};
use shard::mailbox::Receiver;
use shard::{StreamOptions, World};
use std::rc::Rc;
use std::time::Duration;

/// Startup parameters of a shard, created before its thread starts: the part of the engine and the part of the front
/// end.
pub struct ShardSeed<W: World> {
    /// Index of the shard; 0 is the conductor.
    pub index: usize,
    engine: engine::ShardSeed<W>,
    shared: Shared<W>,
    inbox: Receiver<Message<W>>,
}

/// Returns the startup parameters of all shards of a daemon.
#[must_use]
pub fn shard_seeds<W: World>(limits: Limits, stream_options: &StreamOptions) -> Vec<ShardSeed<W>> {
    let (peers, inboxes) = Peers::new(limits.shards);
    let shared = Shared {
        registry: Registry::new(limits),
        stream_options: stream_options.clone(),
        recordings: Recordings::new(limits.recordings_max),
        trace_room: TraceRoom::new(limits.traced_commands_max),
        peers,
    };
    let ticket = |(engine, inbox): (engine::ShardSeed<W>, _)| {
        let shared = shared.clone();
        ShardSeed { index: engine.index, engine, shared, inbox }
    };
    engine::shard_seeds(limits).into_iter().zip(inboxes).map(ticket).collect()
}

impl<W: World> ShardSeed<W> {
    /// Starts the engine's shard in `world`, and the front end on top of it.
    pub fn start(self, world: W) -> Rc<IscsiShard<W>> {
        let Self { engine, shared, inbox, .. } = self;
        let engine = ShardContext::take(world.clone(), engine);
        let config = target_config(&engine.limits);
        let shard = Rc::new(IscsiShard::new(engine.clone(), shared, config));
        // The engine creates the SCSI unit of each volume that it opens through this factory.
        engine.add_front(Rc::new(UnitFactory::new(&shard)));
        world.spawn(shard.clone().take_messages(inbox));
        shard
    }
}

/// Converts the limits of the daemon into the configuration of the iSCSI protocol state machine.
#[must_use]
pub fn target_config(limits: &Limits) -> iscsi::target::Config {
    let mut login = iscsi::login::TargetConfig::default();
    // DefaultTime2Wait is 0: a reinstated session waits at the target until the commands of its predecessor have ended.
    login.offer.time2wait_s = 0;
    login.offer.connections_max = limits.connections_per_session;
    // Highest level that is offered; an initiator can negotiate a lower one.
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
