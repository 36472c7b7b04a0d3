//! Latency histograms.
//!
//! The buckets are log-linear: eight per doubling, so that a value is known to one eighth from a microsecond to a
//! minute. Counts only increase, so that the difference of two snapshots is the histogram of the interval between them.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Buckets per doubling, as a power of two.
const STEPS_BITS: u32 = 3;
const STEPS: usize = 1 << STEPS_BITS;
/// Number of doublings, of which the first covers 0 to 7 µs. Latencies of more than a minute are counted in the last
/// bucket.
const DOUBLINGS: usize = 24;

/// Number of buckets.
pub const BUCKETS: usize = STEPS * DOUBLINGS;

/// Number of rows of [`Histogram::rows`].
pub const ROWS: usize = 24;

/// Histogram of command latencies: pairs of bucket number and count, without empty buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Histogram(Vec<(u8, u64)>);

impl Histogram {
    /// Creates a histogram from the counts of all [`BUCKETS`], shortest latency first.
    pub fn new(counts: impl Iterator<Item = u64>) -> Self {
        // The numbers of all buckets fit into one byte.
        let numbered = (0..=u8::MAX).zip(counts.take(BUCKETS));
        // Without empty buckets: latencies of one volume fall into few of the 192.
        Self(numbered.filter(|&(_, count)| count > 0).collect())
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Returns the sum of all latencies.
    ///
    /// *Shape*: microseconds. Each command counts as the middle of its bucket, so the error is at most one sixteenth.
    #[must_use]
    pub fn took_us(&self) -> u64 {
        // Buckets do not keep single values; the middle halves the error of either end.
        self.0.iter().map(|&(bucket, count)| (first_of(bucket) + last_of(bucket)) / 2 * count).sum()
    }

    /// Returns the latency that `per_mille` of a thousand commands did not exceed; zero for an empty histogram.
    ///
    /// *Shape*: microseconds; at most one eighth too high, because the end of the bucket is returned.
    #[must_use]
    pub fn within_us(&self, per_mille: u64) -> u64 {
        // 128 bits: the product can exceed 64 bits. Rounding up makes the result cover at least the wanted share.
        let wanted = (u128::from(self.commands()) * u128::from(per_mille)).div_ceil(1000);
        let mut seen = 0;
        let bucket = self.0.iter().find(|&&(_, count)| {
            seen += u128::from(count);
            seen >= wanted
        });
        bucket.map_or(0, |&(bucket, _)| last_of(bucket))
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.0 = merged(&self.0, &other.0, |one, another| one + another);
    }

    /// Returns the difference to the earlier state `earlier`. If a count has decreased, it was a different histogram,
    /// and all of this one is returned.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let fell = merged(&self.0, &earlier.0, |now, then| u64::from(now < then));
        // `merged` drops zeros, so any entry is a count that has decreased: the counters were reset in between.
        if !fell.is_empty() {
            return self.clone();
        }
        Self(merged(&self.0, &earlier.0, |now, then| now - then))
    }

    /// Returns one count per doubling: less than 8 µs, 8 to 16 µs, 16 to 32 µs and so on; the last is everything above
    /// half a minute.
    #[must_use]
    pub fn rows(&self) -> [u64; ROWS] {
        let mut rows = [0; ROWS];
        for &(bucket, count) in &self.0 {
            rows[usize::from(bucket) / STEPS] += count;
        }
        rows
    }

    /// Returns, for each of the [`Histogram::rows`], its upper bound in microseconds and the number of commands up to
    /// it.
    #[must_use]
    pub fn cumulated(&self) -> [(u64, u64); ROWS] {
        let mut seen = 0;
        let mut row = 0;
        self.rows().map(|count| {
            seen += count;
            row += 1;
            // Each row ends at twice the time of the preceding one.
            (STEPS as u64 * (1 << (row - 1)), seen)
        })
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts = Vec::<(u8, u64)>::deserialize(deserializer)?;
        // Counts from another daemon: `rows` indexes by bucket, and `merged` relies on the order.
        let is_known = counts.iter().all(|&(bucket, _)| usize::from(bucket) < BUCKETS);
        if !is_known || !counts.is_sorted_by(|one, next| one.0 < next.0) {
            return Err(D::Error::custom(format!("the buckets of a histogram are below {BUCKETS} and ascend")));
        }
        Ok(Self(counts))
    }
}

/// Combines two sorted lists of counts with `with`, without zeros in the result.
fn merged(one: &[(u8, u64)], other: &[(u8, u64)], with: impl Fn(u64, u64) -> u64) -> Vec<(u8, u64)> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut all = Vec::with_capacity(one.len().max(other.len()));
    loop {
        let bucket = match (one.peek(), other.peek()) {
            (Some(a), Some(b)) => a.0.min(b.0),
            (Some(a), None) => a.0,
            (None, Some(b)) => b.0,
            (None, None) => return all,
        };
        // A side without this bucket counts as zero and keeps its entry for a later round.
        let a = one.next_if(|count| count.0 == bucket).map_or(0, |count| count.1);
        let b = other.next_if(|count| count.0 == bucket).map_or(0, |count| count.1);
        let count = with(a, b);
        if count > 0 {
            all.push((bucket, count));
        }
    }
}

/// Returns the bucket of a latency of `us` microseconds.
#[must_use]
#[inline]
pub fn bucket_of(us: u64) -> usize {
    // Up to 7 µs every microsecond has its own bucket.
    let Some(doublings) = us.checked_ilog2().and_then(|log| log.checked_sub(STEPS_BITS)) else {
        return usize::try_from(us).unwrap_or(BUCKETS - 1);
    };
    // The leading one bit of the shifted value, worth `STEPS`, accounts for the first doubling.
    let step = (us >> doublings) as usize;
    (doublings as usize * STEPS + step).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket in microseconds, inclusive.
fn last_of(bucket: u8) -> u64 {
    let bucket = usize::from(bucket);
    // Width one: the linear part and the first doubling above it.
    if bucket < 2 * STEPS {
        return bucket as u64;
    }
    // Inverse of `bucket_of`: the step regains the leading one bit that its doubling stands for.
    let (doublings, step) = (bucket / STEPS - 1, bucket % STEPS + STEPS);
    ((step as u64 + 1) << doublings) - 1
}

fn first_of(bucket: u8) -> u64 {
    // Derived from the bucket below, so that no latency falls between two buckets.
    bucket.checked_sub(1).map_or(0, |before| last_of(before) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_us: impl Iterator<Item = u64>) -> Histogram {
        let mut counts = [0; BUCKETS];
        times_us.for_each(|us| counts[bucket_of(us)] += 1);
        Histogram::new(counts.into_iter())
    }

    #[test]
    fn buckets_follow_each_other_and_are_an_eighth_wide_at_most() {
        assert_eq!((0..16).map(bucket_of).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
        let mut us = 0;
        for bucket in 0..BUCKETS - 1 {
            let last = last_of(u8::try_from(bucket).expect("a byte numbers the buckets"));
            assert!(last >= us && (last - us) * 8 <= us, "bucket {bucket}: {us} to {last}");
            assert_eq!((bucket_of(us), bucket_of(last), bucket_of(last + 1)), (bucket, bucket, bucket + 1));
            us = last + 1;
        }
        assert!(us > 60_000_000, "a minute has a bucket");
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn histogram_tells_ranks_sums_and_rows() {
        let histogram = of(1..=1000);
        assert_eq!(histogram.commands(), 1000);
        for (per_mille, exact) in [(500, 500), (990, 990), (999, 999)] {
            let told = histogram.within_us(per_mille);
            assert!((exact..=exact + exact / 8).contains(&told), "{told} for {exact}");
        }
        assert!(histogram.took_us().abs_diff(500_500) <= 500_500 / 16, "{}", histogram.took_us());
        let rows = histogram.rows();
        assert_eq!(rows[..8], [7, 8, 16, 32, 64, 128, 256, 489]);
        assert_eq!(histogram.cumulated()[0], (8, 7), "seven take less than 8 µs");
        assert_eq!(histogram.cumulated()[23], (8 << 23, 1000));
        assert_eq!(Histogram::default().within_us(500), 0);
    }

    #[test]
    fn histogram_from_json_has_known_buckets_in_order() {
        let histogram = of([3, 90, 70_000_000].into_iter());
        let json = serde_json::to_string(&histogram).expect("json");
        assert_eq!(serde_json::from_str::<Histogram>(&json).expect("own json"), histogram);
        for json in ["[[192,1]]", "[[255,1]]", "[[7,1],[7,1]]", "[[8,1],[7,1]]"] {
            assert!(serde_json::from_str::<Histogram>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn difference_of_two_looks_is_what_was_in_between() {
        let (before, between) = (of([3, 3, 90, 70_000_000].into_iter()), of([3, 5, 91, 1000].into_iter()));
        let mut after = before.clone();
        after.add(&between);
        assert_eq!(after.commands(), 8);
        assert_eq!(after.since(&before), between);
        assert_eq!(after.since(&Histogram::default()), after);
        assert_eq!(before.since(&after), before, "a unit that was opened anew counts from nothing");
    }
}
