//! Descriptors (open files and sockets) that connections from the network leave free.
//!
//! Without a reserve, hosts or browsers that open connections until none is left would also shut the administrator out of the management
//! socket, and keep the daemon from writing its state and its audit.

use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

/// As many stay free; of a low limit a quarter.
const RESERVE: u64 = 64;

/// True when `socket`, which a peer in the network has just opened, has taken one of the reserve and must be closed.
///
/// The kernel gives the lowest free number, so that a socket with a number above N means that at least N descriptors are open.
#[must_use]
pub fn is_of_the_reserve(socket: &impl AsFd) -> bool {
    let number = u64::try_from(socket.as_fd().as_raw_fd()).unwrap_or(0);
    allowed().is_some_and(|allowed| number >= allowed.saturating_sub(RESERVE.min(allowed / 4)))
}

/// True when the next connection would take one of the reserve.
#[must_use]
pub fn are_short() -> bool {
    // What is opened here has the lowest free number, as the next connection would.
    File::open("/dev/null").map_or(true, |file| is_of_the_reserve(&file))
}

/// True when as many descriptors as this could be opened before the reserve is reached.
#[must_use]
pub fn has_room_for(more: u64) -> bool {
    let next = File::open("/dev/null").ok().and_then(|file| u64::try_from(file.as_raw_fd()).ok());
    next.is_some_and(|next| {
        allowed().is_none_or(|allowed| next + more < allowed.saturating_sub(RESERVE.min(allowed / 4)))
    })
}

/// How many descriptors the process may have (`RLIMIT_NOFILE`, soft); none where there is no limit.
#[must_use]
pub fn allowed() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
