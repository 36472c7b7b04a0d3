//! Random choices of a scenario, all derived from the seed of its world.

use sim::Sim;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Random generator of a scenario. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SeededRandom(Sim);

impl SeededRandom {
    pub(crate) fn of(sim: &Sim) -> Self {
        Self(sim.clone())
    }

    /// Returns a number below `bound`, which is not zero.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.random_below(bound)
    }

    /// Returns a number in `range`.
    pub(crate) fn within(&self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// Returns a count in `range`.
    pub(crate) fn count(&self, range: RangeInclusive<usize>) -> usize {
        let drawn = self.within(*range.start() as u64..=*range.end() as u64);
        usize::try_from(drawn).expect("it lies between two of them")
    }

    /// Returns true with this probability in percent.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns an element of `all`, which is not empty.
    pub(crate) fn pick<T: Copy>(&self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// Returns an index into a collection of `len` elements, which is not empty.
    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below an usize")
    }

    /// Returns a duration in `range`.
    pub(crate) fn duration(&self, range: RangeInclusive<Duration>) -> Duration {
        let nanos = |duration: &Duration| u64::try_from(duration.as_nanos()).expect("less than 584 years");
        Duration::from_nanos(self.within(nanos(range.start())..=nanos(range.end())))
    }

    /// Returns a duration up to `most` that is mostly short: its order of magnitude is drawn first.
    pub(crate) fn moment(&self, most: Duration) -> Duration {
        let shift = u32::try_from(self.below(12)).expect("below twelve");
        self.duration(Duration::ZERO..=most / (1 << shift))
    }

    /// Shuffles `all`.
    pub(crate) fn shuffle<T>(&self, all: &mut [T]) {
        // Fisher-Yates: every order is equally likely.
        for last in (1..all.len()).rev() {
            all.swap(last, self.index(last + 1));
        }
    }

    /// Returns sixteen random bytes for an identifier.
    pub(crate) fn identity(&self) -> [u8; 16] {
        std::array::from_fn(|_| self.below(256) as u8)
    }
}
