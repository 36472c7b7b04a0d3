//! Whoever wants this process to end says so by a signal.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, as long as this is kept: neither ends the process any more.
pub struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    /// Heard from now on.
    ///
    /// *Errors*: the system takes no handler. *Panics*: outside of a runtime with I/O.
    pub fn heard() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Ready when the next one comes.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
