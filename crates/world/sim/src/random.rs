//! The only source of randomness: SplitMix64 (Steele, Lea, Flood 2014), one stream per concern.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Random stream that is determined by a seed and a label.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the stream `label` of `seed`: drawing from one does not shift another.
    pub(crate) fn new(seed: u64, label: &str) -> Self {
        let mut random = Self(seed);
        for byte in label.bytes() {
            // Each label yields an independent stream of the same seed.
            random.0 = random.next() ^ u64::from(byte);
        }
        random
    }

    /// Draws a 64-bit number.
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64: increment and multipliers of the published algorithm.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        // Multiplication and shift instead of a division; the bias is negligible.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws an index below `len`, which is not zero.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below an usize")
    }

    /// True with a probability of `per_million` in a million.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        // Disabled faults draw no number, so that they do not change the run.
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Draws a duration in `range`.
    pub(crate) fn duration(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let (low, high) = (nanos(*range.start()), nanos(*range.end()));
        // Both ends are possible, hence one more; a reversed range gives its start.
        Duration::from_nanos(low + self.below(high.saturating_sub(low) + 1))
    }

    /// Fills `out` with random bytes.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("delays are shorter than 584 years")
}
