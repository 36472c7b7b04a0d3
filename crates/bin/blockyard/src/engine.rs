//! Start and end of the data plane: one thread per shard.
//!
//! Called by `serve`. Shard 0 conducts the others and receives the orders of control.

use crate::args::IoChoice;
use crate::budget::MemoryBudget;
use crate::config::Config;
use crate::tune::Cpus;
use control::Engine;
use engine::{Budget, Limits};
use iscsi_target::{Facts, ShardSeed, conduct, shard_seeds};
use model::{Call, LocalAddress, NodeIdentity, Refusal, Secret, code};
use shard::StreamOptions;
use shard::mailbox::{self, Receiver};
use std::io;
use std::time::Duration;
use uring::{BUSY_POLL, Io, Options, Privileges, Shard, Uring, spawn_shard, watch_addresses};

/// Threads of the data plane.
pub(crate) struct Shards(Vec<Shard<()>>);

/// Starts the data plane, which then waits for orders.
///
/// *Errors*: no threads, or the kernel offers no usable interface for disks and sockets.
pub(crate) fn start(
    config: &Config,
    memory: MemoryBudget,
    node: &NodeIdentity,
    secret: &Secret,
    privileges: Option<Privileges>,
) -> Result<(Engine, Shards), Refusal> {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let cores = || config.cpus.as_ref().map_or_else(available, Cpus::len);
    let shards = config.shards.map_or_else(cores, usize::from);
    let MemoryBudget { buffer_bytes, cache_bytes, read_only_bytes } = memory;
    let limits = Limits::of(Budget { shards, buffer_bytes, cache_bytes });
    // A silent host is probed (NOP-In) after half of the time, and given up when the other half passes without an
    // answer.
    let half_ms = config.silence.millis() / 2;
    let limits = Limits { idle_ms: half_ms, answer_ms: half_ms, read_only_bytes_max: read_only_bytes, ..limits };
    let busy_poll = if config.busy_poll { BUSY_POLL } else { Duration::ZERO };
    let options = Options {
        io: interface(config.io),
        busy_poll,
        media: config.media.clone(),
        // The helper opens disks and sockets of a confined daemon, so its rings can be limited to data.
        restricted: privileges.is_some(),
        privileges,
        ..Options::default()
    };
    let (post, inbox) = mailbox::channel();
    let mut inbox = Some(inbox);
    let mut running = Shards(Vec::with_capacity(shards));
    for ticket in shard_seeds::<Uring>(limits, &StreamOptions::default()) {
        // Only shard 0 receives orders, so changes are serialized without a lock.
        let orders = if ticket.index == 0 { inbox.take() } else { None };
        // A core number that does not fit is ignored here; `Config::admit` has checked the list against the machine.
        let cpu = config.cpus.as_ref().and_then(|cpus| cpus.nth(ticket.index)).and_then(|cpu| cpu.try_into().ok());
        let options = Options { cpu, ..options.clone() };
        running.0.push(
            launch(ticket, orders.map(|orders| (orders, node.clone(), secret.clone())), &options)
                .map_err(|error| refused(&error))?,
        );
    }
    Ok((Engine::new(post), running))
}

impl Shards {
    /// Waits for the end of every shard. Called after the data plane was ordered to stop.
    ///
    /// *Errors*: the kernel refused further work of one of them.
    pub(crate) fn join(self) -> Result<(), Refusal> {
        // All are told before the first is joined, so that they stop at the same time.
        self.0.iter().for_each(Shard::stop);
        self.0.into_iter().try_for_each(|shard| shard.join().map_err(|error| refused(&error)))
    }
}

/// Starts the thread of one shard; the shard that gets `orders` conducts the others.
fn launch(
    ticket: ShardSeed<Uring>,
    orders: Option<(Receiver<Call>, NodeIdentity, Secret)>,
    options: &Options,
) -> io::Result<Shard<()>> {
    let name = format!("shard-{}", ticket.index);
    spawn_shard(&name, options.clone(), async move |world: Uring| {
        // The interface in use may differ from the one that was asked for: `auto` falls back to threads.
        let io = match world.interface() {
            Io::Threads => "threads",
            Io::Uring | Io::Auto => "io_uring",
        }
        .to_owned();
        // Taken before `start`, which consumes the world.
        let stopped = world.stopped();
        let shard = ticket.start(world);
        match orders {
            Some((orders, node, secret)) => {
                let (addresses, address_changes) = addresses();
                conduct(shard, orders, Facts { io, node, secret, addresses, address_changes }).await;
            }
            None => stopped.await,
        }
    })
}

fn interface(choice: IoChoice) -> Io {
    match choice {
        IoChoice::Auto => Io::Auto,
        IoChoice::Uring => Io::Uring,
        IoChoice::Threads => Io::Threads,
    }
}

/// Returns the current addresses of this machine and a channel with later changes. Both are empty if the system does
/// not report them.
fn addresses() -> (Vec<LocalAddress>, Receiver<Vec<LocalAddress>>) {
    let (tell, changes) = mailbox::channel();
    // A failed send ends the watching thread: the data plane is gone.
    let addresses = watch_addresses(move |addresses| tell.send(addresses).is_ok()).unwrap_or_else(|error| {
        tracing::warn!(%error, "the network addresses and links of this machine cannot be read");
        Vec::new()
    });
    (addresses, changes)
}

fn refused(error: &io::Error) -> Refusal {
    let message = format!("the data plane cannot start: {error}");
    Refusal::new(code::IO_FAILED, message, "try --io threads, or fewer --shards")
}
