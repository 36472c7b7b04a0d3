//! Non-blocking sockets and their waits in the reactor.

use crate::operation::{Interest, Operation, Token};
use crate::world::Inner;
use rustix::io::Errno;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Socket of one shard.
pub(super) struct Socket {
    world: Rc<Inner>,
    fd: Arc<OwnedFd>,
    reading: Direction,
    writing: Direction,
}

#[derive(Default)]
struct Direction {
    wait: Cell<Option<Token>>,
    /// True when the last call took everything: another one before the next event would return EAGAIN.
    exhausted: Cell<bool>,
}

impl Socket {
    /// Wraps the non-blocking socket `fd` on the shard of `world`.
    pub fn new(world: Rc<Inner>, fd: OwnedFd) -> Self {
        Self { world, fd: Arc::new(fd), reading: Direction::default(), writing: Direction::default() }
    }

    /// Descriptor, for calls that do not block.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Shard of the socket.
    pub fn world(&self) -> &Rc<Inner> {
        &self.world
    }

    /// Calls `attempt` when the socket may be ready, and again after each wait while it returns EAGAIN.
    ///
    /// `attempt` returns its result, and whether it exhausted the socket.
    pub fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut attempt: impl FnMut(&OwnedFd) -> Result<(T, bool), Errno>,
    ) -> Poll<io::Result<T>> {
        let direction = match interest {
            Interest::Read => &self.reading,
            Interest::Write => &self.writing,
        };
        loop {
            if let Some(token) = direction.wait.get() {
                // The wait belongs to the direction, not to a future: a dropped future leaves it armed for the next
                // one.
                let Poll::Ready(landed) = self.world.reactor.borrow_mut().poll(token, cx) else { return Poll::Pending };
                direction.wait.set(None);
                direction.exhausted.set(false);
                if let Err(errno) = landed.result {
                    return Poll::Ready(Err(errno.into()));
                }
            }
            // After a partial transfer the next call would only return EAGAIN.
            if !direction.exhausted.get() {
                match attempt(&self.fd) {
                    Ok((value, exhausted)) => {
                        direction.exhausted.set(exhausted);
                        return Poll::Ready(Ok(value));
                    }
                    // Interrupted before any transfer: nothing to wait for.
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => {}
                    Err(errno) => return Poll::Ready(Err(errno.into())),
                }
            }
            let operation = Operation::Poll { socket: self.fd.clone(), interest };
            direction.wait.set(Some(self.world.reactor.borrow_mut().start(operation)));
        }
    }

    /// As [`Socket::poll`], for calls that never exhaust the socket.
    pub async fn ready<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(&OwnedFd) -> Result<T, Errno>,
    ) -> io::Result<T> {
        poll_fn(|cx| self.poll(cx, interest, |fd| attempt(fd).map(|value| (value, false)))).await
    }

    /// Returns a descriptor of the same socket without waits on this shard.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        let fd = self.fd.clone();
        // Cancels the waits of both directions first: their completions belong to this shard.
        drop(self);
        // A wait that is being canceled holds its descriptor until it has landed, so the descriptor is duplicated then.
        Arc::try_unwrap(fd).or_else(|shared| shared.try_clone())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        for direction in [&self.reading, &self.writing] {
            if let Some(token) = direction.wait.take() {
                self.world.reactor.borrow_mut().abandon_poll(token);
            }
        }
    }
}
