//! Whoever wants this process to end says so by a signal.

use crate::failure::UNENDED;
use std::io;
use std::process::exit;
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, as long as this is kept: neither ends the process any more.
pub(crate) struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    /// Heard from now on.
    ///
    /// *Errors*: the system takes no handler. *Panics*: outside of a runtime with I/O.
    pub(crate) fn heard() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Ready when the next one comes.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The process ends after `most`, if it has not by then: a thread of its own sees to it, for those that should end it may hang.
pub(crate) fn end_by_force_after(most: Duration) {
    let watch = move || {
        thread::sleep(most);
        tracing::error!(seconds = most.as_secs(), "the daemon has not stopped in its time; it ends now");
        exit(i32::from(UNENDED));
    };
    if let Err(error) = thread::Builder::new().name("stop".to_owned()).spawn(watch) {
        tracing::warn!(%error, "nobody watches how long stopping takes");
    }
}
