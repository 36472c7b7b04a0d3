//! The two kernel interfaces behind one type: io_uring, and epoll with worker threads.
//!
//! Called by the reactor only.

mod file_queues;
mod poll;
mod workers;

use crate::operation::{Done, Operation, Token, Wait};
use crate::options::{Io, Options};
use crate::sys::ring::Ring;
use file_queues::FileQueues;
pub(crate) use file_queues::WORKERS_MAX;
use poll::Poller;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Kernel interface of one shard.
pub(crate) enum Backend {
    Ring(Box<LimitedRing>),
    Poller(Box<Poller>),
}

/// Ring with a limit on the operations of each disk in it.
pub(crate) struct LimitedRing {
    ring: Ring,
    queues: FileQueues,
    landed: Vec<Done>,
}

impl LimitedRing {
    fn backend(ring: Ring) -> Backend {
        Backend::Ring(Box::new(Self { ring, queues: FileQueues::default(), landed: Vec::new() }))
    }

    fn start(&mut self, token: Token, operation: Operation) {
        if let Some(operation) = self.queues.admit(token, operation) {
            self.ring.start(token, operation);
        }
    }

    fn turn(&mut self, wait: Wait, done: &mut Vec<Done>) -> io::Result<()> {
        // Both vectors are reused, so that a turn does not allocate.
        let mut landed = std::mem::take(&mut self.landed);
        let turned = self.ring.turn(wait, &mut landed);
        for one in &landed {
            // Pushed only: the next turn submits it, at the latest the one in which the shard sleeps.
            if let Some((token, next)) = self.queues.land(&one.landed.operation) {
                self.ring.start(token, next);
            }
        }
        done.append(&mut landed);
        self.landed = landed;
        turned
    }
}

impl Backend {
    /// Opens the backend that `options` select. A write to `wake` ends the sleep of one with workers; a ring is woken
    /// through an ordinary poll on that descriptor.
    pub fn open(options: &Options, wake: &Arc<OwnedFd>) -> io::Result<Self> {
        let poller =
            || Poller::new(options.threads_per_disk_max, wake.clone()).map(|poller| Self::Poller(Box::new(poller)));
        match options.io {
            Io::Threads => poller(),
            // No fallback: an explicit choice that is not possible is an error.
            Io::Uring => Ring::new(options.queue_entries, options.restricted).map(LimitedRing::backend),
            Io::Auto => match Ring::new(options.queue_entries, options.restricted) {
                Ok(ring) => Ok(LimitedRing::backend(ring)),
                Err(error) => {
                    warn_once(&error);
                    poller()
                }
            },
        }
    }

    /// The selected interface; never [`Io::Auto`].
    pub fn interface(&self) -> Io {
        match self {
            Self::Ring(_) => Io::Uring,
            Self::Poller(_) => Io::Threads,
        }
    }

    /// See [`Ring::start`].
    pub fn start(&mut self, token: Token, operation: Operation) {
        match self {
            Self::Ring(ring) => ring.start(token, operation),
            Self::Poller(poller) => poller.start(token, operation),
        }
    }

    /// See [`Ring::cancel_poll`].
    pub fn cancel_poll(&mut self, token: Token) {
        match self {
            Self::Ring(ring) => ring.ring.cancel_poll(token),
            Self::Poller(poller) => poller.cancel_poll(token),
        }
    }

    /// See [`Ring::turn`].
    pub fn turn(&mut self, wait: Wait, done: &mut Vec<Done>) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.turn(wait, done),
            Self::Poller(poller) => poller.turn(wait, done),
        }
    }

    /// True when a turn may find completions without waiting.
    pub fn has_news(&mut self) -> bool {
        match self {
            Self::Ring(ring) => ring.ring.has_news(),
            // epoll has no shared memory to look at: finding out takes the system call of a turn.
            Self::Poller(_) => true,
        }
    }
}

/// True when this process is allowed to create a ring.
#[must_use]
pub fn makes_ring() -> bool {
    // Unrestricted: only the permission to create a ring is in question.
    Ring::new(4, false).is_ok()
}

fn warn_once(error: &io::Error) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        tracing::warn!("io_uring is not available ({error}); sockets use epoll, and disks use threads");
    });
}
