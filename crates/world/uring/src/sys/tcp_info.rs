//! Path properties of a TCP connection, from the kernel.

use shard::PathFacts;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Size of the part of `struct tcp_info` that every kernel has: eight bytes, then 32-bit words. Offsets of fields
/// below.
const BYTES: usize = 104;
const OPTIONS: usize = 5;
const SND_MSS: usize = 16;
const PMTU: usize = 60;
/// `TCPI_OPT_TIMESTAMPS`: each segment carries twelve bytes of timestamps.
const TIMESTAMPS: u8 = 1;
const TIMESTAMP_BYTES: u32 = 12;

/// Returns the path of a connected TCP socket whose IP and TCP headers have `header_bytes` without options.
///
/// *Errors*: those of the operating system.
pub(crate) fn path_of(socket: &OwnedFd, header_bytes: u32) -> io::Result<PathFacts> {
    let mut info = [0u8; BYTES];
    let mut len = BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`, which has so many, and the length to `len`.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    // The MSS does not include the timestamp option.
    let options_bytes = if info[OPTIONS] & TIMESTAMPS != 0 { TIMESTAMP_BYTES } else { 0 };
    Ok(PathFacts { mtu_bytes: word(PMTU), packet_bytes_max: word(SND_MSS) + options_bytes + header_bytes })
}
