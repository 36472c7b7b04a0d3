//! Eviction order of a volume's frames: S3-FIFO (Yang et al., SOSP 2023).
//!
//! New frames enter a *small* queue and leave it by eviction, unless they are used again while they wait; then they
//! move to the *main* queue. Keys of evicted frames are remembered in a ghost list, and such a frame goes to the main
//! queue at once if it returns. A scan passes through the small queue and touches nothing else. A hit increments a
//! counter and moves nothing.

use super::index::Table;
use std::collections::VecDeque;

/// Ghost list: keys of frames evicted from the small queue, in order.
#[derive(Debug, Default)]
struct GhostQueue {
    order: VecDeque<(u64, u64)>,
    newest: Table<u64, u64>,
    next: u64,
}

impl GhostQueue {
    fn remember(&mut self, page: u64, count_max: usize) {
        self.next += 1;
        self.order.push_back((page, self.next));
        self.newest.insert(page, self.next);
        // As many keys as frames in the cache, as S3-FIFO has it.
        while self.order.len() > count_max.max(64) {
            let Some((page, number)) = self.order.pop_front() else { return };
            // A page that was evicted once more has a newer entry, which must stay.
            if self.newest.get(&page) == Some(&number) {
                self.newest.remove(&page);
            }
        }
    }

    fn recall(&mut self, page: u64) -> bool {
        // Its entry in the order stays, and is skipped when it comes up.
        self.newest.remove(&page).is_some()
    }
}

/// Queue that a frame is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    Small,
    Main,
}

/// Queues of one volume: frame numbers, oldest first. Dead frames stay until they are met or swept.
#[derive(Debug, Default)]
pub(super) struct Queues {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    small_bytes: u64,
    dead: usize,
    ghost: GhostQueue,
}

impl Queues {
    /// Adds a new frame, whose first page is `page`, to the end of a queue.
    pub(super) fn admit(&mut self, frame: u32, page: u64, bytes: u64) -> QueueKind {
        // Requested again soon after its eviction: it was hot.
        if self.ghost.recall(page) {
            self.main.push_back(frame);
            return QueueKind::Main;
        }
        self.small.push_back(frame);
        self.small_bytes += bytes;
        QueueKind::Small
    }

    /// Takes the next candidate for eviction: from the small queue while that holds more than a tenth of `used`
    /// bytes.
    pub(super) fn next(&mut self, used: u64) -> Option<(u32, QueueKind)> {
        // A tenth of the memory for new frames, as S3-FIFO has it.
        let small = (self.small_bytes * 10 > used || self.main.is_empty()) && !self.small.is_empty();
        if small {
            return self.small.pop_front().map(|frame| (frame, QueueKind::Small));
        }
        self.main.pop_front().or_else(|| self.small.pop_front()).map(|frame| (frame, QueueKind::Main))
    }

    /// Keeps a candidate, in the main queue.
    pub(super) fn keep(&mut self, frame: u32, from: QueueKind, bytes: u64) {
        if from == QueueKind::Small {
            self.small_bytes -= bytes;
        }
        self.main.push_back(frame);
    }

    /// Drops a candidate; remembers its key if it leaves the small queue.
    pub(super) fn drop_judged(&mut self, page: u64, from: QueueKind, bytes: u64) {
        if from == QueueKind::Small {
            self.small_bytes -= bytes;
            self.ghost.remember(page, self.small.len() + self.main.len());
        }
    }

    /// Marks a frame as dead while it stays in its queue.
    pub(super) fn mark_dead(&mut self, from: QueueKind, bytes: u64) {
        if from == QueueKind::Small {
            assert!(bytes <= self.small_bytes, "what waits in the small queue is counted");
            self.small_bytes -= bytes;
        }
        self.dead += 1;
    }

    /// Counts a dead frame that was taken from its queue.
    pub(super) fn remove_dead(&mut self) {
        assert!(self.dead > 0, "every dead frame is counted");
        self.dead -= 1;
    }

    /// True when dead frames are so many that [`Queues::sweep`] is due.
    pub(super) fn needs_sweep(&self) -> bool {
        // At half of all entries a sweep costs a constant for each dead frame.
        self.dead > 64 && self.dead * 2 > self.small.len() + self.main.len()
    }

    /// Removes every frame for which `is_dead` returns true; called once for each frame.
    pub(super) fn sweep(&mut self, mut is_dead: impl FnMut(u32) -> bool) {
        self.small.retain(|&frame| !is_dead(frame));
        self.main.retain(|&frame| !is_dead(frame));
        self.dead = 0;
    }
}
