//! Reactor of one shard: starts operations and delivers their results to the waiting tasks.

use crate::backend::Backend;
use crate::operation::{Done, Interest, Landed, Operation, Token, Wait};
use crate::operation_table::{OnLanded, OperationTable};
use crate::options::{Io, Options};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Kernel side of one shard.
pub(crate) struct Reactor {
    backend: Backend,
    flights: OperationTable,
    /// Eventfd that ends the sleep; always polled.
    wake_event: Arc<OwnedFd>,
    wake_token: Token,
    done: Vec<Done>,
}

impl Reactor {
    /// Returns a reactor that is woken by `bell`.
    pub fn new(options: &Options, bell: Arc<OwnedFd>) -> io::Result<Self> {
        let mut backend = Backend::open(options, &bell)?;
        let mut flights = OperationTable::default();
        let bell_token = flights.allocate();
        // Armed before the first sleep, which it must be able to end.
        backend.start(bell_token, poll_wake_event(&bell));
        Ok(Self { backend, flights, wake_event: bell, wake_token: bell_token, done: Vec::new() })
    }

    /// Starts `operation`; its result is polled with the token.
    pub fn start(&mut self, operation: Operation) -> Token {
        let token = self.flights.allocate();
        self.backend.start(token, operation);
        token
    }

    /// See [`OperationTable::poll`].
    pub fn poll(&mut self, token: Token, cx: &mut Context<'_>) -> Poll<Landed> {
        self.flights.poll(token, cx)
    }

    /// Cancels waiting for a socket.
    pub fn abandon_poll(&mut self, token: Token) {
        // A wait that has landed already needs no cancellation.
        if self.flights.abandon(token, || None) {
            self.backend.cancel_poll(token);
        }
    }

    /// Abandons a disk operation; `on_landed` is asked for the receiver of its result.
    pub fn abandon_disk(&mut self, token: Token, on_landed: impl FnOnce() -> Option<OnLanded>) {
        self.flights.abandon(token, on_landed);
    }

    /// Submits started operations, waits up to `wait`, and wakes the tasks whose operations have landed.
    pub fn turn(&mut self, wait: Wait) -> io::Result<()> {
        let waited = self.wait(wait);
        // Also after an error: completions may have arrived before it.
        self.land();
        waited
    }

    /// Submits started operations and waits up to `wait`. [`Reactor::land`] then wakes the tasks.
    pub fn wait(&mut self, wait: Wait) -> io::Result<()> {
        self.backend.turn(wait, &mut self.done)
    }

    /// Wakes the tasks whose operations have landed.
    pub fn land(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        for Done { token, landed } in done.drain(..) {
            if token == self.wake_token {
                // The counter is cleared before the poll is armed again; otherwise it would end every sleep at once.
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.wake_event, &mut count);
                self.backend.start(token, landed.operation);
            } else {
                self.flights.land(token, landed);
            }
        }
        self.done = done;
    }

    /// See [`Backend::interface`].
    pub fn interface(&self) -> Io {
        self.backend.interface()
    }

    /// See [`Backend::has_news`].
    pub fn has_news(&mut self) -> bool {
        self.backend.has_news()
    }
}

fn poll_wake_event(bell: &Arc<OwnedFd>) -> Operation {
    Operation::Poll { socket: bell.clone(), interest: Interest::Read }
}
