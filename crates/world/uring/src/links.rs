//! The addresses of this machine and the links below them, watched.

use crate::sys::interfaces::interface_addresses;
use model::LocalAddress;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How often we look although nobody says that something has changed.
const ROUND: Duration = Duration::from_secs(5);

/// The addresses as they are now.
///
/// *Errors*: the operating system does not tell.
pub fn addresses() -> io::Result<Vec<LocalAddress>> {
    interface_addresses()
}

/// The addresses as they are now. `tell` is told of all of them whenever something about them has changed, on a thread of its
/// own, until it says false.
///
/// *Errors*: the operating system does not tell, or gives no thread.
pub fn watch_addresses(
    mut tell: impl FnMut(Vec<LocalAddress>) -> bool + Send + 'static,
) -> io::Result<Vec<LocalAddress>> {
    // Before the first look, so that no change falls between.
    let news = subscribe()?;
    let addresses = interface_addresses()?;
    let mut known = addresses.clone();
    std::thread::Builder::new().name("links".to_owned()).spawn(move || {
        loop {
            wait(&news);
            match interface_addresses() {
                Ok(now) if now == known => {}
                Ok(now) => {
                    known.clone_from(&now);
                    if !tell(now) {
                        return;
                    }
                }
                Err(error) => tracing::warn!(%error, "the addresses of this machine are not known"),
            }
        }
    })?;
    Ok(addresses)
}

/// A socket that hears of links and addresses: rtnetlink(7).
fn subscribe() -> io::Result<OwnedFd> {
    // Protocol 0 is NETLINK_ROUTE.
    let news = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
    bind(&news, &SocketAddrNetlink::new(0, u32::try_from(groups).expect("three low bits")))?;
    sockopt::set_socket_timeout(&news, sockopt::Timeout::Recv, Some(ROUND))?;
    Ok(news)
}

/// Something has changed, or it is time to look. What has changed is asked for: a message may have been lost.
fn wait(news: &OwnedFd) {
    let mut message = [0; 4096];
    let mut heard = recv(news, &mut message, RecvFlags::empty()).map(drop);
    // One change is several messages.
    while heard.is_ok() {
        heard = recv(news, &mut message, RecvFlags::DONTWAIT).map(drop);
    }
    // Too many messages for the socket (ENOBUFS) are a change as well.
    if !matches!(heard, Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS)) {
        std::thread::sleep(ROUND);
    }
}
