//! One TCP connection.

use super::setup::{configure, new_socket, plain};
use super::socket::Socket;
use crate::operation::Interest;
use crate::sys::tcp_info::path_of;
use crate::world::Inner;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use shard::{PathFacts, Stream, StreamHandle, StreamOptions};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Pieces that one call takes (UIO_MAXIOV); the rest is a later call.
const PIECES_MAX: usize = 1024;
/// Headers of a packet, without options.
const IPV4_TCP_BYTES: u32 = 40;
const IPV6_TCP_BYTES: u32 = 60;

/// One TCP connection on one shard.
pub struct TcpStream {
    socket: Socket,
    local: SocketAddr,
    peer: SocketAddr,
}

/// What a [`StreamHandle`] of this world carries.
struct Parts {
    fd: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
}

impl TcpStream {
    /// The connected socket `fd`, set up with `options`.
    pub(super) fn new(world: Rc<Inner>, fd: OwnedFd, peer: SocketAddr, options: &StreamOptions) -> io::Result<Self> {
        configure(&fd, options)?;
        let local = plain(SocketAddr::try_from(rustix::net::getsockname(&fd)?)?);
        Ok(Self { socket: Socket::new(world, fd), local, peer: plain(peer) })
    }

    /// See [`World::adopt_stream`](shard::World::adopt_stream).
    pub(crate) fn adopt(world: Rc<Inner>, handle: StreamHandle) -> io::Result<Self> {
        match handle.0.downcast::<io::Result<Parts>>() {
            Ok(parts) => {
                let Parts { fd, local, peer } = (*parts)?;
                Ok(Self { socket: Socket::new(world, fd), local, peer })
            }
            Err(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "the stream belongs to another kind of world")),
        }
    }
}

/// See [`World::connect`](shard::World::connect).
pub(crate) async fn connect(world: Rc<Inner>, address: SocketAddr, options: &StreamOptions) -> io::Result<TcpStream> {
    let socket = Socket::new(world, new_socket(address)?);
    match rustix::net::connect(socket.fd(), &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            let mut first = true;
            let attempt = |_: &OwnedFd| if std::mem::take(&mut first) { Err(Errno::AGAIN) } else { Ok(()) };
            socket.ready(Interest::Write, attempt).await?;
            sockopt::socket_error(socket.fd())??;
        }
        Err(errno) => return Err(errno.into()),
    }
    let world = socket.world().clone();
    TcpStream::new(world, socket.into_fd()?, address, options)
}

impl Stream for TcpStream {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.socket.poll(cx, Interest::Read, |fd| {
            let (count, _) = rustix::net::recv(fd, &mut *into, RecvFlags::empty())?;
            // The end (zero) stays readable, and must not be waited for.
            Ok((count, count > 0 && count < into.len()))
        })
    }

    fn poll_write(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let from = &from[..from.len().min(PIECES_MAX)];
        let asked: usize = from.iter().map(|piece| piece.len()).sum();
        self.socket.poll(cx, Interest::Write, |fd| {
            let mut control = SendAncillaryBuffer::default();
            let count = rustix::net::sendmsg(fd, from, &mut control, SendFlags::NOSIGNAL)?;
            Ok((count, count < asked))
        })
    }

    fn close_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.socket.fd(), Shutdown::Write)?)
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    fn path(&self) -> Option<PathFacts> {
        let is_wide = self.peer.is_ipv6() && self.peer.ip().to_canonical().is_ipv6();
        path_of(self.socket.fd(), if is_wide { IPV6_TCP_BYTES } else { IPV4_TCP_BYTES }).ok()
    }

    fn into_handle(self) -> StreamHandle {
        let Self { socket, local, peer } = self;
        StreamHandle(Box::new(socket.into_fd().map(|fd| Parts { fd, local, peer })))
    }
}
