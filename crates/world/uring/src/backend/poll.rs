//! epoll for sockets, workers for disks: the fallback where io_uring is forbidden.

use super::workers::Workers;
use crate::operation::{Done, Interest, Landed, Operation, Token, Wait};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Events that one turn takes; more come with the next.
const EVENTS_MAX: usize = 256;

/// One epoll instance and the workers of one shard.
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// By number of the descriptor.
    sources: Vec<Source>,
    /// The descriptor that a token waits for, by token.
    waits: Vec<Option<usize>>,
    workers: Workers,
    events: Vec<epoll::Event>,
    early: Vec<Done>,
}

/// Who waits for a descriptor. epoll knows each descriptor once, so both directions share an entry.
#[derive(Default)]
struct Source {
    read: Option<(Token, Arc<OwnedFd>)>,
    write: Option<(Token, Arc<OwnedFd>)>,
    /// A closed descriptor leaves epoll by itself, so this may be out of date, but only this way round.
    known: bool,
}

impl Poller {
    /// An epoll instance without descriptors.
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

    /// Waits for a socket, or hands disk I/O to a worker.
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
        if let Err(errno) = self.arm(at) {
            self.land(at, interest, Err(errno));
        }
    }

    /// Gives up waiting for a socket.
    pub fn cancel_poll(&mut self, token: Token) {
        let Some(at) = self.waits.get(token as usize).copied().flatten() else { return };
        let reads = self.sources[at].read.as_ref().is_some_and(|(reader, _)| *reader == token);
        let interest = if reads { Interest::Read } else { Interest::Write };
        let socket = self.sources[at].slot(interest).as_ref().map(|(_, socket)| socket.clone());
        self.land(at, interest, Err(Errno::CANCELED));
        let source = &mut self.sources[at];
        if source.read.is_some() || source.write.is_some() {
            // What still waits was armed before and may stay armed for more than it asks.
            return;
        }
        if let Some(socket) = socket.filter(|_| source.known) {
            source.known = false;
            // A failure means that it is not there any more, which is what is wanted.
            let _ = epoll::delete(&self.epoll, &*socket);
        }
    }

    /// See [`Ring::turn`](crate::sys::ring::Ring::turn).
    pub fn turn(&mut self, wait: Wait, done: &mut Vec<Done>) -> io::Result<()> {
        done.append(&mut self.early);
        self.workers.reap(done);
        let wait = if done.is_empty() { wait } else { Wait::No };
        let timeout = match wait {
            Wait::No => Some(Timespec::default()),
            Wait::AtMost(duration) => {
                Some(Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 }))
            }
            Wait::Forever => None,
        };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            let at = usize::try_from(event.data.u64()).expect("events carry a descriptor");
            self.report(at, event.flags);
        }
        self.events = events;
        done.append(&mut self.early);
        self.workers.reap(done);
        Ok(())
    }

    fn report(&mut self, at: usize, flags: epoll::EventFlags) {
        let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        if broken || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
            self.land(at, Interest::Read, Ok(0));
        }
        if broken || flags.contains(epoll::EventFlags::OUT) {
            self.land(at, Interest::Write, Ok(0));
        }
        // One event disarms both directions.
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

    /// Tells epoll what is waited for at a descriptor, once.
    fn arm(&mut self, at: usize) -> Result<(), Errno> {
        let source = &mut self.sources[at];
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
