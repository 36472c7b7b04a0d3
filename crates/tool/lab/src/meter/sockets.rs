//! TCP counters of the kernel, by sock_diag(7).

use crate::seen::Sockets;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

const BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// Size of `struct inet_diag_msg`, before its attributes.
const MESSAGE_BYTES: usize = 72;
const TCP: u8 = 6;
const ESTABLISHED: u32 = 1 << 1;
/// Attribute `INET_DIAG_INFO`, which carries a `struct tcp_info`.
const INFO: u16 = 2;
/// Offset of the retransmission count in `struct tcp_info`; the next three are of times in microseconds.
const RESENT: usize = 100;
const BUSY_US: usize = 168;
const WINDOW_US: usize = 176;
const BUFFER_US: usize = 184;

/// Counters of one end of a connection since its start, by its own port and the peer's port.
pub(super) type Ends = BTreeMap<(u16, u16), Sockets>;

/// Returns the local ends of established connections with these portal ports.
///
/// *Errors*: the kernel does not provide them.
pub(super) fn read(ports: &BTreeSet<u16>) -> io::Result<Ends> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    let mut ends = Ends::new();
    // Each family is a dump of its own, and both share the socket one after the other.
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        send(&socket, &request(family.as_raw() as u8), SendFlags::empty())?;
        while dump(&socket, ports, &mut ends)? {}
    }
    Ok(ends)
}

/// Returns the activity of both ends between two readings, the client's first.
pub(super) fn since(now: &Ends, before: &Ends) -> Vec<Sockets> {
    let sum = |server: bool| {
        let of_side = now.iter().filter(|(_, end)| end.server == server);
        of_side.fold(Sockets { server, ..Sockets::default() }, |sum, (key, end)| {
            // A connection that was opened during the measurement started at zero.
            let then = before.get(key).copied().unwrap_or_default();
            Sockets {
                server,
                count: sum.count + 1,
                busy_seconds: sum.busy_seconds + end.busy_seconds - then.busy_seconds,
                window_seconds: sum.window_seconds + end.window_seconds - then.window_seconds,
                buffer_seconds: sum.buffer_seconds + end.buffer_seconds - then.buffer_seconds,
                resent: sum.resent + end.resent.saturating_sub(then.resent),
            }
        })
    };
    [false, true].map(sum).into_iter().filter(|side| side.count > 0).collect()
}

fn request(family: u8) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    bytes[HEADER_BYTES] = family;
    bytes[HEADER_BYTES + 1] = TCP;
    // The requested attributes are a bit mask of their numbers less one (sock_diag(7)).
    bytes[HEADER_BYTES + 2] = 1 << (INFO - 1);
    bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&ESTABLISHED.to_ne_bytes());
    bytes
}

/// Parses one message of the answer; false after the last one.
fn dump(socket: &OwnedFd, ports: &BTreeSet<u16>, ends: &mut Ends) -> io::Result<bool> {
    let mut bytes = vec![0; 64 << 10];
    let (len, _) = recv(socket, &mut bytes[..], RecvFlags::empty())?;
    let mut rest = bytes.get(..len).unwrap_or_default();
    while let (Some(len), Some(kind)) = (word(rest, 0), half(rest, 4)) {
        let len = len as usize;
        match kind {
            DONE => return Ok(false),
            ERROR => return Err(io::Error::other("the kernel tells nothing of sockets")),
            _ => ends.extend(rest.get(HEADER_BYTES..len).and_then(|message| end_of(message, ports))),
        }
        // Messages are aligned to 4 bytes (netlink(7)).
        rest = rest.get(len.next_multiple_of(4).max(HEADER_BYTES)..).unwrap_or_default();
    }
    Ok(len > 0)
}

/// Parses an end of a connection to or from one of the portals.
fn end_of(message: &[u8], ports: &BTreeSet<u16>) -> Option<((u16, u16), Sockets)> {
    // Ports are in network byte order, all other fields in host byte order.
    let port = |at: usize| message.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let (own, other) = (port(4)?, port(6)?);
    // Both ends may be on this machine: the portal's port is the target's.
    let server = ports.contains(&own);
    if !server && !ports.contains(&other) {
        return None;
    }
    let mut rest = message.get(MESSAGE_BYTES..)?;
    loop {
        let (len, kind) = (half(rest, 0)? as usize, half(rest, 2)?);
        if kind == INFO {
            let info = rest.get(4..len)?;
            // An older kernel has a shorter structure; the end is then left out.
            let seconds = |at: usize| info.get(at..)?.first_chunk().map(|us| u64::from_ne_bytes(*us) as f64 / 1e6);
            return Some((
                (own, other),
                Sockets {
                    server,
                    count: 1,
                    busy_seconds: seconds(BUSY_US)?,
                    window_seconds: seconds(WINDOW_US)?,
                    buffer_seconds: seconds(BUFFER_US)?,
                    resent: word(info, RESENT)?.into(),
                },
            ));
        }
        // A damaged length of zero would loop forever.
        rest = rest.get(len.next_multiple_of(4).max(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|half| u16::from_ne_bytes(*half))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    /// One end sends and the other does not read: the sender waits for the receive window.
    #[test]
    fn a_receiver_that_does_not_read_is_seen_as_a_full_window() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        let (mut server, _) = listener.accept().expect("it was called");
        let ports = BTreeSet::from([port]);
        let before = read(&ports).expect("Linux tells");
        assert_eq!(before.len(), 2, "both ends are here");
        client.set_nonblocking(true).expect("a flag");
        let data = vec![0; 1 << 20];
        let until = std::time::Instant::now() + Duration::from_millis(100);
        while std::time::Instant::now() < until {
            let _ = client.write(&data);
        }
        let sides = since(&read(&ports).expect("Linux tells"), &before);
        let client = sides.iter().find(|side| !side.server).expect("it is here");
        assert!(client.window_seconds > 0.02 && client.busy_seconds >= client.window_seconds, "{client:?}");
        let server_side = sides.iter().find(|side| side.server).expect("it is here");
        assert!(server_side.window_seconds < 0.001, "{server_side:?}");
        assert!(server.read(&mut [0; 16]).expect("something came") > 0);
    }
}
