//! Reactor of one shard: starts operations and delivers their results to the waiting tasks.

use crate::backend::Backend;
use crate::flight::Flights;
use crate::operation::{Done, Interest, Landed, Operation, Token, Wait};
use crate::options::{Io, Options};
use crate::orphans::OrphanGuard;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Kernel side of one shard.
pub(crate) struct Reactor {
    backend: Backend,
    flights: Flights,
    /// Eventfd that ends the sleep; always polled.
    bell: Arc<OwnedFd>,
    bell_token: Token,
    done: Vec<Done>,
}

impl Reactor {
    /// Returns a reactor that is woken by `bell`.
    pub fn new(options: &Options, bell: Arc<OwnedFd>) -> io::Result<Self> {
        let mut backend = Backend::open(options, &bell)?;
        let mut flights = Flights::default();
        let bell_token = flights.allocate();
        backend.start(bell_token, wait_for_bell(&bell));
        Ok(Self { backend, flights, bell, bell_token, done: Vec::new() })
    }

    /// Starts `operation`; its result is polled with the token.
    pub fn start(&mut self, operation: Operation) -> Token {
        let token = self.flights.allocate();
        self.backend.start(token, operation);
        token
    }

    /// See [`Flights::poll`].
    pub fn poll(&mut self, token: Token, cx: &mut Context<'_>) -> Poll<Landed> {
        self.flights.poll(token, cx)
    }

    /// Cancels waiting for a socket.
    pub fn abandon_poll(&mut self, token: Token) {
        if self.flights.abandon(token, || None) {
            self.backend.cancel_poll(token);
        }
    }

    /// Abandons a disk operation; `guard` is asked for when it is still in flight.
    pub fn abandon_disk(&mut self, token: Token, guard: impl FnOnce() -> Option<OrphanGuard>) {
        self.flights.abandon(token, guard);
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
            if token == self.bell_token {
                // The counter is cleared before the poll is armed again; otherwise the bell would ring forever.
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.bell, &mut count);
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

fn wait_for_bell(bell: &Arc<OwnedFd>) -> Operation {
    Operation::Poll { socket: bell.clone(), interest: Interest::Read }
}
