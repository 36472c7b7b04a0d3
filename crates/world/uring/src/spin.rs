//! Whether to look for work a little longer before sleeping: only while that has paid of late.

use std::time::Duration;

/// After so many vain searches it is tried seldom.
const MISSES_MAX: u32 = 8;
/// How seldom.
const PROBE_EVERY: u32 = 64;

/// The memory of how searching went.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    misses: u32,
    skipped: u32,
}

impl Spin {
    /// Searches last `limit` each; never when that is zero.
    pub fn new(limit: Duration) -> Self {
        Self { limit, misses: 0, skipped: 0 }
    }

    /// How long to search now, if at all.
    pub fn chance(&mut self) -> Option<Duration> {
        if self.limit.is_zero() {
            return None;
        }
        if self.misses >= MISSES_MAX {
            self.skipped += 1;
            if self.skipped < PROBE_EVERY {
                return None;
            }
            self.skipped = 0;
        }
        Some(self.limit)
    }

    /// Tells how the search ended.
    pub fn learn(&mut self, found: bool) {
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
            assert!(spin.chance().is_some());
            spin.learn(false);
        }
        let tries = (0..PROBE_EVERY * 4).filter(|_| spin.chance().is_some()).count();
        assert_eq!(tries, 4);
        spin.learn(true);
        assert!(spin.chance().is_some() && spin.chance().is_some());
        assert_eq!(Spin::new(Duration::ZERO).chance(), None);
    }
}
