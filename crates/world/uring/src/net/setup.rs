//! Socket options, set explicitly on every socket and never inherited from the system's defaults.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};
use shard::StreamOptions;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// TCP user timeout: time without acknowledgment after which a peer counts as dead. The iSCSI NOP timeout is shorter.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Opens a non-blocking TCP socket of the family of `address`.
pub(super) fn new_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// Returns the address in its own family: an IPv4-mapped IPv6 address becomes IPv4.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    if address.ip() == address.ip().to_canonical() {
        return address;
    }
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Applies `options` to a connection.
pub(super) fn configure(socket: &OwnedFd, options: &StreamOptions) -> io::Result<()> {
    // Nagle's algorithm would hold back the last segment of a PDU until an acknowledgment arrives.
    sockopt::set_tcp_nodelay(socket, true)?;
    // Finds a peer that has vanished while nothing is sent.
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    // Also overrides the number of keepalive probes (tcp(7), TCP_USER_TIMEOUT).
    let silence_ms = u32::try_from(SILENCE_MAX.as_millis()).expect("half a minute fits");
    sockopt::set_tcp_user_timeout(socket, silence_ms)?;
    match options.congestion.as_deref().map(|name| (name, sockopt::set_tcp_congestion(socket, name))) {
        // ENOENT: no such module. EPERM: the system does not allow it for this process.
        Some((name, Err(errno @ (Errno::NOENT | Errno::PERM)))) => {
            warn_once(name, errno);
            Ok(())
        }
        Some((_, result)) => Ok(result?),
        None => Ok(()),
    }
}

fn warn_once(name: &str, errno: Errno) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned()) {
        tracing::warn!("congestion control {name:?} is not available ({errno}); connections use the system default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_set_on_the_socket_itself() {
        let socket = new_socket("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        configure(&socket, &StreamOptions { congestion: Some("reno".to_owned()) }).expect("it is configured");
        assert!(sockopt::tcp_nodelay(&socket).expect("a socket"));
        assert!(sockopt::socket_keepalive(&socket).expect("a socket"));
        assert_eq!(sockopt::tcp_keepidle(&socket).expect("a socket"), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_user_timeout(&socket).expect("a socket"), 30_000);
        assert_eq!(sockopt::tcp_congestion(&socket).expect("a socket"), "reno");
    }
}
