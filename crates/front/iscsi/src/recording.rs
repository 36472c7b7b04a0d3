//! The recordings that run: what goes over the wire of hosts, for an operator who asks for it. A connection that is not recorded
//! has an empty list of recorders, and that is all that it costs.

mod recorder;
mod tape;

use crate::nexus::SessionId;
use model::Network;
pub(crate) use recorder::Recorder;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use tape::Tape;

/// Whose connections are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of this session.
    Session(SessionId),
    /// All that come from here.
    From(Network),
}

impl Scope {
    /// True for a connection from `peer`, which may be one of a session.
    #[must_use]
    pub fn takes(&self, peer: IpAddr, session: Option<SessionId>) -> bool {
        match self {
            Self::Session(id) => session == Some(*id),
            Self::From(network) => network.contains(peer),
        }
    }
}

/// All recordings of the daemon. Cheap to clone, the same everywhere; looked at when connections come and sessions end.
#[derive(Clone)]
pub struct Recordings(Arc<Mutex<Running>>);

struct Running {
    tapes: Vec<(u64, Tape)>,
    tapes_max: usize,
    next: u64,
}

impl Recordings {
    /// None runs, and at most so many will.
    pub fn new(tapes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Running { tapes: Vec::new(), tapes_max, next: 1 })))
    }

    /// One more runs: its number. `None` when too many do.
    pub fn begin(&self, tape: Tape) -> Option<u64> {
        let mut running = self.running();
        if running.tapes.len() == running.tapes_max {
            return None;
        }
        let number = running.next;
        running.next += 1;
        running.tapes.push((number, tape));
        Some(number)
    }

    /// The tape of the recording, while it runs.
    pub fn find(&self, number: u64) -> Option<Tape> {
        self.running().tapes.iter().find(|(other, _)| *other == number).map(|(_, tape)| tape.clone())
    }

    /// The recording does not run any more.
    pub fn end(&self, number: u64) {
        self.running().tapes.retain(|(other, tape)| {
            let is_it = *other == number;
            if is_it {
                tape.end();
            }
            !is_it
        });
    }

    /// The session is over, and with it what records it alone.
    pub fn end_of(&self, session: SessionId) {
        let running = self.running();
        running
            .tapes
            .iter()
            .filter(|(_, tape)| *tape.scope() == Scope::Session(session))
            .for_each(|(_, tape)| tape.end());
    }

    /// What a connection from `peer`, which may be one of a session, is recorded to.
    pub fn of(&self, peer: IpAddr, session: Option<SessionId>) -> Vec<Tape> {
        let running = self.running();
        let takes = |(_, tape): &&(u64, Tape)| tape.scope().takes(peer, session);
        running.tapes.iter().filter(takes).map(|(_, tape)| tape.clone()).collect()
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
