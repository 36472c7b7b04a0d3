//! Steady load through the whole data plane, including the login, in one deterministic process: callgrind counts the
//! product's instructions in it (`cargo xtask instructions`). Prints the number of counted commands as JSON.

// The futures of a command are nested as deeply as its layers.
#![recursion_limit = "256"]

mod array;
mod counted;
mod session;

use anyhow::{Result, ensure};
use array::Array;
use clap::{Parser, ValueEnum};
use counted::{Counter, Entries};
use model::Backend;
use session::{Session, Work};
use shard::World;
use sim::{NetworkFaults, Sim};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone, Parser)]
struct Options {
    /// Storage below the units
    #[arg(long, value_enum, default_value_t = Below::Null)]
    below: Below,
    /// Length of a command in bytes
    #[arg(long, default_value_t = 4096)]
    bytes: u32,
    /// Write instead of read
    #[arg(long)]
    writes: bool,
    /// Use header and data digests
    #[arg(long)]
    digests: bool,
    /// Outstanding commands per session
    #[arg(long, default_value_t = 32)]
    depth: u64,
    /// Number of active sessions
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    sessions: u16,
    /// Number of idle sessions that have logged in
    #[arg(long, default_value_t = 0)]
    idle: u16,
    /// Number of units
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    luns: u16,
    /// Trace every unit
    #[arg(long)]
    traced: bool,
    /// Units that a session uses
    #[arg(long, value_enum, default_value_t = Aim::All)]
    aim: Aim,
    /// Number of shards
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Counted commands per session
    #[arg(long, default_value_t = 1000)]
    commands: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Below {
    /// Null device
    Null,
    /// Memory
    Ram,
    /// Volume of a protected RAID-10, read once before the measurement and therefore served from the cache
    Cached,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Aim {
    /// All units in turn
    All,
    /// The unit with the number of the session: on the session's own shard when there are as many units as shards
    Own,
    /// The unit with the next number: on the next shard in that case
    Next,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let total = u64::from(options.sessions) * options.commands;
    let Entries { turns, socket_calls } = Sim::new(1).run(async move |world| measure(&world, &options).await)?;
    println!("{{\"commands\": {total}, \"turns\": {turns}, \"socket_calls\": {socket_calls}}}");
    Ok(())
}

async fn measure(world: &Sim, options: &Options) -> Result<Entries> {
    // A network without random delays, splits and short writes: the load must not depend on chance.
    let quiet = Duration::from_micros(20);
    let faults = NetworkFaults {
        delay: quiet..=quiet,
        buffer_bytes: 4 << 20,
        split_per_million: 0,
        short_per_million: 0,
        ..NetworkFaults::default()
    };
    world.network().set_faults(faults);
    let portal = SocketAddr::from(([10, 0, 0, 2], 3260));
    let counter = Counter::default();
    let array = Array::start(&world.add_node(portal.ip()), options.shards, &counter)?;
    let backend = match options.below {
        Below::Null => Backend::Null,
        Below::Ram => Backend::Ram,
        Below::Cached => {
            array.create_pool().await?;
            Backend::pool()
        }
    };
    array.furnish(options.luns, &backend, portal).await?;
    if options.traced {
        array.trace(options.luns, &backend).await?;
    }
    let mut sessions = Vec::new();
    for number in 0..options.sessions + options.idle {
        sessions.push(Session::log_in(world, portal, number, options.digests).await?);
    }
    let idle = sessions.split_off(usize::from(options.sessions));
    if options.below != Below::Null {
        for lun in 0..options.luns {
            // Written first, since blocks without data are read on another path; read as well, so that the cache holds
            // them.
            sessions[0].pass_over(u64::from(lun), true).await?;
            sessions[0].pass_over(u64::from(lun), false).await?;
        }
    }
    // Warm-up: every unit has reported its unit attention and executed a command, and structures that grow with use
    // have grown.
    let warm_up = (2 * options.depth).max(2 * u64::from(options.luns));
    let sessions = at_once(world, sessions, options, warm_up).await?;
    let told_before: u64 = sessions.iter().map(Session::unit_attentions).sum();
    counter.run(true);
    let sessions = at_once(world, sessions, options, options.commands).await?;
    counter.run(false);
    let told: u64 = sessions.iter().map(Session::unit_attentions).sum();
    // A unit attention would replace a counted command by a shorter path.
    ensure!(told == told_before, "{} commands were told a unit attention while they were counted", told - told_before);
    drop((sessions, idle));
    Ok(counter.entries())
}

/// Runs `commands` commands on each session, concurrently, and returns the sessions.
async fn at_once(world: &Sim, sessions: Vec<Session>, options: &Options, commands: u64) -> Result<Vec<Session>> {
    let count = sessions.len();
    let ended: Rc<RefCell<Vec<Result<Session>>>> = Rc::default();
    let luns = u64::from(options.luns);
    for mut session in sessions {
        let number = u64::from(session.number());
        let (lun, lun_step) = match options.aim {
            Aim::All => (number, 1),
            Aim::Own => (number, 0),
            Aim::Next => (number + 1, 0),
        };
        let Options { depth, bytes, writes, .. } = *options;
        let work = Work { commands, depth, bytes, writes, lun, lun_step, luns };
        let ended = ended.clone();
        world.spawn(async move {
            let ran = session.run(work).await;
            ended.borrow_mut().push(ran.map(|()| session));
        });
    }
    while ended.borrow().len() < count {
        // Simulated time, which costs nothing while the tasks run.
        world.sleep(Duration::from_micros(100)).await;
    }
    ended.take().into_iter().collect()
}
