//! TCP connections.

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

/// Limit on buffers of one call (UIO_MAXIOV); the rest is sent by a later call.
const PIECES_MAX: usize = 1024;
/// Sizes of the IP and TCP headers without options, in bytes.
const IPV4_TCP_BYTES: u32 = 40;
const IPV6_TCP_BYTES: u32 = 60;

/// TCP connection on one shard.
pub struct TcpStream {
    socket: Socket,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Content of a [`StreamHandle`] of this world.
struct Parts {
    fd: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
}

impl TcpStream {
    /// Wraps the connected socket `fd` and applies `options`.
    pub(super) fn new(world: Rc<Inner>, fd: OwnedFd, peer: SocketAddr, options: &StreamOptions) -> io::Result<Self> {
        configure(&fd, options)?;
        let local = plain(SocketAddr::try_from(rustix::net::getsockname(&fd)?)?);
        Ok(Self { socket: Socket::new(world, fd), local, peer: plain(peer) })
    }

    /// Takes over a connection; see [`World::adopt_stream`](shard::World::adopt_stream).
    pub(crate) fn adopt(world: Rc<Inner>, handle: StreamHandle) -> io::Result<Self> {
        match handle.0.downcast::<io::Result<Parts>>() {
            Ok(parts) => {
                // The handle may carry the error of a failed duplication on the other shard.
                let Parts { fd, local, peer } = (*parts)?;
                Ok(Self { socket: Socket::new(world, fd), local, peer })
            }
            Err(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "the stream belongs to another kind of world")),
        }
    }
}

/// Connects to `address`; see [`World::connect`](shard::World::connect).
pub(crate) async fn connect(world: Rc<Inner>, address: SocketAddr, options: &StreamOptions) -> io::Result<TcpStream> {
    let socket = Socket::new(world, new_socket(address)?);
    match rustix::net::connect(socket.fd(), &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            // The first attempt is skipped on purpose: writability has to be waited for before the result can be read.
            let mut first = true;
            let attempt = |_: &OwnedFd| if std::mem::take(&mut first) { Err(Errno::AGAIN) } else { Ok(()) };
            socket.ready(Interest::Write, attempt).await?;
            // Writability alone is no success: SO_ERROR has the result of the connect (connect(2)).
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
            // End of stream (0) stays readable, and must not be waited for.
            Ok((count, count > 0 && count < into.len()))
        })
    }

    fn poll_write(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // The kernel rejects more pieces than `IOV_MAX`.
        let from = &from[..from.len().min(PIECES_MAX)];
        // Compared with the bytes sent: a partial write means that the socket buffer is full.
        let asked: usize = from.iter().map(|piece| piece.len()).sum();
        self.socket.poll(cx, Interest::Write, |fd| {
            let mut control = SendAncillaryBuffer::default();
            // A closed connection is an error here, not a signal.
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
        // The packets of an IPv4 peer on an IPv6 socket have IPv4 headers.
        let is_wide = self.peer.is_ipv6() && self.peer.ip().to_canonical().is_ipv6();
        path_of(self.socket.fd(), if is_wide { IPV6_TCP_BYTES } else { IPV4_TCP_BYTES }).ok()
    }

    fn into_handle(self) -> StreamHandle {
        let Self { socket, local, peer } = self;
        // An error is delivered by `adopt_stream`, because this call cannot fail.
        StreamHandle(Box::new(socket.into_fd().map(|fd| Parts { fd, local, peer })))
    }
}
