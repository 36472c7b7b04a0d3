//! Allowed content of every block: the write acknowledged last, or one that was outstanding at the kill.

use lab::random::mix;

pub(super) const BLOCK_BYTES: usize = 512;
const WORDS: usize = BLOCK_BYTES / 8;

/// Allowed content of each block.
#[derive(Debug)]
pub(super) struct Oracle {
    seed: u64,
    next_sequence: u64,
    blocks: Vec<State>,
}

/// State of a block. Sequence 0 stands for the zeros of a new volume.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    acknowledged: u64,
    under_way: Option<u64>,
}

/// Content of a block.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Zeros,
    Written { lba: u64, sequence: u64 },
    Mixed,
}

impl Oracle {
    /// Creates the oracle of a new volume of zeros, of which the first `blocks` are used.
    pub(super) fn new(seed: u64, blocks: u64) -> Self {
        let count = usize::try_from(blocks).expect("the blocks in use fit in memory");
        Self { seed, next_sequence: 1, blocks: vec![State::default(); count] }
    }

    /// True when no write to these blocks is outstanding; the order of concurrent writes would be unknown.
    pub(super) fn is_free(&self, lba: u64, blocks: u32) -> bool {
        self.range(lba, blocks).iter().all(|block| block.under_way.is_none())
    }

    /// Records a write as outstanding; returns its sequence number and its data.
    pub(super) fn submit(&mut self, lba: u64, blocks: u32) -> (u64, Vec<u8>) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        for block in self.range_mut(lba, blocks) {
            block.under_way = Some(sequence);
        }
        let mut data = Vec::with_capacity(blocks as usize * BLOCK_BYTES);
        for lba in lba..lba + u64::from(blocks) {
            (0..WORDS).for_each(|word| data.extend(self.word(lba, sequence, word).to_le_bytes()));
        }
        (sequence, data)
    }

    /// Records that the write ended GOOD.
    pub(super) fn acknowledge(&mut self, lba: u64, blocks: u32) {
        for block in self.range_mut(lba, blocks) {
            // Only one write to a block is outstanding at a time, so the answer belongs to it.
            block.acknowledged = block.under_way.take().expect("a write is under way until it is acknowledged");
        }
    }

    /// Checks blocks that were read after a kill; the content found becomes the only allowed one.
    pub(super) fn judge(&mut self, lba: u64, data: &[u8]) -> Vec<String> {
        let mut faults = Vec::new();
        for (block, lba) in data.chunks_exact(BLOCK_BYTES).zip(lba..) {
            let content = self.content(block);
            let state = &mut self.range_mut(lba, 1)[0];
            let shown = match content {
                Content::Zeros => Some(0),
                Content::Written { lba: own, sequence } if own == lba => Some(sequence),
                _ => None,
            };
            match shown {
                Some(sequence) if sequence == state.acknowledged || Some(sequence) == state.under_way => {
                    // A later read must show the same content, although both were allowed before.
                    *state = State { acknowledged: sequence, under_way: None };
                }
                _ => faults.push(format!(
                    "block {lba} shows {content:?}; acknowledged was {}, under way {:?}",
                    state.acknowledged, state.under_way
                )),
            }
        }
        faults
    }

    fn word(&self, lba: u64, sequence: u64, word: usize) -> u64 {
        match word {
            0 => lba,
            1 => sequence,
            2 => self.seed,
            // Every word depends on all three numbers, so that a block mixed from two writes is detected.
            _ => mix(lba ^ sequence.rotate_left(20) ^ self.seed.rotate_left(40) ^ ((word as u64) << 56)),
        }
    }

    fn content(&self, block: &[u8]) -> Content {
        // Sequence numbers start at one, so no written block is all zeros.
        if block.iter().all(|&byte| byte == 0) {
            return Content::Zeros;
        }
        let words = block.as_chunks::<8>().0;
        let (lba, sequence) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
        let whole = words.iter().enumerate().all(|(i, word)| u64::from_le_bytes(*word) == self.word(lba, sequence, i));
        if whole { Content::Written { lba, sequence } } else { Content::Mixed }
    }

    fn range(&self, lba: u64, blocks: u32) -> &[State] {
        &self.blocks[lba as usize..][..blocks as usize]
    }

    fn range_mut(&mut self, lba: u64, blocks: u32) -> &mut [State] {
        &mut self.blocks[lba as usize..][..blocks as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(oracle: &mut Oracle, lba: u64, blocks: u32) -> Vec<u8> {
        let (_, data) = oracle.submit(lba, blocks);
        oracle.acknowledge(lba, blocks);
        data
    }

    #[test]
    fn oracle_accepts_what_was_acknowledged_and_what_was_under_way() {
        let mut oracle = Oracle::new(1, 8);
        let old = written(&mut oracle, 2, 2);
        let (_, new) = oracle.submit(2, 2);
        let mixed_by_blocks = [&old[..BLOCK_BYTES], &new[BLOCK_BYTES..]].concat();
        assert_eq!(oracle.judge(2, &mixed_by_blocks), Vec::<String>::new());
        assert_eq!(oracle.judge(0, &[0; 2 * BLOCK_BYTES]), Vec::<String>::new());
    }

    #[test]
    fn oracle_finds_older_foreign_misplaced_and_mixed_blocks() {
        let mut oracle = Oracle::new(1, 8);
        let older = written(&mut oracle, 2, 1);
        let newer = written(&mut oracle, 2, 1);
        assert_eq!(oracle.judge(2, &older).len(), 1);
        assert_eq!(oracle.judge(2, &[0; BLOCK_BYTES]).len(), 1);
        assert_eq!(oracle.judge(3, &newer).len(), 1);
        let half = [&older[..BLOCK_BYTES / 2], &newer[BLOCK_BYTES / 2..]].concat();
        assert_eq!(oracle.judge(2, &half).len(), 1);
        let mut foreign = Oracle::new(2, 8);
        assert_eq!(oracle.judge(2, &written(&mut foreign, 2, 1)).len(), 1);
        assert_eq!(oracle.judge(2, &newer).len(), 0);
    }

    #[test]
    fn oracle_lets_no_block_go_back_after_it_was_read() {
        let mut oracle = Oracle::new(1, 8);
        let old = written(&mut oracle, 0, 1);
        let (_, new) = oracle.submit(0, 1);
        assert_eq!(oracle.judge(0, &new).len(), 0);
        assert_eq!(oracle.judge(0, &old).len(), 1);
    }

    #[test]
    fn oracle_knows_which_blocks_are_under_way() {
        let mut oracle = Oracle::new(1, 8);
        oracle.submit(2, 2);
        assert!(!oracle.is_free(3, 1) && !oracle.is_free(0, 8) && oracle.is_free(4, 4));
    }
}
