//! epoll for sockets, workers for disks: the fallback where io_uring is not allowed.

use super::workers::Workers;
use crate::operation::{Done, Interest, Landed, Operation, Token, Wait};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Limit on events of one turn; further events arrive with the next.
const EVENTS_MAX: usize = 256;

/// epoll instance and workers of one shard.
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// By descriptor number.
    sources: Vec<Source>,
    /// Descriptor that each token waits for, by token.
    waits: Vec<Option<usize>>,
    workers: Workers,
    events: Vec<epoll::Event>,
    early: Vec<Done>,
}

/// Waiting tokens of a descriptor. epoll has one entry per descriptor, so both directions share it.
#[derive(Default)]
struct Source {
    read: Option<(Token, Arc<OwnedFd>)>,
    write: Option<(Token, Arc<OwnedFd>)>,
    /// True when epoll has the descriptor. May be out of date in this direction only: closing a descriptor removes it
    /// from epoll.
    known: bool,
}

impl Poller {
    /// Returns an epoll instance without descriptors.
    pub fn new(threads_per_disk_max: usize, wake: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sources: Vec::new(),
            waits: Vec::new(),
            workers: Workers::new(threads_per_disk_max, wake),
            events: Vec::with_capacity(EVENTS_MAX),
            early: Vec::new(),
        })
    }

    /// Starts waiting for a socket, or hands disk I/O to a worker.
    pub fn start(&mut self, token: Token, operation: Operation) {
        let Operation::Poll { socket, interest } = operation else {
            return self.workers.start(token, operation);
        };
        let at = usize::try_from(socket.as_raw_fd()).expect("an open descriptor is not negative");
        if self.sources.len() <= at {
            self.sources.resize_with(at + 1, Source::default);
        }
        if self.waits.len() <= token as usize {
            self.waits.resize(token as usize + 1, None);
        }
        self.waits[token as usize] = Some(at);
        let slot = self.sources[at].slot(interest);
        assert!(slot.is_none(), "one wait per direction of a socket");
        *slot = Some((token, socket));
        // The error is reported as the result of the wait.
        if let Err(errno) = self.arm(at) {
            self.land(at, interest, Err(errno));
        }
    }

    /// Cancels waiting for a socket.
    pub fn cancel_poll(&mut self, token: Token) {
        // No entry: the event has arrived, and its completion is on the way to the reactor.
        let Some(at) = self.waits.get(token as usize).copied().flatten() else { return };
        let reads = self.sources[at].read.as_ref().is_some_and(|(reader, _)| *reader == token);
        let interest = if reads { Interest::Read } else { Interest::Write };
        let socket = self.sources[at].slot(interest).as_ref().map(|(_, socket)| socket.clone());
        // Reported as a completion: the table frees a token only when its operation has landed.
        self.land(at, interest, Err(Errno::CANCELED));
        let source = &mut self.sources[at];
        if source.read.is_some() || source.write.is_some() {
            // The other direction is still armed, possibly for more events than it needs, which is harmless.
            return;
        }
        if let Some(socket) = socket.filter(|_| source.known) {
            source.known = false;
            // An error means that the descriptor is gone already, which is the goal.
            let _ = epoll::delete(&self.epoll, &*socket);
        }
    }

    /// See [`Ring::turn`](crate::sys::ring::Ring::turn).
    pub fn turn(&mut self, wait: Wait, done: &mut Vec<Done>) -> io::Result<()> {
        done.append(&mut self.early);
        self.workers.reap(done);
        // Early completions must reach the reactor now; sleeping would delay them.
        let wait = if done.is_empty() { wait } else { Wait::No };
        let timeout = match wait {
            Wait::No => Some(Timespec::default()),
            Wait::AtMost(duration) => {
                // A duration that does not fit only costs one extra turn an hour.
                Some(Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 }))
            }
            Wait::Forever => None,
        };
        let mut events = std::mem::take(&mut self.events);
        // Otherwise the events of the last turn would be reported again.
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            // The number may have been reused since: then the new socket polls once in vain and waits again.
            let at = usize::try_from(event.data.u64()).expect("events carry a descriptor");
            self.report(at, event.flags);
        }
        self.events = events;
        done.append(&mut self.early);
        self.workers.reap(done);
        Ok(())
    }

    fn report(&mut self, at: usize, flags: epoll::EventFlags) {
        // Errors and hang-ups end the waits of both directions; the socket call then returns the error.
        let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        if broken || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
            self.land(at, Interest::Read, Ok(0));
        }
        if broken || flags.contains(epoll::EventFlags::OUT) {
            self.land(at, Interest::Write, Ok(0));
        }
        // `ONESHOT`: one event disarms both directions, so the other one has to be armed again.
        if let Err(errno) = self.arm(at) {
            self.land(at, Interest::Read, Err(errno));
            self.land(at, Interest::Write, Err(errno));
        }
    }

    fn land(&mut self, at: usize, interest: Interest, result: Result<usize, Errno>) {
        if let Some((token, socket)) = self.sources[at].slot(interest).take() {
            self.waits[token as usize] = None;
            self.early.push(Done { token, landed: Landed { operation: Operation::Poll { socket, interest }, result } });
        }
    }

    /// Arms epoll once for the directions that are waited for.
    fn arm(&mut self, at: usize) -> Result<(), Errno> {
        let source = &mut self.sources[at];
        // Without `ONESHOT` an event that nobody waits for would end every sleep at once.
        let mut flags = epoll::EventFlags::ONESHOT;
        if source.read.is_some() {
            flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        }
        if source.write.is_some() {
            flags |= epoll::EventFlags::OUT;
        }
        let Some((_, socket)) = source.read.as_ref().or(source.write.as_ref()) else { return Ok(()) };
        let data = epoll::EventData::new_u64(at as u64);
        if source.known {
            match epoll::modify(&self.epoll, &**socket, data, flags) {
                // The descriptor was closed, and its number belongs to a new socket that epoll does not have yet.
                Err(Errno::NOENT) => {}
                result => return result,
            }
        }
        epoll::add(&self.epoll, &**socket, data, flags)?;
        source.known = true;
        Ok(())
    }
}

impl Source {
    fn slot(&mut self, interest: Interest) -> &mut Option<(Token, Arc<OwnedFd>)> {
        match interest {
            Interest::Read => &mut self.read,
            Interest::Write => &mut self.write,
        }
    }
}
