//! A non-blocking socket and its waits in the reactor.

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

/// A socket of one shard.
pub(super) struct Socket {
    world: Rc<Inner>,
    fd: Arc<OwnedFd>,
    reading: Direction,
    writing: Direction,
}

#[derive(Default)]
struct Direction {
    wait: Cell<Option<Token>>,
    /// The last call took all there was: trying again before the next event is a call in vain.
    exhausted: Cell<bool>,
}

impl Socket {
    /// The socket `fd`, which does not block, on the shard of `world`.
    pub fn new(world: Rc<Inner>, fd: OwnedFd) -> Self {
        Self { world, fd: Arc::new(fd), reading: Direction::default(), writing: Direction::default() }
    }

    /// The descriptor, for calls that do not block.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The shard that the socket is on.
    pub fn world(&self) -> &Rc<Inner> {
        &self.world
    }

    /// Does `attempt` when the socket may be ready for it, again when it turns out not to be.
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
                let Poll::Ready(landed) = self.world.reactor.borrow_mut().poll(token, cx) else { return Poll::Pending };
                direction.wait.set(None);
                direction.exhausted.set(false);
                if let Err(errno) = landed.result {
                    return Poll::Ready(Err(errno.into()));
                }
            }
            if !direction.exhausted.get() {
                match attempt(&self.fd) {
                    Ok((value, exhausted)) => {
                        direction.exhausted.set(exhausted);
                        return Poll::Ready(Ok(value));
                    }
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => {}
                    Err(errno) => return Poll::Ready(Err(errno.into())),
                }
            }
            let operation = Operation::Poll { socket: self.fd.clone(), interest };
            direction.wait.set(Some(self.world.reactor.borrow_mut().start(operation)));
        }
    }

    /// See [`Socket::poll`].
    pub async fn ready<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(&OwnedFd) -> Result<T, Errno>,
    ) -> io::Result<T> {
        poll_fn(|cx| self.poll(cx, interest, |fd| attempt(fd).map(|value| (value, false)))).await
    }

    /// A descriptor of the same socket that nothing of this shard waits for.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        let fd = self.fd.clone();
        drop(self);
        // A wait that is being cancelled keeps its descriptor until it has landed.
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
