//! Reserve of descriptors (open files and sockets) that network connections cannot exhaust.
//!
//! Without a reserve, hosts or browsers that open connections until none is left would also lock the administrator out
//! of the management socket, and keep the daemon from writing its state and its audit log.

use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

/// Size of the reserve in descriptors; a quarter of the limit where that is less.
const RESERVE: u64 = 64;

/// True when `socket`, just accepted from a network peer, uses a descriptor of the reserve and must be closed.
///
/// The kernel assigns the lowest free number, so a number of N means that at least N descriptors are open.
#[must_use]
pub fn is_of_the_reserve(socket: &impl AsFd) -> bool {
    reserve_begins().is_some_and(|begins| number(socket) >= begins)
}

/// True when the next connection would use the reserve.
#[must_use]
pub fn are_short() -> bool {
    !has_room_for(0)
}

/// True when the next connection, and `more` beyond it, would not use the reserve.
#[must_use]
pub fn has_room_for(more: u64) -> bool {
    // The probe gets the lowest free number, as the next connection would.
    let next = File::open("/dev/null");
    // A failure means that no descriptor is free.
    next.is_ok_and(|next| reserve_begins().is_none_or(|begins| number(&next) + more < begins))
}

/// Lowest descriptor number of the reserve; `None` without a limit.
fn reserve_begins() -> Option<u64> {
    // At most a quarter, so that small limits leave room for connections.
    allowed().map(|allowed| allowed.saturating_sub(RESERVE.min(allowed / 4)))
}

fn number(descriptor: &impl AsFd) -> u64 {
    // Open descriptors are never negative.
    u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0)
}

/// Limit on descriptors of the process (`RLIMIT_NOFILE`, soft); `None` without a limit.
#[must_use]
pub fn allowed() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
