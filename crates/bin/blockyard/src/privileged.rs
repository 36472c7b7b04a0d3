//! Privileged helper: the process that `blockyard serve` starts as (docs/adr/0019-process-model.md).
//!
//! It starts the same program as the confined daemon, answers its requests over a socket pair, forwards signals, and
//! exits with the daemon's status. Requests that a disk can block run on threads of their own ([`workers`]). The helper
//! must never read from the network, never exit because of a request of the daemon, and never do anything that
//! [`policy`] does not allow.

mod policy;
mod programs;
mod request_socket;
mod verbs;
mod workers;

pub(crate) use policy::Policy;

use crate::config::Config;
use crate::failure::Failure;
use crate::user::prepare;
use model::{Refusal, code};
use privilege::{Answer, Outcome, Request, Verb};
use programs::Programs;
use request_socket::{Packet, RequestSocket};
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
use workers::Workers;

/// Path of the running program, which stays valid after an upgrade has replaced its file.
const SELF: &str = "/proc/self/exe";

/// Limit of requests in flight, including answers that the daemon has not read. It exceeds the number of threads, so
/// that requests that hang do not block others.
const IN_FLIGHT_MAX: usize = 256;

/// Interval at which a daemon that was told to stop is checked for being a zombie (ended but for threads that the
/// kernel keeps for a disk), and the number of consecutive checks after which the helper gives up.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const ZOMBIE_LOOKS: u32 = 8;

/// Number of malformed packets that are logged.
const COMPLAINTS_MAX: u64 = 10;

/// Runs the daemon as a child process until it ends, and exits with its status.
///
/// *Errors*: the failure that kept the daemon from starting.
pub(crate) fn run(config: &Config) -> Result<(), Failure> {
    // No core dump: secrets never enter this process, but the configuration and paths do.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // One thread suffices: every verb that can block runs on a worker thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unable("an event queue", &error))?;
    let status = runtime.block_on(serve(config))?;
    end_like(status)
}

async fn serve(config: &Config) -> Result<ExitStatus, Refusal> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Packets keep request boundaries, so that a damaged request cannot desynchronize the stream.
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.map_err(|error| unable("a socket pair", &error))?;
    // Installed before the daemon starts: a signal in between would end the helper, and the daemon by its death signal.
    let mut signals = Signals::heard().map_err(|error| unable("signals", &error))?;
    let line = RequestSocket::new(ours).map_err(|error| unable("an event queue", &error))?;
    // The daemon cannot change owners after it has dropped its privileges.
    if let Some(user) = &config.user {
        let settings = &config.settings;
        prepare(user, &settings.state_dir, config.opening.key.as_deref(), &settings.socket).map_err(|error| {
            let message =
                format!("cannot change the owner of {} to user {}: {error}", settings.state_dir.display(), user.name);
            Refusal::new(code::IO_FAILED, message, "start as root, or as that user")
        })?;
    }
    let mut daemon = start(theirs).map_err(|error| unable("the daemon's process", &error))?;
    let line = Arc::new(line);
    let mut office = RequestServer {
        verbs: Arc::new(Verbs::new(Policy::of(config))),
        workers: Workers::default(),
        places: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        programs: Programs::default(),
        line: line.clone(),
        damaged: 0,
    };
    // `is_told_to_end` and `is_open` start the zombie check: without them a daemon with hung threads is left alone.
    let (mut is_open, mut is_told_to_end, mut zombie_looks) = (true, false, 0);
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            status = daemon.wait() => return status.map_err(|error| unable("the status of the daemon", &error)),
            // Nothing polls for a daemon that was not told to end: `wait` reports its end.
            _ = look.tick(), if is_told_to_end || !is_open => match daemon.id().and_then(zombie) {
                Some(status) if zombie_looks == ZOMBIE_LOOKS => {
                    eprintln!("blockyard: the daemon has exited; the kernel keeps its threads until a disk responds");
                    return Ok(status);
                }
                // Any check that finds the daemon alive starts the count again.
                found => zombie_looks = if found.is_some() { zombie_looks + 1 } else { 0 },
            },
            signal = signals.next() => {
                // The daemon decides what a signal means; the helper only forwards it and waits.
                is_told_to_end = true;
                forward_signal(&daemon, signal);
            }
            packet = line.receive(), if is_open => match packet {
                Ok(Some(packet)) => office.answer(packet).await,
                // The daemon has closed its end, so it is about to exit.
                // The branch is switched off, since a closed socket is always readable.
                Ok(None) | Err(_) => is_open = false,
            },
        }
    }
}

/// Starts the daemon with one end of the socket pair as its standard input, the only descriptor that can be passed
/// without `unsafe`.
fn start(theirs: OwnedFd) -> std::io::Result<Child> {
    // The daemon reads it in a blocking thread.
    rustix::io::ioctl_fionbio(&theirs, false)?;
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "blockyard".into());
    let mut command = std::process::Command::new(SELF);
    // With this number the daemon detects that its helper ended before the death signal was set.
    command.arg0(name).args(arguments).arg("--under").arg(getpid().to_string()).stdin(Stdio::from(theirs));
    // systemd named this process in `WATCHDOG_PID`, but the daemon feeds the watchdog, and its number is not known yet.
    // A `WATCHDOG_PID` of another process is left alone.
    if std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid == getpid().to_string()) {
        command.env_remove("WATCHDOG_PID");
    }
    Command::from(command).spawn()
}

/// State of the helper while it answers requests.
struct RequestServer {
    verbs: Arc<Verbs>,
    workers: Workers,
    /// Permits for requests in flight.
    places: Arc<Semaphore>,
    programs: Programs,
    line: Arc<RequestSocket>,
    /// Number of requests refused as malformed.
    damaged: u64,
}

impl RequestServer {
    /// Logs a malformed packet. Such a daemon is broken or hostile, so only the first ones are logged.
    fn log_malformed(&mut self, why: &str) {
        self.damaged += 1;
        if self.damaged <= COMPLAINTS_MAX {
            eprintln!("blockyard: the helper denied a request of the daemon: {why}");
        }
    }

    async fn answer(&mut self, packet: Packet) {
        let request = match packet.request() {
            Ok(request) => request,
            Err((number, why)) => {
                self.log_malformed(&why);
                // Answered all the same: the daemon would wait for its timeout.
                return self.line.send(&Answer { number, outcome: Outcome::Refused { reason: why } }, None).await;
            }
        };
        let Request { number, verb } = request;
        let (verbs, desks, line) = (self.verbs.clone(), self.workers.clone(), self.line.clone());
        if matches!(verb, Verb::Health { .. } | Verb::Contents { .. }) {
            // These run programs with limits of their own, and must not take the permits of the other requests.
            return self.programs.start(verbs, desks, verb, number, &line).await;
        }
        // Requests run concurrently, up to the limit of permits.
        // While all permits are taken no further packet is received, so the requests wait in the socket.
        let Ok(place) = self.places.clone().acquire_owned().await else { return };
        tokio::spawn(async move {
            let _place = place;
            let asked = verb.clone();
            let done = desks.run_blocking(&verb, number, move || verbs.act(&asked)).await;
            let (outcome, descriptor) = done.unwrap_or_else(workers::outcome_of);
            line.send(&Answer { number, outcome }, descriptor.as_ref()).await;
        });
    }
}

/// Signals that end the daemon.
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

fn forward_signal(daemon: &Child, signal: Signal) {
    let pid = daemon.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // The daemon may have ended; its status then arrives next.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// Returns the exit status of a process whose first thread has ended while the kernel keeps others.
///
/// *Source*: proc(5), `/proc/pid/stat`: the state is the first field after the name, the exit code the last.
fn zombie(process: u32) -> Option<ExitStatus> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may contain spaces and parentheses itself, hence the search from the right.
    let fields = stat.rsplit_once(") ")?.1;
    // The field has the format of waitpid(2), as `from_raw` expects.
    let code = fields.split_whitespace().last()?.parse().ok()?;
    fields.starts_with('Z').then(|| ExitStatus::from_raw(code))
}

/// Ends this process with the exit code of the daemon, or by the signal that ended it.
fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        // systemd then records the true cause. If the signal does not end this process, the shell's code 128 + n
        // follows.
        let _ = kill_process(getpid(), signal);
    }
    std::process::exit(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1))
}

fn unable(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(code::IO_FAILED, format!("the helper cannot create {what}: {error}"), "start with --no-sandbox")
}

#[cfg(test)]
mod tests;
