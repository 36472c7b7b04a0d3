//! Eventfd that ends the sleep of a shard from outside: written by other shards, and by threads that have completed an
//! operation.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Creates an eventfd that wakes a shard.
pub(crate) fn new_wake_event() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

/// Ends the sleep of the shard that waits for `bell`; callable from any thread.
pub(crate) fn notify(bell: &OwnedFd) {
    // The only possible error is a full counter: then a wake is pending already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
