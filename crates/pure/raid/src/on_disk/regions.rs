//! Bitmap of regions: runs of pages, the same on every member.

use crate::bounds::BLOCK_BYTES;

/// Upper bound of regions of a member: the bits of one block.
pub(crate) const REGIONS: u64 = BLOCK_BYTES as u64 * 8;

/// Set of regions.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Regions(Box<[u64]>);

impl Default for Regions {
    fn default() -> Self {
        Self(vec![0; (REGIONS / 64) as usize].into())
    }
}

impl Regions {
    pub(crate) fn contains(&self, region: u64) -> bool {
        self.0[(region / 64) as usize] & 1 << (region % 64) != 0
    }

    pub(crate) fn add(&mut self, region: u64) {
        // Pages are grouped into at most `REGIONS` regions, so the bit exists.
        self.0[(region / 64) as usize] |= 1 << (region % 64);
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    /// Returns the set for regions of `factor` times as many pages; a coarse region contains every finer one.
    pub(crate) fn coarsened(&self, factor: u64) -> Self {
        let mut coarse = Self::default();
        self.iter().for_each(|region| coarse.add(region / factor));
        coarse
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The regions in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..)
            .zip(&self.0)
            .flat_map(|(at, &word)| (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| at * 64 + bit))
    }

    pub(crate) fn emit(&self, into: &mut [u8]) {
        for (bytes, word) in into.chunks_exact_mut(8).zip(&self.0) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut regions = Self::default();
        for (word, bytes) in regions.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_survive_emit_and_parse_up_to_the_last() {
        let mut regions = Regions::default();
        let some = [0, 63, 64, 4711, REGIONS - 1];
        some.iter().for_each(|&region| regions.add(region));
        let mut block = vec![0; 4096];
        regions.emit(&mut block);
        let found = Regions::parse(&block);
        assert_eq!(found.iter().collect::<Vec<_>>(), some);
        assert!(found.contains(63) && !found.contains(62));
    }
}
