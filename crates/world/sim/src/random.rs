//! The only source of chance: SplitMix64 (Steele, Lea, Flood 2014), one stream per concern.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A stream of numbers that a seed and a label determine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream `label` of `seed`: drawing from one does not shift another.
    pub(crate) fn new(seed: u64, label: &str) -> Self {
        let mut random = Self(seed);
        for byte in label.bytes() {
            random.0 = random.next() ^ u64::from(byte);
        }
        random
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into something of `len` elements, which is not empty.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below an usize")
    }

    /// True so many times out of a million.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// A duration in `range`.
    pub(crate) fn duration(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let (low, high) = (nanos(*range.start()), nanos(*range.end()));
        Duration::from_nanos(low + self.below(high.saturating_sub(low) + 1))
    }

    /// Fills `out`.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("delays are shorter than 584 years")
}
