//! Bitmap of the slabs of a segment.

/// Set of slabs out of a fixed number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabSet {
    words: Vec<u64>,
    len: u32,
}

impl SlabSet {
    /// Creates the empty set over `len` slabs.
    #[must_use]
    pub fn none(len: u32) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize], len }
    }

    /// Number of slabs that the set ranges over.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True when the set ranges over no slab.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of slabs in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// True when `slab` is in the set.
    #[must_use]
    pub fn contains(&self, slab: u32) -> bool {
        self.words.get(slab as usize / 64).is_some_and(|word| word >> (slab % 64) & 1 == 1)
    }

    /// Inserts `slab`.
    ///
    /// *Panics*: when there is no such slab.
    pub fn insert(&mut self, slab: u32) {
        assert!(slab < self.len, "slab {slab} of {}", self.len);
        self.words[slab as usize / 64] |= 1 << (slab % 64);
    }

    /// Extends the range to `len` slabs; new ones are not in the set.
    ///
    /// *Panics*: when `len` is smaller than before.
    pub fn extend_to(&mut self, len: u32) {
        assert!(len >= self.len, "a set of {} slabs does not shrink to {len}", self.len);
        // Bits beyond the last slab are always clear, so the new slabs are not in the set.
        self.words.resize(len.div_ceil(64) as usize, 0);
        self.len = len;
    }

    /// Runs of slabs in the set, each with its first slab and its length, in order.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(self.len);
            at = end;
            Some((start, end - start))
        })
    }

    /// First slab from `from` on that is in the set, or not in it.
    fn next(&self, from: u32, inside: bool) -> Option<u32> {
        let mut at = from;
        while at < self.len {
            let word = self.words[at as usize / 64];
            // Searching for a slab outside the set inverts the word.
            let word = if inside { word } else { !word } >> (at % 64);
            if word != 0 {
                let found = at + word.trailing_zeros();
                // Bits behind the last slab are clear, so they are set in an inverted word.
                return (found < self.len).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Creates the set of `len` slabs from `words`; none when their number is wrong or a bit beyond the last
    /// slab is set.
    pub(crate) fn of_words(words: Vec<u64>, len: u32) -> Option<Self> {
        // Bits beyond the last slab must be clear, or the count would be wrong.
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
