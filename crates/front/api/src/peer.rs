//! Origin of a connection, as far as the kernel knows it.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use std::net::SocketAddr;
use tokio::net::UnixListener;

/// Origin of a connection before authentication.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// Process of this machine, with its user ID as the kernel reports it (`SO_PEERCRED`).
    Local(Option<u32>),
    /// Remote address.
    Remote(SocketAddr),
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self::Local(stream.io().peer_cred().ok().map(|peer| peer.uid()))
    }
}
