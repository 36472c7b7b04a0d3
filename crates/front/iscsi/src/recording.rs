//! Packet captures: iSCSI traffic of hosts, recorded on request of an operator. A connection that is not captured has
//! an empty list of recorders, which is its only cost.

mod capture_buffer;
mod recorder;

use crate::nexus::SessionId;
pub(crate) use capture_buffer::CaptureBuffer;
use model::Network;
pub(crate) use recorder::Recorder;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Filter of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Connections of this session.
    Session(SessionId),
    /// Connections from this network.
    From(Network),
}

impl Scope {
    /// True when the capture includes a connection from `peer`, which may belong to a session.
    #[must_use]
    pub fn takes(&self, peer: IpAddr, session: Option<SessionId>) -> bool {
        match self {
            Self::Session(id) => session == Some(*id),
            Self::From(network) => network.contains(peer),
        }
    }
}

/// All captures of the daemon. Cheap to clone; clones share the state. Accessed when connections are made and when
/// sessions end.
#[derive(Clone)]
pub struct Recordings(Arc<Mutex<Running>>);

struct Running {
    captures: Vec<(u64, CaptureBuffer)>,
    captures_max: usize,
    next: u64,
}

impl Recordings {
    /// Creates an empty set with an upper bound of concurrent captures.
    pub fn new(tapes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Running { captures: Vec::new(), captures_max: tapes_max, next: 1 })))
    }

    /// Adds a capture and returns its number. `None` when the bound is reached.
    pub fn begin(&self, tape: CaptureBuffer) -> Option<u64> {
        let mut running = self.running();
        // Ended captures count until they are stopped, because they hold memory.
        if running.captures.len() == running.captures_max {
            return None;
        }
        let number = running.next;
        running.next += 1;
        running.captures.push((number, tape));
        Some(number)
    }

    /// Returns the buffer of a running capture.
    pub fn find(&self, number: u64) -> Option<CaptureBuffer> {
        self.running().captures.iter().find(|(other, _)| *other == number).map(|(_, tape)| tape.clone())
    }

    /// Ends a capture.
    pub fn end(&self, number: u64) {
        self.running().captures.retain(|(other, tape)| {
            let is_it = *other == number;
            if is_it {
                tape.end();
            }
            !is_it
        });
    }

    /// Ends the captures of a session that has ended.
    pub fn end_of(&self, session: SessionId) {
        let running = self.running();
        // The entry stays until the reader has fetched the remaining records and stops the capture.
        running
            .captures
            .iter()
            .filter(|(_, tape)| *tape.scope() == Scope::Session(session))
            .for_each(|(_, tape)| tape.end());
    }

    /// Returns the buffers of all captures that include a connection from `peer`, which may belong to a session.
    pub fn of(&self, peer: IpAddr, session: Option<SessionId>) -> Vec<CaptureBuffer> {
        let running = self.running();
        let takes = |(_, tape): &&(u64, CaptureBuffer)| tape.scope().takes(peer, session);
        running.captures.iter().filter(takes).map(|(_, tape)| tape.clone()).collect()
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // No operation leaves the state inconsistent, so a panic of another thread does not invalidate it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
