//! Start, run and stop of the daemon (`blockyard serve`).
//!
//! Called from `main`. The order of the steps is the point of this file: the state folder is locked before anything
//! else, and the process is confined before the first byte from a host is read (docs/adr/0019-process-model.md).

use crate::args::ServeOptions;
use crate::budget::{self, MemoryBudget};
use crate::config::Config;
use crate::confined::{self, Client, PrivilegedConnection};
use crate::engine;
use crate::failure::Failure;
use crate::log;
use crate::privileged;
use crate::stop::{self, StopSignals};
use crate::systemd::{self, Watchdog};
use api::LastLines;
use control::memory::MemoryLimits;
use control::{Confinement, Control, Privileged, Store};
use model::{Measure, MeasureReport, MeasureState, Refusal, code};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uring::Privileges;

/// Deadline of a stop: the daemon exits after this time even if a disk or a session does not end. It is below the 120 s
/// of the service file, so that systemd does not kill it first.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Timeout and polling interval while the state folder is still locked by a daemon that is ending.
const HANDOVER: Duration = Duration::from_secs(3);
const HANDOVER_STEP: Duration = Duration::from_millis(20);

/// Limit of open files that suffices for the maximum of sessions, half-open logins, disks and listeners.
pub(crate) const OPEN_FILES_WANTED: u64 = 18_432;

/// Runs the daemon until it is told to stop, and stops it cleanly.
///
/// *Errors*: the configuration, the state or the system keeps it from starting.
pub(crate) fn serve(options: &ServeOptions, socket: Option<PathBuf>) -> Result<(), Failure> {
    let config = Config::load(options, socket)?;
    #[cfg(debug_assertions)]
    confined::probe::arm(options.probe);
    // `--under` marks the second process. Without it, this process becomes the privileged helper, which starts the
    // daemon.
    let tie = match options.under {
        Some(helper) => Some(PrivilegedConnection::hold(helper)?),
        None if config.sandbox => return privileged::run(&config),
        None => None,
    };
    // The user changes while there is one thread: the kernel keeps credentials per thread.
    if let (Some(tie), Some(user)) = (&tie, &config.user) {
        tie.become_user(user)?;
    }
    let last_lines = log::start(&config.log, config.log_form)?;
    raise_open_files();
    if let Err(error) = confined::forbid_dumps() {
        tracing::warn!(%error, "the memory of the daemon is not protected: other processes of this user can read \
             it, or a crash can write a core dump");
    }
    // One thread: seccomp and Landlock are applied while there is no other. The shards get threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("cannot create an event queue: {error}"), "close other programs")
    })?;
    Ok(runtime.block_on(run(config, last_lines, tie))?)
}

async fn run(config: Config, last_lines: LastLines, tie: Option<PrivilegedConnection>) -> Result<(), Refusal> {
    // The state folder is locked first: its owner also owns the disks, so two daemons never write to one pool.
    let store = open_store(&config)?;
    // Bound before the confinement, which allows only removals in the folder of the socket.
    let mut listening = api::listen(&config.settings.socket)?.with_log(last_lines);
    if let Some(web) = config.web.clone() {
        listening = listening.with_web(web);
    }
    let confinement = confine(&config, tie)?;
    // Before the engine starts: a signal during a long opening of pools must not end the daemon in the middle.
    let mut asked = StopSignals::install().map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("cannot install signal handlers: {error}"), "start again")
    })?;
    let node = store.identity(&config.settings.node)?;
    // The memory limit is read before the shards start, since the sizes of their buffers and of the cache depend on it.
    let found = MemoryLimits::detect(Path::new("/"));
    let (memory, reduced) = MemoryBudget::of(&config, &found);
    let (limited_by, limit) = found.smallest();
    tracing::info!(limit, limited_by, cache = memory.cache_bytes, buffers = memory.buffer_bytes, "memory");
    let helper = confinement.client.clone();
    let privileges = helper.clone().map(|client| Privileges(client));
    let (engine, shards) = engine::start(&config, memory, &node, &store.pool_secret(), privileges)?;
    let pulse = Watchdog::new(engine.clone(), config.settings.socket.clone()).with_privileged(helper.clone());
    // Once the shards have their rings, no thread may create another one (second seccomp filter).
    let confinement = confinement.sealed();
    #[cfg(debug_assertions)]
    confined::probe::run(&config.settings.state_dir, helper.as_ref());
    // systemd is asked for more time while disks and pools are opened, which may take longer than its start timeout.
    let control = tokio::select! {
        control = Control::start(config.settings, store, engine.clone()) => Arc::new(control::confined(control?, confinement)),
        () = systemd::starting(&engine) => unreachable!("startup failed"),
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %control.core.settings().socket.display(), "serving");
    budget::notice(&control, &reduced, found.smallest());
    // The watchdog skips its checks once this is true.
    let (stopping, stops) = tokio::sync::watch::channel(false);
    let feeding = tokio::spawn(pulse.feed(stops));
    let watching = tokio::spawn(control.memory.clone().watch(found, memory.cache_bytes));
    let remembering = tokio::spawn(control.memberships.clone().keep());
    let looking_below = tokio::spawn(control.file_space.clone().watch());
    let counting = tokio::spawn(control.descriptors.clone().watch());
    // `READY=1` is sent only now, so that units ordered after this one find the array serving.
    systemd::ready();
    let stop = async move {
        asked.next().await;
        // A disk that does not answer could hold the ordered stop forever.
        stop::end_by_force_after(STOP_MAX);
        stopping.send_replace(true);
        systemd::stopping();
    };
    api::serve(control.clone(), listening, stop).await?;
    tracing::info!("stopping");
    // `control.stop` fails if the data plane did not stop completely. The shards are then not joined: a disk that does
    // not answer may hold them.
    control.stop().await?;
    shards.join()?;
    // The watchdog was fed until here, because a stop may take longer than its period.
    feeding.abort();
    watching.abort();
    remembering.abort();
    looking_below.abort();
    counting.abort();
    tracing::info!("stopped");
    Ok(())
}

/// Opens and locks the state folder. A daemon that was killed with its helper may hold the lock for a moment, hence the
/// retries.
fn open_store(config: &Config) -> Result<Store, Refusal> {
    let begun = Instant::now();
    loop {
        match Store::open_with(&config.settings.state_dir, &config.opening) {
            Err(refusal) if refusal.code == code::STATE_LOCKED && begun.elapsed() < HANDOVER => {
                std::thread::sleep(HANDOVER_STEP);
            }
            opened => return opened,
        }
    }
}

/// Result of the confinement: the client of the helper, if there is one, and the state of each measure.
struct Confined {
    client: Option<Arc<Client>>,
    measures: Vec<MeasureReport>,
}

/// Confines this process and connects to the helper. Without a helper nothing is confined.
fn confine(config: &Config, tie: Option<PrivilegedConnection>) -> Result<Confined, Refusal> {
    let Some(tie) = tie else { return Ok(Confined { client: None, measures: confined::switched_off() }) };
    let measures = confined::confine(config);
    // The thread that reads the helper's answers is started after confinement, so that it inherits the filters.
    let client = Client::start(tie).map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("cannot create a thread: {error}"), "close other programs")
    })?;
    Ok(Confined { client: Some(client), measures })
}

impl Confined {
    /// Forbids further rings, and returns the report that control shows to the administrator.
    fn sealed(mut self) -> Confinement {
        if self.client.is_some()
            && let Err(error) = confined::seal()
        {
            // The daemon serves all the same; the report says that this measure is missing.
            tracing::warn!(error, "rings can still be made");
            let rings = self.measures.iter_mut().filter(|report| report.measure == Measure::Rings);
            rings.for_each(|report| report.state = MeasureState::NotSupported);
        }
        Confinement { privileged: self.client.map(|client| client as Arc<dyn Privileged>), measures: self.measures }
    }
}

/// Raises the soft limit of open files to the hard limit: each connection is a file, and the usual soft limit is far
/// below the maximum of sessions.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the open-file limit could not be raised");
    }
    if let Some(allowed) = limit.current.filter(|&allowed| allowed < OPEN_FILES_WANTED) {
        tracing::warn!(
            allowed,
            wanted = OPEN_FILES_WANTED,
            "the open-file limit is low; raise the hard limit (LimitNOFILE, ulimit -Hn) for the expected number \
             of sessions"
        );
    }
}
