//! Who is at the other end of a connection, as far as the kernel knows.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use std::net::SocketAddr;
use tokio::net::UnixListener;

/// Who is at the other end, before it has proven anything.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A process of this machine, whose user the kernel knows.
    Local(Option<u32>),
    /// Somebody in the network.
    Remote(SocketAddr),
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self::Local(stream.io().peer_cred().ok().map(|peer| peer.uid()))
    }
}
