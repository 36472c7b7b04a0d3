//! Where a log ends, and what is in it: decided from its blocks alone.

use super::{LogBlock, LogSlot, Record};
use crate::sabotage::{self, Sabotage};
use crate::tree::Damage;

/// What a log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The changes that the checkpoint does not have, in order.
    pub(crate) records: Vec<Record>,
    /// The sequence number of the block that is written next.
    pub(crate) sequence: u64,
    /// The serial number of the next change.
    pub(crate) serial: u64,
    /// The life that begins now.
    pub(crate) life: u32,
}

/// What the ring `blocks` says behind a checkpoint of the life `life` that has everything before the serial number
/// `serial`, and whose log goes on with the block `from`.
///
/// The log ends before the first block that is not there: its place shows something older, or zeros. When a commit is
/// found that began behind that block, the block was on stable storage once. Then, and where the place of the
/// block is damaged, the log is damaged, and nothing may be believed to be its end.
pub(crate) fn replay(slots: &[LogSlot], from: u64, serial: u64, life: u32) -> Result<Replay, Damage> {
    let ring = slots.len() as u64;
    let at = |sequence: u64| slots.get((sequence % ring) as usize);
    let all = || slots.iter().filter_map(LogSlot::block);
    let mut found = Replay { sequence: from, serial, life: 1, records: Vec::new() };
    let (mut life, written) = (life, life);
    while found.sequence < from + ring {
        let block = match at(found.sequence) {
            Some(LogSlot::Damaged) => return Err(Damage("a block of the map log is damaged in every copy")),
            Some(LogSlot::Whole(block)) if block.sequence == found.sequence => block,
            _ => break,
        };
        if block.life < life && !sabotage::is(Sabotage::BelieveOldLives) {
            break;
        }
        life = block.life;
        found.sequence += 1;
        found.take_in(block);
    }
    let ahead = |block: &LogBlock| {
        block.sequence.checked_sub(u64::from(block.back)).is_some_and(|began| began > found.sequence)
    };
    if all().any(ahead) {
        return Err(Damage("a block of the map log is lost"));
    }
    found.life = all().map(|block| block.life).max().unwrap_or(0).max(written) + 1;
    Ok(found)
}

/// What is left of a log of which blocks are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    pub(crate) replay: Replay,
    /// How many of its blocks are lost.
    pub(crate) lost: u64,
    /// The first record behind a lost block.
    pub(crate) behind: usize,
}

/// As [`replay`], whatever is lost: every whole block from `from` on counts whose life does not fall. The next block is one that no
/// damaged one can be taken for.
pub(crate) fn remains(slots: &[LogSlot], from: u64, serial: u64, life: u32) -> Remains {
    let ring = slots.len() as u64;
    let mut blocks: Vec<&LogBlock> = slots.iter().filter_map(LogSlot::block).collect();
    let lives = blocks.iter().map(|block| block.life).max().unwrap_or(0).max(life);
    let end = blocks.iter().map(|block| block.sequence + 1).max().unwrap_or(from).max(from);
    blocks.retain(|block| block.sequence >= from);
    blocks.sort_by_key(|block| block.sequence);
    let replay = Replay { sequence: from, serial, life, records: Vec::new() };
    let mut found = Remains { replay, ..Remains::default() };
    for block in blocks {
        if block.life < found.replay.life {
            continue;
        }
        found.lose(block.sequence - found.replay.sequence);
        (found.replay.life, found.replay.sequence) = (block.life, block.sequence + 1);
        found.replay.take_in(block);
    }
    // What is damaged right behind the last block may have been its continuation.
    let at = |sequence: u64| slots.get((sequence % ring) as usize);
    let damaged = (found.replay.sequence..from + ring).take_while(|&next| at(next) == Some(&LogSlot::Damaged));
    found.lose(damaged.count() as u64);
    (found.replay.sequence, found.replay.life) = (end + ring, lives + 1);
    found
}

impl Remains {
    fn lose(&mut self, blocks: u64) {
        if self.lost == 0 {
            self.behind = self.replay.records.len();
        }
        self.lost += blocks;
    }
}

impl Replay {
    /// The changes of a block count that the checkpoint does not have.
    fn take_in(&mut self, block: &LogBlock) {
        for (record, number) in block.records.iter().zip(block.serial..) {
            // The changes of the checkpoint may be logged behind it, when they were made before it and committed after.
            if number >= self.serial || sabotage::is(Sabotage::CountTwice) {
                self.records.push(*record);
                self.serial = number + 1;
            }
        }
    }
}
