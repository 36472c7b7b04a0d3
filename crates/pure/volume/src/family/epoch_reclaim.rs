//! Epoch-based reclamation for readers: places and pages that were given up are reused only after all readers
//! that started before have finished.
//!
//! Readers take no lock; they hold a [`ReadGuard`].

use shard::Signal;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Counts active readers by the era in which they started.
#[derive(Debug, Default)]
pub(crate) struct EpochReclaim {
    /// Oldest era with an active reader, or the current era.
    oldest: Cell<u64>,
    counts: RefCell<VecDeque<u32>>,
    advanced: Signal,
}

/// Guard of an active reader.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    eras: &'a EpochReclaim,
    era: u64,
}

impl EpochReclaim {
    /// Registers a reader: whatever is given up from now on stays intact while the guard lives.
    pub(crate) fn enter(&self) -> ReadGuard<'_> {
        let mut counts = self.counts.borrow_mut();
        if counts.is_empty() {
            counts.push_back(0);
        }
        // One count for each era from the oldest on; the last one is that of the current era.
        let era = self.oldest.get() + counts.len() as u64 - 1;
        *counts.back_mut().expect("there is a present era") += 1;
        ReadGuard { eras: self, era }
    }

    /// Starts a new era and returns the one that ended. Readers that start from now on do not see what was
    /// given up in it.
    pub(crate) fn advance_era(&self) -> u64 {
        let mut counts = self.counts.borrow_mut();
        if counts.is_empty() {
            counts.push_back(0);
        }
        let ended = self.oldest.get() + counts.len() as u64 - 1;
        counts.push_back(0);
        // `pop_drained` borrows the counts itself.
        drop(counts);
        self.pop_drained();
        ended
    }

    /// True when all readers of `era` and of earlier eras have finished.
    pub(crate) fn is_drained(&self, era: u64) -> bool {
        // The current era is never past: readers may still start in it.
        self.oldest.get() > era
    }

    /// Waits until all readers of `era` and of earlier eras have finished.
    pub(crate) async fn drained(&self, era: u64) {
        self.advanced.until(|| self.is_drained(era)).await;
    }

    fn pop_drained(&self) {
        let mut counts = self.counts.borrow_mut();
        let before = self.oldest.get();
        // The current era stays in the queue even without readers.
        while counts.len() > 1 && counts.front() == Some(&0) {
            counts.pop_front();
            self.oldest.set(self.oldest.get() + 1);
        }
        // Released before waiters are woken: they may look at the counts.
        drop(counts);
        if self.oldest.get() > before {
            self.advanced.raise();
        }
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        assert!(self.era >= self.eras.oldest.get(), "no era is past while somebody looks who began in it");
        let at = (self.era - self.eras.oldest.get()) as usize;
        let mut counts = self.eras.counts.borrow_mut();
        assert!(counts[at] > 0, "who looks goes once");
        counts[at] -= 1;
        drop(counts);
        self.eras.pop_drained();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn era_is_past_when_all_have_gone_who_began_in_it_or_before() {
        let eras = EpochReclaim::default();
        let first = eras.enter();
        let era = eras.advance_era();
        let second = eras.enter();
        assert!(!eras.is_drained(era));
        let later = eras.advance_era();
        assert!(eras.drained(era).now_or_never().is_none());
        drop(first);
        assert!(eras.is_drained(era) && !eras.is_drained(later));
        drop(second);
        assert!(eras.drained(later).now_or_never().is_some());
        let alone = eras.advance_era();
        assert!(eras.is_drained(alone), "nobody looks");
    }
}
