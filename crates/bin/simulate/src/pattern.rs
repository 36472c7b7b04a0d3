//! Block patterns, which identify the write from which a block comes.
//!
//! Every atom of 512 bytes holds its write, the block for which it was meant and its place in the block; the rest of
//! the atom is derived from these three numbers. Zeros are the value of blocks that were never written.

/// Unit that a disk writes atomically, in bytes.
pub(crate) const ATOM_BYTES: usize = 512;
const WORD_BYTES: usize = 8;

/// Identity of the write from which a block comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value(u64);

impl Value {
    pub(crate) const ZERO: Self = Self(0);
    /// Mark of a mixture after a power failure; the other bits are a digest of the content.
    const MIXED: u64 = 1 << 63;

    /// Mark of WRITE SAME: the same bytes in every block, independent of its address.
    const SAME: u64 = 1 << 62;

    /// Returns the value of the write with this number, which is at least one.
    pub(crate) fn of_write(number: u64) -> Self {
        assert!((1..Self::SAME).contains(&number), "writes are counted from one");
        Self(number)
    }

    /// Returns the value of the WRITE SAME with this number: all of its blocks are equal.
    pub(crate) fn of_write_same(number: u64) -> Self {
        Self(Self::of_write(number).0 | Self::SAME)
    }

    /// True for a mixture after a power failure, which cannot be written.
    pub(crate) fn is_mixture(self) -> bool {
        self.0 & Self::MIXED != 0
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("zeros"),
            mixed if self.is_mixture() => write!(f, "mixture {:x}", mixed ^ Self::MIXED),
            same if same & Self::SAME != 0 => write!(f, "write same {}", same ^ Self::SAME),
            number => write!(f, "write {number}"),
        }
    }
}

/// Content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// All atoms are of one write.
    Pure(Value),
    /// Atoms of several writes: for each atom its write, or `None` for bytes that no write produced. The value
    /// identifies exactly these bytes.
    Mixed(Value, Vec<Option<Value>>),
}

/// Fills `block`, which is block `lba`, with `value`, which is not a mixture.
pub(crate) fn fill(value: Value, lba: u64, block: &mut [u8]) {
    assert!(!value.is_mixture(), "nobody knows the bytes of a mixture");
    if value.is_zero() {
        block.fill(0);
        return;
    }
    // Blocks have 512 or 4,096 bytes, so they consist of whole atoms.
    for (index, atom) in (0..).zip(block.chunks_exact_mut(ATOM_BYTES)) {
        for (bytes, word) in atom.chunks_exact_mut(WORD_BYTES).zip(words(value, lba, index)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Returns the content of `block`, which is block `lba`.
pub(crate) fn read(block: &[u8], lba: u64) -> Content {
    let atoms: Vec<Option<Value>> =
        (0..).zip(block.chunks_exact(ATOM_BYTES)).map(|(index, atom)| read_atom(atom, lba, index)).collect();
    match atoms.first() {
        Some(&Some(first)) if atoms.iter().all(|atom| *atom == Some(first)) => Content::Pure(first),
        // The digest gives equal bytes the same value, so that a later read can be compared.
        // Shifted, because the top bit is the mark.
        _ => Content::Mixed(Value(Value::MIXED | digest(block) >> 1), atoms),
    }
}

fn read_atom(atom: &[u8], lba: u64, index: u64) -> Option<Value> {
    // An atom names its write itself; the other words must then follow from it.
    let value = Value(word_of(atom.get(..WORD_BYTES)?));
    if value.is_zero() {
        return atom.iter().all(|&byte| byte == 0).then_some(value);
    }
    let found = atom.chunks_exact(WORD_BYTES).map(word_of);
    found.eq(words(value, lba, index)).then_some(value)
}

/// Returns the words of one atom.
fn words(value: Value, lba: u64, index: u64) -> impl Iterator<Item = u64> {
    // WRITE SAME sends one block for all addresses, so its pattern has no address.
    let place = if value.0 & Value::SAME == 0 { lba } else { u64::MAX };
    // The index is mixed in last, so that the atoms of a block differ in every word.
    let start = mix(mix(value.0) ^ place) ^ index;
    let rest = (0..).map(move |n: u64| mix(start.wrapping_add(n)));
    // The three numbers come first and unmixed, so that a reader learns from them which words must follow.
    [value.0, place, index].into_iter().chain(rest).take(ATOM_BYTES / WORD_BYTES)
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Returns the finalizer of SplitMix64.
fn mix(word: u64) -> u64 {
    let mut mixed = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(WORD_BYTES).fold(0, |digest, word| mix(digest ^ word_of(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(value: Value, lba: u64) -> [u8; 4096] {
        let mut block = [0xa5; 4096];
        fill(value, lba, &mut block);
        block
    }

    #[test]
    fn pattern_tells_which_write_it_is_from() {
        let (value, same) = (Value::of_write(7), Value::of_write_same(7));
        assert_eq!(read(&filled(value, 3), 3), Content::Pure(value));
        assert_eq!(read(&filled(same, 4), 3), Content::Pure(same));
        assert_eq!(read(&filled(Value::ZERO, 3), 3), Content::Pure(Value::ZERO));
    }

    #[test]
    fn pattern_sees_another_blocks_data_one_wrong_bit_and_a_wrong_atom() {
        let block = filled(Value::of_write(7), 3);
        assert!(matches!(read(&block, 4), Content::Mixed(_, atoms) if atoms == [None; 8]));
        let mut rotten = block;
        rotten[4095] ^= 1;
        assert!(matches!(read(&rotten, 3), Content::Mixed(_, atoms) if atoms[7].is_none() && atoms[0].is_some()));
        let mut shifted = block;
        shifted.copy_within(0..512, 512);
        assert!(matches!(read(&shifted, 3), Content::Mixed(_, atoms) if atoms[1].is_none()));
        assert_ne!(read(&shifted, 3), read(&rotten, 3));
    }

    #[test]
    fn pattern_of_a_torn_block_names_both_writes() {
        let mut block = filled(Value::of_write(7), 3);
        block[..512].copy_from_slice(&filled(Value::of_write(8), 3)[..512]);
        let Content::Mixed(_, atoms) = read(&block, 3) else { panic!("it is mixed") };
        assert_eq!((atoms[0], atoms[1]), (Some(Value::of_write(8)), Some(Value::of_write(7))));
    }
}
