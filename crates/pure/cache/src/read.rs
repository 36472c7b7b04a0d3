//! Read cache: one memory budget per shard, shared by the volumes that it serves.

mod ahead;
mod cached;
mod flight;
mod index;
mod queue;
mod store;
#[cfg(test)]
mod tests;

pub use cached::Cached;
pub use store::ReadCounters;

use crate::Findings;
use crate::policy::Share;
use std::cell::RefCell;
use std::rc::Rc;
use store::Store;

/// Read cache of one shard. Cheap to clone; volumes join it with [`Cached::new`].
#[derive(Clone, Debug)]
pub struct ReadCache {
    // One borrow per lookup and no lock: a cache lives on one shard.
    store: Rc<RefCell<Store>>,
    findings: Findings,
}

impl ReadCache {
    /// Creates an empty cache that takes at most `bytes_max` of memory, its own bookkeeping included.
    #[must_use]
    pub fn new(bytes_max: u64, findings: Findings) -> Self {
        Self { store: Rc::new(RefCell::new(Store::new(bytes_max))), findings }
    }

    /// Changes the memory limit to `bytes_max`; what exceeds it is evicted.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.store.borrow_mut().set_bytes_max(bytes_max);
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.store.borrow().used()
    }

    /// Drops every page of every volume.
    pub fn clear(&self) {
        self.store.borrow_mut().clear();
    }

    fn join(&self, share: Share) -> u32 {
        self.store.borrow_mut().join(share)
    }
}
