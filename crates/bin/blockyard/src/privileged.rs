//! The privileged helper: the process that `blockyard serve` starts as (docs/adr/0019-process-model.md).
//!
//! It starts the same program as the confined daemon, answers its requests over a socket pair, hands signals on, and ends with the daemon's
//! status. What a disk can hold up is done on threads of their own ([`desks`]). It must never read from the network, never end because of what the daemon says, and never do for it what
//! [`policy`] does not allow.

mod desks;
mod line;
mod policy;
mod programs;
mod verbs;

pub(crate) use policy::Policy;

use crate::config::Config;
use crate::failure::Failure;
use crate::user::prepare;
use desks::Desks;
use line::{Line, Packet};
use model::{Refusal, code};
use privilege::{Answer, Outcome, Request, Verb};
use programs::Programs;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use verbs::Verbs;

/// The program itself, also after an upgrade has replaced its file.
const SELF: &str = "/proc/self/exe";

/// Requests that may wait for an answer, or for the daemon to read it: more than threads, so that those which hang hold up no other.
const PLACES: usize = 256;

/// How often is looked whether a daemon that is to end has ended but for threads that wait for a disk, and for how many looks that
/// must have been so.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const ZOMBIE_LOOKS: u32 = 8;

/// Packets that are no requests are told of so often.
const COMPLAINTS_MAX: u64 = 10;

/// The daemon has run as a process of its own until it ended; this process ends as it did, or returns the failure that kept it from starting.
pub(crate) fn run(config: &Config) -> Result<(), Failure> {
    // Secrets never come here, but the configuration and paths do.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unable("an event queue", &error))?;
    let status = runtime.block_on(serve(config))?;
    end_like(status)
}

async fn serve(config: &Config) -> Result<ExitStatus, Refusal> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.map_err(|error| unable("a socket pair", &error))?;
    let mut signals = Signals::heard().map_err(|error| unable("signals", &error))?;
    let line = Line::new(ours).map_err(|error| unable("an event queue", &error))?;
    if let Some(user) = &config.user {
        let settings = &config.settings;
        prepare(user, &settings.state_dir, config.opening.key.as_deref(), &settings.socket).map_err(|error| {
            let message = format!("{} cannot be given to user {}: {error}", settings.state_dir.display(), user.name);
            Refusal::new(code::IO_FAILED, message, "start as root, or as that user")
        })?;
    }
    let mut daemon = start(theirs).map_err(|error| unable("the daemon's process", &error))?;
    let line = Arc::new(line);
    let mut office = Office {
        verbs: Arc::new(Verbs::new(Policy::of(config))),
        desks: Desks::default(),
        places: Arc::new(Semaphore::new(PLACES)),
        programs: Programs::default(),
        line: line.clone(),
        damaged: 0,
    };
    let (mut is_open, mut is_told_to_end, mut zombie_looks) = (true, false, 0);
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            status = daemon.wait() => return status.map_err(|error| unable("the status of the daemon", &error)),
            _ = look.tick(), if is_told_to_end || !is_open => match daemon.id().and_then(zombie) {
                Some(status) if zombie_looks == ZOMBIE_LOOKS => {
                    eprintln!("blockyard: the daemon has ended; the kernel keeps its threads until a disk answers");
                    return Ok(status);
                }
                found => zombie_looks = if found.is_some() { zombie_looks + 1 } else { 0 },
            },
            signal = signals.next() => {
                is_told_to_end = true;
                hand_on(&daemon, signal);
            }
            packet = line.receive(), if is_open => match packet {
                Ok(Some(packet)) => office.answer(packet).await,
                // The daemon has closed its end, so it is about to end.
                Ok(None) | Err(_) => is_open = false,
            },
        }
    }
}

/// The daemon, with one end of the socket pair as its standard input: the only descriptor that needs no `unsafe` to be passed.
fn start(theirs: OwnedFd) -> std::io::Result<Child> {
    // The daemon reads it from a thread of its own.
    rustix::io::ioctl_fionbio(&theirs, false)?;
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "blockyard".into());
    let mut command = std::process::Command::new(SELF);
    command.arg0(name).args(arguments).arg("--under").arg(getpid().to_string()).stdin(Stdio::from(theirs));
    // The watchdog's process is the daemon: whose number is not known yet. A watchdog for somebody else stays theirs.
    if std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid == getpid().to_string()) {
        command.env_remove("WATCHDOG_PID");
    }
    Command::from(command).spawn()
}

/// What answers requests.
struct Office {
    verbs: Arc<Verbs>,
    desks: Desks,
    /// For requests that were not answered.
    places: Arc<Semaphore>,
    programs: Programs,
    line: Arc<Line>,
    /// Requests that were refused because they are none.
    damaged: u64,
}

impl Office {
    /// A daemon that sends no requests is a broken or a hostile one: its first packets are told of.
    fn complain(&mut self, why: &str) {
        self.damaged += 1;
        if self.damaged <= COMPLAINTS_MAX {
            eprintln!("blockyard: the helper refuses a request of the daemon: {why}");
        }
    }

    async fn answer(&mut self, packet: Packet) {
        let request = match packet.request() {
            Ok(request) => request,
            Err((number, why)) => {
                self.complain(&why);
                return self.line.send(&Answer { number, outcome: Outcome::Refused { why } }, None).await;
            }
        };
        let Request { number, verb } = request;
        let (verbs, desks, line) = (self.verbs.clone(), self.desks.clone(), self.line.clone());
        if matches!(verb, Verb::Health { .. } | Verb::Contents { .. }) {
            return self.programs.start(verbs, desks, verb, number, &line).await;
        }
        // The next request does not wait for this one, unless too many wait already.
        let Ok(place) = self.places.clone().acquire_owned().await else { return };
        tokio::spawn(async move {
            let _place = place;
            let asked = verb.clone();
            let done = desks.carry(&verb, number, move || verbs.act(&asked)).await;
            let (outcome, descriptor) = done.unwrap_or_else(desks::outcome_of);
            line.send(&Answer { number, outcome }, descriptor.as_ref()).await;
        });
    }
}

/// The signals that end the daemon.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn heard() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
        }
    }
}

fn hand_on(daemon: &Child, signal: Signal) {
    let pid = daemon.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // It may have ended, and then its status comes next.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// How the process has ended, where its first thread has and others are kept by the kernel.
///
/// *Source*: proc(5), `/proc/pid/stat`: the state is the first field behind the name, the exit code the last.
fn zombie(process: u32) -> Option<ExitStatus> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields = stat.rsplit_once(") ")?.1;
    let code = fields.split_whitespace().last()?.parse().ok()?;
    fields.starts_with('Z').then(|| ExitStatus::from_raw(code))
}

/// Ends this process with the exit code of the daemon, or by the signal that ended it.
fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        let _ = kill_process(getpid(), signal);
    }
    std::process::exit(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1))
}

fn unable(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(code::IO_FAILED, format!("the helper does not get {what}: {error}"), "start with --no-sandbox")
}

#[cfg(test)]
mod tests;
