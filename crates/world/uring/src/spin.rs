//! Adaptive busy polling before a sleep: suspended while recent polling found nothing.

use std::time::Duration;

/// Consecutive misses after which polling is suspended.
const MISSES_MAX: u32 = 8;
/// Sleeps between two attempts while suspended.
const PROBE_EVERY: u32 = 64;

/// Success history of busy polling.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    misses: u32,
    skipped: u32,
}

impl Spin {
    /// Returns a history for polls of `limit` each; zero disables polling.
    pub fn new(limit: Duration) -> Self {
        Self { limit, misses: 0, skipped: 0 }
    }

    /// Duration of the next poll; `None` to sleep immediately.
    pub fn budget(&mut self) -> Option<Duration> {
        if self.limit.is_zero() {
            return None;
        }
        // After a series of misses, polling is only probed now and then.
        if self.misses >= MISSES_MAX {
            self.skipped += 1;
            if self.skipped < PROBE_EVERY {
                return None;
            }
            self.skipped = 0;
        }
        Some(self.limit)
    }

    /// Records whether a poll found work.
    pub fn learn(&mut self, found: bool) {
        // One hit resumes polling at full rate.
        self.misses = if found { 0 } else { self.misses.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spin_is_given_up_when_it_never_pays_and_taken_up_when_it_does() {
        let mut spin = Spin::new(Duration::from_micros(20));
        for _ in 0..MISSES_MAX {
            assert!(spin.budget().is_some());
            spin.learn(false);
        }
        let tries = (0..PROBE_EVERY * 4).filter(|_| spin.budget().is_some()).count();
        assert_eq!(tries, 4);
        spin.learn(true);
        assert!(spin.budget().is_some() && spin.budget().is_some());
        assert_eq!(Spin::new(Duration::ZERO).budget(), None);
    }
}
