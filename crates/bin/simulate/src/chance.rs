//! What a run leaves to chance, all of it from the seed of its world.

use sim::Sim;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Draws for a scenario. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Chance(Sim);

impl Chance {
    pub(crate) fn of(sim: &Sim) -> Self {
        Self(sim.clone())
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.random_below(bound)
    }

    /// A number in `range`.
    pub(crate) fn within(&self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// A count in `range`.
    pub(crate) fn count(&self, range: RangeInclusive<usize>) -> usize {
        let drawn = self.within(*range.start() as u64..=*range.end() as u64);
        usize::try_from(drawn).expect("it lies between two of them")
    }

    /// True so many times out of a hundred.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `all`, of which there is at least one.
    pub(crate) fn pick<T: Copy>(&self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// An index into something of `len` elements, of which there is at least one.
    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below an usize")
    }

    /// A duration in `range`.
    pub(crate) fn duration(&self, range: RangeInclusive<Duration>) -> Duration {
        let nanos = |duration: &Duration| u64::try_from(duration.as_nanos()).expect("less than 584 years");
        Duration::from_nanos(self.within(nanos(range.start())..=nanos(range.end())))
    }

    /// Mostly short, now and then up to `most`: a duration whose order of magnitude is drawn first.
    pub(crate) fn moment(&self, most: Duration) -> Duration {
        let shift = u32::try_from(self.below(12)).expect("below twelve");
        self.duration(Duration::ZERO..=most / (1 << shift))
    }

    /// Puts `all` into an order of chance.
    pub(crate) fn shuffle<T>(&self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.index(last + 1));
        }
    }

    /// Sixteen bytes for an identity.
    pub(crate) fn identity(&self) -> [u8; 16] {
        std::array::from_fn(|_| self.below(256) as u8)
    }
}
