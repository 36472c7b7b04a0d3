//! `blockyard serve`: the daemon put together.

use crate::args::ServeOptions;
use crate::budget::{self, MemoryBudget};
use crate::config::Config;
use crate::engine;
use crate::failure::Failure;
use crate::log;
use crate::stop::{self, Stops};
use crate::systemd::{self, Pulse};
use api::LastLines;
use control::memory::Found;
use control::{Control, Store};
use model::{Refusal, code};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The daemon ends within this time after it was told to, whatever does not end: below the 120 s of its service file.
const STOP_MAX: Duration = Duration::from_secs(60);

/// For all sessions that there may be, half-open logins, disks and doors.
pub const OPEN_FILES_WANTED: u64 = 18_432;

/// The daemon has run until it was told to stop, and has stopped cleanly.
pub fn serve(options: &ServeOptions, socket: Option<PathBuf>) -> Result<(), Failure> {
    let config = Config::load(options, socket)?;
    let last_lines = log::start(&config.log, config.log_form)?;
    raise_open_files();
    forbid_dumps();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("the system gives no event queue: {error}"), "close other programs")
    })?;
    Ok(runtime.block_on(run(config, last_lines))?)
}

async fn run(config: Config, last_lines: LastLines) -> Result<(), Refusal> {
    // The store goes first: whoever has it has the disks.
    let store = Store::open_with(&config.settings.state_dir, &config.opening)?;
    let mut listening = api::listen(&config.settings.socket)?.with_log(last_lines);
    if let Some(web) = config.web.clone() {
        listening = listening.with_web(web);
    }
    let mut asked = Stops::heard()
        .map_err(|error| Refusal::new(code::IO_FAILED, format!("signals cannot be taken: {error}"), "start again"))?;
    let node = store.identity(&config.settings.node)?;
    let found = Found::look(Path::new("/"));
    let (memory, reduced) = MemoryBudget::of(&config, &found);
    let (limited_by, limit) = found.smallest();
    tracing::info!(limit, limited_by, cache = memory.cache_bytes, buffers = memory.buffer_bytes, "memory");
    let (engine, shards) = engine::start(&config, memory, &node, &store.pool_secret())?;
    let pulse = Pulse::new(engine.clone(), config.settings.socket.clone());
    let control = tokio::select! {
        control = Control::start(config.settings, store, engine.clone()) => Arc::new(control?),
        () = systemd::starting(&engine) => unreachable!("it is never ready"),
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %control.settings().socket.display(), "serving");
    budget::notice(&control, &reduced, found.smallest());
    let (stopping, stops) = tokio::sync::watch::channel(false);
    let feeding = tokio::spawn(pulse.feed(stops));
    let watching = tokio::spawn(control.clone().watch_memory(found, memory.cache_bytes));
    let looking_below = tokio::spawn(control.clone().watch_room());
    let counting = tokio::spawn(control.clone().watch_descriptors());
    systemd::ready();
    let stop = async move {
        asked.next().await;
        stop::end_by_force_after(STOP_MAX);
        stopping.send_replace(true);
        systemd::stopping();
    };
    api::serve(control.clone(), listening, stop).await?;
    tracing::info!("stopping");
    // After an end that is not complete nobody waits for the shards: a disk that does not answer may hold them.
    control.stop().await?;
    shards.join()?;
    feeding.abort();
    watching.abort();
    looking_below.abort();
    counting.abort();
    tracing::info!("stopped");
    Ok(())
}

/// A crash leaves no file of the memory, and no process of the same user may look into it: secrets and hosts' data are there.
fn forbid_dumps() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user may read the daemon's memory");
    }
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::warn!(%error, "a crash may leave a file of the daemon's memory");
    }
}

/// As many open files as the system allows: each connection is one, and the usual allowance is far below what there may be.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the number of open files stays as it was");
    }
    if let Some(allowed) = limit.current.filter(|&allowed| allowed < OPEN_FILES_WANTED) {
        tracing::warn!(
            allowed,
            wanted = OPEN_FILES_WANTED,
            "the system allows few open files; raise the hard limit (LimitNOFILE, ulimit -Hn) for all sessions that may be"
        );
    }
}
