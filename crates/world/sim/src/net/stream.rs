//! One end of a connection, as a task holds it.

use super::connection;
use crate::core::Core;
use shard::{Stream, StreamHandle};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// One end of a simulated connection. Dropping it closes the connection.
pub struct SimStream {
    core: Rc<Core>,
    place: StreamAddress,
    /// False once the connection has been handed over.
    is_held: bool,
}

/// Content of a [`StreamHandle`] of this world. A handle that is never adopted leaves the connection open.
#[derive(Clone, Copy)]
struct StreamAddress {
    id: u64,
    side: usize,
    local: SocketAddr,
    peer: SocketAddr,
}

impl SimStream {
    pub(super) fn new(core: &Rc<Core>, id: u64, side: usize, local: SocketAddr, peer: SocketAddr) -> Self {
        Self { core: core.clone(), place: StreamAddress { id, side, local, peer }, is_held: true }
    }
}

/// Takes over a connection; see [`World::adopt_stream`](shard::World::adopt_stream).
pub(crate) fn adopt(core: &Rc<Core>, handle: StreamHandle) -> io::Result<SimStream> {
    match handle.0.downcast::<StreamAddress>() {
        Ok(place) => Ok(SimStream { core: core.clone(), place: *place, is_held: true }),
        Err(_) => Err(io::Error::new(ErrorKind::InvalidInput, "the stream belongs to another kind of world")),
    }
}

impl Stream for SimStream {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        connection::poll_read(&self.core, self.place.id, self.place.side, cx, into)
    }

    fn poll_write(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        connection::poll_write(&self.core, self.place.id, self.place.side, cx, from)
    }

    fn close_write(&self) -> io::Result<()> {
        connection::close_write(&self.core, self.place.id, self.place.side)
    }

    fn local_address(&self) -> SocketAddr {
        self.place.local
    }

    fn peer_address(&self) -> SocketAddr {
        self.place.peer
    }

    fn into_handle(mut self) -> StreamHandle {
        // The connection stays open for the stream that adopts it.
        self.is_held = false;
        StreamHandle(Box::new(self.place))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        if self.is_held {
            connection::close(&self.core, self.place.id, self.place.side);
        }
    }
}
