//! Addresses of commands, in sequence.

use crate::point::Pattern;
use crate::random::{Random, mix};

/// Skew of [`Pattern::Zipf`], as in YCSB.
const THETA: f64 = 0.99;

/// Generator of slots of a part of a unit, in the order of a pattern. A slot is a range of blocks as long as a command.
#[derive(Clone, Debug)]
pub struct Addresses {
    first: u64,
    count: u64,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    Sequential { next: u64 },
    Random,
    Zipf(Zipf),
}

impl Addresses {
    /// Creates the generator of `count` slots from `first` on.
    ///
    /// *Panics*: `count` is zero.
    #[must_use]
    pub fn new(pattern: Pattern, first: u64, count: u64) -> Self {
        assert!(count > 0, "there is a place");
        let order = match pattern {
            Pattern::Sequential => Order::Sequential { next: 0 },
            Pattern::Random => Order::Random,
            Pattern::Zipf => Order::Zipf(Zipf::new(count)),
        };
        Self { first, count, order }
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the next slot.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        let at = match &mut self.order {
            Order::Sequential { next } => {
                let at = *next;
                *next = (at + 1) % self.count;
                at
            }
            Order::Random => random.below(self.count),
            // Scattered: slots of similar rank must not be neighbors on the unit.
            Order::Zipf(zipf) => mix(zipf.rank(random)) % self.count,
        };
        self.first + at
    }
}

/// Zipf distribution: ranks below `count`, each with a probability proportional to `(rank + 1)^-THETA`.
///
/// *Source*: Gray et al., "Quickly generating billion-record synthetic databases" (1994), as in YCSB.
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64) -> Self {
        let zeta = harmonic(count);
        let n = count as f64;
        let eta = (1.0 - (2.0 / n).powf(1.0 - THETA)) / (1.0 - harmonic(2) / zeta);
        Self { count: n, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        // The upper 53 bits: as many as a double represents exactly.
        let uniform = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(THETA) {
            1
        } else {
            // Rounding may give `count` itself, which the remainder in `next` maps to a slot.
            (self.count * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
        }
    }
}

/// Returns the sum of `r^-THETA` for r from 1 to `count`: exact up to 10,000, by the integral beyond.
fn harmonic(count: u64) -> f64 {
    const EXACT: u64 = 10_000;
    let exact: f64 = (1..=count.min(EXACT)).map(|rank| (rank as f64).powf(-THETA)).sum();
    // Midpoint rule: the terms from a to b sum up to about the integral from a - 1/2 to b + 1/2.
    let from = |rank: f64| (rank + 0.5).powf(1.0 - THETA) / (1.0 - THETA);
    if count > EXACT { exact + from(count as f64) - from(EXACT as f64) } else { exact }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pattern: Pattern, count: u64, draws: usize) -> Vec<u32> {
        let (mut places, mut random) = (Addresses::new(pattern, 100, count), Random::new(3));
        let mut counts = vec![0; usize::try_from(count).expect("few")];
        (0..draws).for_each(|_| counts[usize::try_from(places.next(&mut random) - 100).expect("few")] += 1);
        counts
    }

    #[test]
    fn sequential_places_come_in_turn_and_again() {
        let (mut places, mut random) = (Addresses::new(Pattern::Sequential, 5, 3), Random::new(0));
        assert_eq!((0..7).map(|_| places.next(&mut random)).collect::<Vec<_>>(), [5, 6, 7, 5, 6, 7, 5]);
    }

    #[test]
    fn random_places_are_all_as_likely() {
        let counts = counts(Pattern::Random, 16, 16_000);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipf_has_the_weights_of_the_first_ranks() {
        let n = 1_000_000;
        let (zipf, mut random, draws) = (Zipf::new(n), Random::new(9), 200_000);
        let mut first = [0_u32; 2];
        for _ in 0..draws {
            let rank = zipf.rank(&mut random);
            assert!(rank < n);
            if rank < 2 {
                first[usize::try_from(rank).expect("small")] += 1;
            }
        }
        let zeta: f64 = (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum();
        assert!((zeta - zipf.zeta).abs() / zeta < 1e-6, "{zeta} {}", zipf.zeta);
        for (rank, count) in first.into_iter().enumerate() {
            let expected = draws as f64 * (rank as f64 + 1.0).powf(-THETA) / zeta;
            assert!((f64::from(count) - expected).abs() < expected * 0.05, "rank {rank}: {count}, {expected}");
        }
    }
}
