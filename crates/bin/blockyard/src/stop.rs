//! Signals that stop a process.

use crate::failure::UNENDED;
use std::io;
use std::process::exit;
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receiver of SIGTERM and SIGINT; while it exists, neither terminates the process.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers.
    ///
    /// *Errors*: the system refuses a handler. *Panics*: outside of a runtime with I/O.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Exits the process after `most` if it is still running then. A separate thread does it, since the tasks of the stop
/// may hang.
pub(crate) fn end_by_force_after(most: Duration) {
    let watch = move || {
        thread::sleep(most);
        tracing::error!(seconds = most.as_secs(), "the daemon did not stop in time; exiting now");
        exit(i32::from(UNENDED));
    };
    // The stop continues without a deadline: the service manager has one of its own.
    if let Err(error) = thread::Builder::new().name("stop".to_owned()).spawn(watch) {
        tracing::warn!(%error, "the shutdown timeout cannot be enforced");
    }
}
