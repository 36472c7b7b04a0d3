//! Listening TCP sockets.

use super::setup::new_socket;
use super::socket::Socket;
use super::stream::TcpStream;
use crate::operation::Interest;
use crate::world::Inner;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, bind, getsockname, listen, sockopt};
use shard::{Listener, StreamOptions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Listen backlog, in connections: sized for a login storm of all hosts.
const BACKLOG: i32 = 4096;

/// Listening TCP socket of one shard.
pub struct TcpListener {
    socket: Socket,
    local: SocketAddr,
    takes_ipv4: bool,
}

impl TcpListener {
    /// Listens on `address`; see [`World::listen`](shard::World::listen).
    pub(crate) fn bind(world: Rc<Inner>, address: SocketAddr) -> io::Result<Self> {
        let is_any = address.is_ipv6() && address.ip().is_unspecified();
        let open = |takes_ipv4| match &world.privileges {
            Some(privileges) => privileges.0.bind(address, takes_ipv4),
            None => open(address, takes_ipv4),
        };
        let (fd, takes_ipv4) = match open(is_any) {
            // Another socket owns the IPv4 port, perhaps a portal of ours: listen on IPv6 only.
            Err(error) if is_any && error.kind() == io::ErrorKind::AddrInUse => (open(false)?, false),
            opened => (opened?, is_any || address.is_ipv4()),
        };
        // Read back, because port 0 lets the kernel choose one.
        let local = SocketAddr::try_from(getsockname(&fd)?)?;
        Ok(Self { socket: Socket::new(world, fd), local, takes_ipv4 })
    }
}

/// Opens a non-blocking TCP socket that listens on `address`; one for IPv6 can accept IPv4 as well.
///
/// *Errors*: as bind(2).
pub fn open(address: SocketAddr, takes_ipv4: bool) -> io::Result<OwnedFd> {
    let fd = new_socket(address)?;
    // Without it a restart fails while connections of the last run are in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    // Set explicitly, because the default depends on the system (`net.ipv6.bindv6only`).
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, !takes_ipv4)?;
    }
    // Inherited by connections, so that an unprivileged process gets it, too. A failure is reported by the first
    // connection.
    if let Some(congestion) = StreamOptions::default().congestion {
        let _ = sockopt::set_tcp_congestion(&fd, &congestion);
    }
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self, options: &StreamOptions) -> io::Result<TcpStream> {
        // Linux does not pass the flags of the listener on to accepted sockets.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (fd, peer) = self.socket.ready(Interest::Read, |fd| acceptfrom_with(fd, flags)).await?;
        let peer = peer.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted))?;
        // Descriptors of the reserve are kept for files: a flood of connections must not stop the daemon from opening
        // them.
        if bounded::descriptors::is_of_the_reserve(&fd) {
            return Err(Errno::MFILE.into());
        }
        TcpStream::new(self.socket.world().clone(), fd, SocketAddr::try_from(peer)?, options)
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn takes_ipv4(&self) -> bool {
        self.takes_ipv4
    }
}
