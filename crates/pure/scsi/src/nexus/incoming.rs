//! Commands on their way: those that an initiator has sent, and that wait for their data before the unit sees them.
//!
//! To SAM they are in the task set already, so whoever clears it clears them, too: their data may come much later, and would be
//! written over what somebody else has written since.

use crate::command::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The commands of one nexus for one unit that wait for data. Whoever receives them and the unit share it.
#[derive(Debug, Default)]
pub struct Incoming {
    waiting: AtomicU32,
    /// How often those that waited were cleared.
    cleared: AtomicU32,
    /// True when those that were cleared last are answered with TASK ABORTED.
    is_told: AtomicBool,
    /// The size of the unit's blocks; zero until it has heard of the nexus.
    block_bytes: AtomicU32,
}

/// A command that waits; dropped when it does not any more.
#[derive(Debug)]
pub struct Waiting {
    incoming: Arc<Incoming>,
    cleared_before: u32,
}

impl Incoming {
    /// One more command waits from now on.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting { incoming: self.clone(), cleared_before: self.cleared.load(Ordering::Acquire) }
    }

    /// The size of the unit's blocks, once it has heard of the nexus.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        Some(self.block_bytes.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }

    /// The unit's blocks have this size, and keep it.
    pub(crate) fn tell_block_bytes(&self, bytes: u32) {
        assert!(bytes > 0, "zero stands for a unit that has not heard of the nexus");
        self.block_bytes.store(bytes, Ordering::Relaxed);
    }

    /// True while some wait.
    pub(crate) fn is_any(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Those that wait now are never carried out, and end with TASK ABORTED or without an answer.
    pub(crate) fn clear(&self, is_told: bool) {
        self.is_told.store(is_told, Ordering::Release);
        self.cleared.fetch_add(1, Ordering::AcqRel);
    }
}

impl Waiting {
    /// How the command has ended, when somebody has cleared it away while it waited: TASK ABORTED, or no answer.
    #[must_use]
    pub fn cleared(&self) -> Option<Status> {
        let is_cleared = self.incoming.cleared.load(Ordering::Acquire) != self.cleared_before;
        is_cleared.then(|| match self.incoming.is_told.load(Ordering::Acquire) {
            true => Status::TaskAborted,
            false => Status::Unanswered,
        })
    }

    /// True when the command came for the unit that counts its waiting commands there.
    #[must_use]
    pub fn is_in(&self, incoming: &Arc<Incoming>) -> bool {
        Arc::ptr_eq(&self.incoming, incoming)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let before = self.incoming.waiting.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "who waits was counted");
    }
}
