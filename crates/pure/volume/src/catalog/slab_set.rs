//! A set of the slabs of a segment.

/// Which of a fixed number of slabs are in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabSet {
    words: Vec<u64>,
    len: u32,
}

impl SlabSet {
    /// None of `len` slabs.
    #[must_use]
    pub fn none(len: u32) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize], len }
    }

    /// How many slabs could be in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True when no slab could be in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many slabs are in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// True when `slab` is in the set.
    #[must_use]
    pub fn contains(&self, slab: u32) -> bool {
        self.words.get(slab as usize / 64).is_some_and(|word| word >> (slab % 64) & 1 == 1)
    }

    /// Puts `slab` into the set.
    ///
    /// *Panics*: when there is no such slab.
    pub fn insert(&mut self, slab: u32) {
        assert!(slab < self.len, "slab {slab} of {}", self.len);
        self.words[slab as usize / 64] |= 1 << (slab % 64);
    }

    /// The set could hold `len` slabs from now on; the new ones are not in it.
    ///
    /// *Panics*: when that is fewer than before.
    pub fn extend_to(&mut self, len: u32) {
        assert!(len >= self.len, "a set of {} slabs does not shrink to {len}", self.len);
        self.words.resize(len.div_ceil(64) as usize, 0);
        self.len = len;
    }

    /// The runs of slabs in the set, each its first slab and its length, in order.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(self.len);
            at = end;
            Some((start, end - start))
        })
    }

    /// The first slab from `from` on that is in the set (or is not).
    fn next(&self, from: u32, inside: bool) -> Option<u32> {
        let mut at = from;
        while at < self.len {
            let word = self.words[at as usize / 64];
            let word = if inside { word } else { !word } >> (at % 64);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < self.len).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The set of `len` slabs with these `words`, unless their number is wrong or they hold slabs behind the last.
    pub(crate) fn of_words(words: Vec<u64>, len: u32) -> Option<Self> {
        let spare = len.next_multiple_of(64) - len;
        let clean = words.last().is_none_or(|last| spare == 0 || last >> (64 - spare) == 0);
        (words.len() == len.div_ceil(64) as usize && clean).then_some(Self { words, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn slab_set_runs_are_what_was_inserted(len in 1u32..300, picks in prop::collection::vec(any::<u32>(), 0..200)) {
            let picks: BTreeSet<u32> = picks.into_iter().map(|pick| pick % len).collect();
            let mut set = SlabSet::none(len);
            picks.iter().for_each(|&pick| set.insert(pick));
            let listed: BTreeSet<u32> = set.runs().flat_map(|(start, run)| start..start + run).collect();
            prop_assert_eq!(&listed, &picks);
            prop_assert!((0..len + 70).all(|slab| set.contains(slab) == picks.contains(&slab)));
            prop_assert_eq!(set.count() as usize, picks.len());
            let runs: Vec<_> = set.runs().collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "runs are maximal");
        }
    }

    #[test]
    fn slab_set_of_words_refuses_slabs_behind_the_last() {
        assert!(SlabSet::of_words(vec![1 << 9], 10).is_some());
        assert!(SlabSet::of_words(vec![1 << 10], 10).is_none());
        assert!(SlabSet::of_words(vec![0, 0], 10).is_none());
    }
}
