//! Commands that await their data: received by the transport, not yet known to the unit.
//!
//! To SAM-5 they are in the task set already, so an operation that clears the task set clears them, too. Otherwise
//! their data, which may arrive much later, would overwrite what other nexuses wrote in between.

use crate::command::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Counter of the commands of one nexus and unit that await data. Shared by the receiver and the unit, possibly across
/// threads.
#[derive(Debug, Default)]
pub struct PendingDataCounter {
    waiting: AtomicU32,
    /// Number of times that the waiting commands were cleared.
    cleared: AtomicU32,
    /// True when the commands cleared last are answered with TASK ABORTED.
    is_told: AtomicBool,
    /// Block size of the unit in bytes; zero until the unit has attached the nexus.
    block_bytes: AtomicU32,
}

/// Command that awaits data; dropped when the wait ends.
#[derive(Debug)]
pub struct PendingDataGuard {
    incoming: Arc<PendingDataCounter>,
    cleared_before: u32,
}

impl PendingDataCounter {
    /// Counts one more waiting command.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> PendingDataGuard {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        PendingDataGuard { incoming: self.clone(), cleared_before: self.cleared.load(Ordering::Acquire) }
    }

    /// Block size of the unit in bytes, once it has attached the nexus.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        // Relaxed suffices: the value never changes once it is set, and nothing else depends on it.
        Some(self.block_bytes.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }

    /// Publishes the block size of the unit, which is constant.
    pub(crate) fn set_block_bytes(&self, bytes: u32) {
        assert!(bytes > 0, "zero stands for a unit that has not heard of the nexus");
        self.block_bytes.store(bytes, Ordering::Relaxed);
    }

    /// True while commands await data.
    pub(crate) fn is_any(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Clears the commands that wait now: they are never executed, and end with TASK ABORTED or without a response.
    pub(crate) fn clear(&self, is_told: bool) {
        // Stored before the counter is raised: a reader that sees the new count must see the matching flag.
        self.is_told.store(is_told, Ordering::Release);
        self.cleared.fetch_add(1, Ordering::AcqRel);
    }
}

impl PendingDataGuard {
    /// Returns the status of the command if it was cleared while it waited: TASK ABORTED, or no response.
    #[must_use]
    pub fn cleared(&self) -> Option<Status> {
        // Compared with the count at the start of the wait: only later clears concern this command.
        let is_cleared = self.incoming.cleared.load(Ordering::Acquire) != self.cleared_before;
        is_cleared.then(|| match self.incoming.is_told.load(Ordering::Acquire) {
            true => Status::TaskAborted,
            false => Status::Unanswered,
        })
    }

    /// True when the command was addressed to the unit that counts its waiting commands in `incoming`.
    #[must_use]
    pub fn is_in(&self, incoming: &Arc<PendingDataCounter>) -> bool {
        Arc::ptr_eq(&self.incoming, incoming)
    }
}

impl Drop for PendingDataGuard {
    fn drop(&mut self) {
        let before = self.incoming.waiting.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "who waits was counted");
    }
}
