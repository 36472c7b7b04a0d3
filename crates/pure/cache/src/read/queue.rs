//! Which frame of a volume goes first: S3-FIFO.
//!
//! What is new waits in a *small* queue and leaves it unread, unless it is used again while it waits;
//! then it moves to the *main* queue. What left unread is remembered without its data, and goes to
//! the main queue at once if it comes back. A scan passes through the small queue and touches nothing
//! else. Hits change one counter and move nothing.

use super::index::Table;
use std::collections::VecDeque;

/// Keys of frames that left the small queue unread, in order.
#[derive(Debug, Default)]
struct Ghost {
    order: VecDeque<(u64, u64)>,
    newest: Table<u64, u64>,
    next: u64,
}

impl Ghost {
    fn remember(&mut self, page: u64, count_max: usize) {
        self.next += 1;
        self.order.push_back((page, self.next));
        self.newest.insert(page, self.next);
        while self.order.len() > count_max.max(64) {
            let Some((page, number)) = self.order.pop_front() else { return };
            if self.newest.get(&page) == Some(&number) {
                self.newest.remove(&page);
            }
        }
    }

    fn recall(&mut self, page: u64) -> bool {
        self.newest.remove(&page).is_some()
    }
}

/// Which queue a frame is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Small,
    Main,
}

/// The queues of one volume: numbers of frames, oldest first. Frames that died stay until their turn comes.
#[derive(Debug, Default)]
pub(super) struct Queues {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    small_bytes: u64,
    dead: usize,
    ghost: Ghost,
}

impl Queues {
    /// Puts a new frame, whose first page is `page`, behind the others.
    pub(super) fn admit(&mut self, frame: u32, page: u64, bytes: u64) -> Place {
        if self.ghost.recall(page) {
            self.main.push_back(frame);
            return Place::Main;
        }
        self.small.push_back(frame);
        self.small_bytes += bytes;
        Place::Small
    }

    /// The next frame to be judged: from the small queue while it is more than a tenth of `used` bytes.
    pub(super) fn next(&mut self, used: u64) -> Option<(u32, Place)> {
        let small = (self.small_bytes * 10 > used || self.main.is_empty()) && !self.small.is_empty();
        if small {
            return self.small.pop_front().map(|frame| (frame, Place::Small));
        }
        self.main.pop_front().or_else(|| self.small.pop_front()).map(|frame| (frame, Place::Main))
    }

    /// A frame that was judged stays, in the main queue.
    pub(super) fn keep(&mut self, frame: u32, from: Place, bytes: u64) {
        if from == Place::Small {
            self.small_bytes -= bytes;
        }
        self.main.push_back(frame);
    }

    /// A frame that was judged goes; remembered when it leaves the small queue.
    pub(super) fn drop_judged(&mut self, page: u64, from: Place, bytes: u64) {
        if from == Place::Small {
            self.small_bytes -= bytes;
            self.ghost.remember(page, self.small.len() + self.main.len());
        }
    }

    /// A frame dies where it stands in its queue.
    pub(super) fn bury(&mut self, from: Place, bytes: u64) {
        if from == Place::Small {
            assert!(bytes <= self.small_bytes, "what waits in the small queue is counted");
            self.small_bytes -= bytes;
        }
        self.dead += 1;
    }

    /// A dead frame was met and is out of its queue.
    pub(super) fn exhume(&mut self) {
        assert!(self.dead > 0, "every dead frame is counted");
        self.dead -= 1;
    }

    /// True when the dead are so many that [`Queues::sweep`] is due.
    pub(super) fn is_littered(&self) -> bool {
        self.dead > 64 && self.dead * 2 > self.small.len() + self.main.len()
    }

    /// Takes out every frame that `is_dead`, telling each.
    pub(super) fn sweep(&mut self, mut is_dead: impl FnMut(u32) -> bool) {
        self.small.retain(|&frame| !is_dead(frame));
        self.main.retain(|&frame| !is_dead(frame));
        self.dead = 0;
    }
}
