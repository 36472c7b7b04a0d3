//! Addresses and links of this machine, and notification of changes.

use crate::sys::interfaces::interface_addresses;
use model::LocalAddress;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Interval of the periodic check, in case a notification was lost.
const ROUND: Duration = Duration::from_secs(5);

/// Returns the current addresses.
///
/// *Errors*: those of the operating system.
pub fn addresses() -> io::Result<Vec<LocalAddress>> {
    interface_addresses()
}

/// Returns the current addresses and calls `tell` with the full list after each change, on a thread of its own, until
/// it returns false.
///
/// *Errors*: those of the operating system, or no thread could be started.
pub fn watch_addresses(
    mut tell: impl FnMut(Vec<LocalAddress>) -> bool + Send + 'static,
) -> io::Result<Vec<LocalAddress>> {
    // Subscribed before the first query, so that no change is missed in between.
    let news = subscribe()?;
    let addresses = interface_addresses()?;
    // The first list counts as reported, because it is returned to the caller.
    let mut known = addresses.clone();
    std::thread::Builder::new().name("links".to_owned()).spawn(move || {
        loop {
            wait(&news);
            match interface_addresses() {
                // Most notifications and the periodic check change nothing in the list.
                Ok(now) if now == known => {}
                Ok(now) => {
                    known.clone_from(&now);
                    if !tell(now) {
                        return;
                    }
                }
                Err(error) => tracing::warn!(%error, "the network addresses of this machine could not be read"),
            }
        }
    })?;
    Ok(addresses)
}

/// Opens a socket that receives changes of links and addresses: rtnetlink(7).
fn subscribe() -> io::Result<OwnedFd> {
    // Protocol 0 is `NETLINK_ROUTE`.
    let news = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
    bind(&news, &SocketAddrNetlink::new(0, u32::try_from(groups).expect("three low bits")))?;
    sockopt::set_socket_timeout(&news, sockopt::Timeout::Recv, Some(ROUND))?;
    Ok(news)
}

/// Waits for a change, or for [`ROUND`]. The messages are not parsed, as one may have been lost: the caller queries the
/// state.
fn wait(news: &OwnedFd) {
    let mut message = [0; 4096];
    let mut heard = recv(news, &mut message, RecvFlags::empty()).map(drop);
    // One change produces several messages; all are drained.
    while heard.is_ok() {
        heard = recv(news, &mut message, RecvFlags::DONTWAIT).map(drop);
    }
    // A full socket buffer (ENOBUFS) means changes as well.
    if !matches!(heard, Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS)) {
        // Any other error would return at once again: the loop must not spin.
        std::thread::sleep(ROUND);
    }
}
