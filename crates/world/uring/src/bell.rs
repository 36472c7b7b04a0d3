//! What ends the sleep of a shard from outside: other shards ring it, and threads that have done an operation.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A descriptor whose ring ends the sleep of a shard.
pub(crate) fn new_bell() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

/// Ends the sleep of the shard that waits for `bell`, from any thread.
pub(crate) fn ring_bell(bell: &OwnedFd) {
    // The only failure is a counter that is full: then it rings already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
