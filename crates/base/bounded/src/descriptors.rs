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
    reserve_begins().is_some_and(|begins| number(socket) >= begins)
}

/// True when the next connection would take one of the reserve.
#[must_use]
pub fn are_short() -> bool {
    !has_room_for(0)
}

/// True when the next connection, and as many more as this, would take none of the reserve.
#[must_use]
pub fn has_room_for(more: u64) -> bool {
    // What is opened here has the lowest free number, as the next connection would.
    let next = File::open("/dev/null");
    next.is_ok_and(|next| reserve_begins().is_none_or(|begins| number(&next) + more < begins))
}

/// The lowest number of the reserve; none where there is no limit.
fn reserve_begins() -> Option<u64> {
    allowed().map(|allowed| allowed.saturating_sub(RESERVE.min(allowed / 4)))
}

fn number(descriptor: &impl AsFd) -> u64 {
    u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0)
}

/// How many descriptors the process may have (`RLIMIT_NOFILE`, soft); none where there is no limit.
#[must_use]
pub fn allowed() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
