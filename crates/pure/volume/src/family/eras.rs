//! Who may still look at what: places and pages that were given up are used again only when everybody has
//! gone who began before.

use shard::Signal;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Counts those who look, by the era in which they began.
#[derive(Debug, Default)]
pub(crate) struct Eras {
    /// The oldest era in which somebody began who has not gone, or the present one.
    oldest: Cell<u64>,
    counts: RefCell<VecDeque<u32>>,
    advanced: Signal,
}

/// Somebody who looks.
#[derive(Debug)]
pub(crate) struct Looking<'a> {
    eras: &'a Eras,
    era: u64,
}

impl Eras {
    /// What is given up from now on stays as it is as long as the answer lives.
    pub(crate) fn look(&self) -> Looking<'_> {
        let mut counts = self.counts.borrow_mut();
        if counts.is_empty() {
            counts.push_back(0);
        }
        let era = self.oldest.get() + counts.len() as u64 - 1;
        *counts.back_mut().expect("there is a present era") += 1;
        Looking { eras: self, era }
    }

    /// Begins an era; returns the one that ended. Who looks from now on does not see what was given up in it.
    pub(crate) fn turn(&self) -> u64 {
        let mut counts = self.counts.borrow_mut();
        if counts.is_empty() {
            counts.push_back(0);
        }
        let ended = self.oldest.get() + counts.len() as u64 - 1;
        counts.push_back(0);
        drop(counts);
        self.advance();
        ended
    }

    /// True when everybody has gone who began in `era` or before.
    pub(crate) fn is_past(&self, era: u64) -> bool {
        self.oldest.get() > era
    }

    /// Everybody has gone who began in `era` or before.
    pub(crate) async fn past(&self, era: u64) {
        self.advanced.until(|| self.is_past(era)).await;
    }

    fn advance(&self) {
        let mut counts = self.counts.borrow_mut();
        let before = self.oldest.get();
        while counts.len() > 1 && counts.front() == Some(&0) {
            counts.pop_front();
            self.oldest.set(self.oldest.get() + 1);
        }
        drop(counts);
        if self.oldest.get() > before {
            self.advanced.raise();
        }
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        assert!(self.era >= self.eras.oldest.get(), "no era is past while somebody looks who began in it");
        let at = (self.era - self.eras.oldest.get()) as usize;
        let mut counts = self.eras.counts.borrow_mut();
        assert!(counts[at] > 0, "who looks goes once");
        counts[at] -= 1;
        drop(counts);
        self.eras.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn era_is_past_when_all_have_gone_who_began_in_it_or_before() {
        let eras = Eras::default();
        let first = eras.look();
        let era = eras.turn();
        let second = eras.look();
        assert!(!eras.is_past(era));
        let later = eras.turn();
        assert!(eras.past(era).now_or_never().is_none());
        drop(first);
        assert!(eras.is_past(era) && !eras.is_past(later));
        drop(second);
        assert!(eras.past(later).now_or_never().is_some());
        let alone = eras.turn();
        assert!(eras.is_past(alone), "nobody looks");
    }
}
