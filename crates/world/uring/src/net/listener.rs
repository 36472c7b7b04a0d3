//! A listening TCP socket.

use super::setup::new_socket;
use super::socket::Socket;
use super::stream::TcpStream;
use crate::operation::Interest;
use crate::world::Inner;
use rustix::net::{SocketFlags, acceptfrom_with, bind, getsockname, listen, sockopt};
use shard::{Listener, StreamOptions};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// Connections that the kernel keeps for us until we accept them: a login storm of all hosts at once.
const BACKLOG: i32 = 4096;

/// A listening TCP socket on one shard.
pub struct TcpListener {
    socket: Socket,
    local: SocketAddr,
}

impl TcpListener {
    /// See [`World::listen`](shard::World::listen).
    pub(crate) fn bind(world: Rc<Inner>, address: SocketAddr) -> io::Result<Self> {
        let fd = new_socket(address)?;
        // A restart must not wait for the connections of the last run to be forgotten.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        bind(&fd, &address)?;
        listen(&fd, BACKLOG)?;
        let local = SocketAddr::try_from(getsockname(&fd)?)?;
        Ok(Self { socket: Socket::new(world, fd), local })
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self, options: &StreamOptions) -> io::Result<TcpStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (fd, peer) = self.socket.ready(Interest::Read, |fd| acceptfrom_with(fd, flags)).await?;
        let peer = peer.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted))?;
        TcpStream::new(self.socket.world().clone(), fd, SocketAddr::try_from(peer)?, options)
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }
}
