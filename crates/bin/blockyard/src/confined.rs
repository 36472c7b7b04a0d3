//! Confinement of the daemon, and its requests to the privileged helper (docs/adr/0019-process-model.md).
//!
//! `serve` calls [`PrivilegedConnection::hold`] first, [`confine`] when the state folder, the key and the socket are
//! open and while there is one thread, and [`seal`] when the rings exist. Nothing here may read data from the network.

mod calls;
mod client;
mod files;
mod identity;
#[cfg(debug_assertions)]
pub(crate) mod probe;

pub(crate) use client::Client;

use crate::config::Config;
use crate::user::User;
use model::{Measure, MeasureReport, MeasureState, Refusal, code};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal,
    setrlimit,
};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Connection to the helper, and the tie to its lifetime.
pub(crate) struct PrivilegedConnection {
    helper: u32,
    socket: OwnedFd,
}

impl PrivilegedConnection {
    /// Ties this process to its helper: it is killed when the helper ends. Takes over the socket from standard input.
    ///
    /// *Errors*: the process was not started by a helper.
    pub(crate) fn hold(helper: u32) -> Result<Self, Refusal> {
        let failed = |error: std::io::Error| {
            let hint = "start blockyard serve without --under";
            Refusal::new(code::IO_FAILED, format!("the privileged helper did not start: {error}"), hint)
        };
        let tied = Self {
            helper,
            // At least 3: lower numbers are the standard streams, which other code replaces or closes.
            socket: rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|errno| failed(errno.into()))?,
        };
        // Fails for anything but a socket, such as the terminal of a user who typed `--under`.
        rustix::net::sockopt::socket_type(&tied.socket).map_err(|errno| failed(errno.into()))?;
        // Standard input must not stay the socket: a library that reads it would take answers.
        let null = File::open("/dev/null").map_err(failed)?;
        rustix::stdio::dup2_stdin(&null).map_err(|errno| failed(errno.into()))?;
        tied.renew().map_err(failed)?;
        // Otherwise the process would be named `exe`, after the link that it was started by.
        let _ = rustix::thread::set_name(c"blockyard");
        Ok(tied)
    }

    /// Sets the parent death signal again, which the kernel clears on a change of the user.
    fn renew(&self) -> std::io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let parent = getppid().map(Pid::as_raw_nonzero).and_then(|pid| u32::try_from(pid.get()).ok());
        // The helper may have ended before the signal was set.
        if parent == Some(self.helper) { Ok(()) } else { Err(std::io::Error::other("it has exited")) }
    }

    /// Changes to the configured user.
    ///
    /// *Errors*: the system does not allow it.
    pub(crate) fn become_user(&self, user: &User) -> Result<(), Refusal> {
        let changed = user.take().and_then(|()| self.renew());
        changed.map_err(|error| {
            let hint = "start as root or as that user, or remove user from the configuration";
            Refusal::new(code::CONFIG_INVALID, format!("the daemon cannot switch to user {}: {error}", user.name), hint)
        })
    }
}

/// Forbids core dumps and access by other processes of the same user: the memory holds secrets and hosts' data.
pub(crate) fn forbid_dumps() -> std::io::Result<()> {
    // The limit alone does not suffice: the kernel ignores it if `core_pattern` is a pipe (core(5)).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

/// Confines this thread and all threads that it starts: no privileges, no other files, no other system calls.
///
/// Rings are restricted where they are created; [`seal`] forbids further ones. A measure that the kernel lacks is
/// reported, and the daemon starts without it.
pub(crate) fn confine(config: &Config) -> Vec<MeasureReport> {
    let report = |measure, in_force: Result<Option<String>, String>| {
        let (state, detail) = match in_force {
            Ok(detail) => (MeasureState::InForce, detail),
            Err(why) => (MeasureState::NotSupported, Some(why)),
        };
        if state == MeasureState::NotSupported {
            tracing::warn!(measure = Measure::as_str(measure), why = detail.as_deref(), "the sandbox is incomplete");
        }
        MeasureReport { measure, state, detail }
    };
    // Order of docs/adr/0019-process-model.md: seccomp is last, since it forbids the calls that the steps before it
    // make.
    let memory = report(Measure::Memory, forbid_dumps().map(|()| None).map_err(|error| error.to_string()));
    let privileges = report(Measure::Privileges, identity::drop_privileges());
    let landlock = report(Measure::Landlock, files::restrict(config));
    let seccomp = report(Measure::Seccomp, calls::restrict().map(|()| None));
    // Without seccomp a new ring could be created without restrictions.
    let rings = match seccomp.state {
        MeasureState::InForce => Ok(None),
        _ => Err("seccomp does not block the creation of another ring".to_owned()),
    };
    vec![memory, privileges, landlock, seccomp, report(Measure::Rings, rings)]
}

/// Forbids all threads to create a ring or to change a filter.
///
/// *Errors*: the message of the kernel.
pub(crate) fn seal() -> Result<(), String> {
    calls::seal()
}

/// Returns the report of a daemon that is not confined.
pub(crate) fn switched_off() -> Vec<MeasureReport> {
    let off = |measure| {
        // Core dumps are disabled in any case.
        let state = if measure == Measure::Memory { MeasureState::InForce } else { MeasureState::SwitchedOff };
        MeasureReport { measure, state, detail: None }
    };
    Measure::ALL.map(off).into()
}
