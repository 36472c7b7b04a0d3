//! Replay of a map log: finds its end and its records, from the blocks alone.

use super::{LogBlock, LogSlot, Record};
use crate::bug_injection::{self, InjectedBug};
use crate::tree::Damage;

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// Changes that the checkpoint does not contain, in order.
    pub(crate) records: Vec<Record>,
    /// Sequence number of the next block to write.
    pub(crate) sequence: u64,
    /// Serial number of the next change.
    pub(crate) serial: u64,
    /// Life that starts now.
    pub(crate) life: u32,
}

/// Replays the ring `slots` from block `from`, behind a checkpoint of life `life` that contains everything
/// before serial number `serial`.
///
/// The log ends before the first missing block, whose place shows an older block or zeros. A commit that began
/// behind the missing block proves that it was stable once. In that case, or when the place of the block is
/// damaged, the log is damaged and has no known end.
pub(crate) fn replay(slots: &[LogSlot], from: u64, serial: u64, life: u32) -> Result<Replay, Damage> {
    let ring = slots.len() as u64;
    let at = |sequence: u64| slots.get((sequence % ring) as usize);
    let all = || slots.iter().filter_map(LogSlot::block);
    let mut found = Replay { sequence: from, serial, life: 1, records: Vec::new() };
    // The life of the checkpoint counts although no block of the log may have it.
    let (mut life, written) = (life, life);
    // One lap at most: a log never holds more blocks than its ring.
    while found.sequence < from + ring {
        let block = match at(found.sequence) {
            Some(LogSlot::Damaged) => return Err(Damage("a block of the map log is damaged in every copy")),
            Some(LogSlot::Whole(block)) if block.sequence == found.sequence => block,
            _ => break,
        };
        // An older life behind a newer one is the rest of a commit that was interrupted before an earlier
        // opening.
        if block.life < life && !bug_injection::is_injected(InjectedBug::AcceptOldLives) {
            break;
        }
        life = block.life;
        found.sequence += 1;
        found.append_block(block);
    }
    let ahead = |block: &LogBlock| {
        block.sequence.checked_sub(u64::from(block.back)).is_some_and(|began| began > found.sequence)
    };
    if all().any(ahead) {
        return Err(Damage("a block of the map log is lost"));
    }
    // The new life exceeds every life in the ring, so stale blocks can never continue the log.
    found.life = all().map(|block| block.life).max().unwrap_or(0).max(written) + 1;
    Ok(found)
}

/// Intact remains of a log with lost blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SalvagedLog {
    pub(crate) replay: Replay,
    /// Number of lost blocks.
    pub(crate) lost: u64,
    /// Index of the first record behind a lost block.
    pub(crate) behind: usize,
}

/// Salvages a log: every intact block from `from` on counts whose life does not fall, whatever is lost between.
/// The next sequence number is one that no damaged block can have.
pub(crate) fn salvage_log(slots: &[LogSlot], from: u64, serial: u64, life: u32) -> SalvagedLog {
    let ring = slots.len() as u64;
    let mut blocks: Vec<&LogBlock> = slots.iter().filter_map(LogSlot::block).collect();
    let lives = blocks.iter().map(|block| block.life).max().unwrap_or(0).max(life);
    let end = blocks.iter().map(|block| block.sequence + 1).max().unwrap_or(from).max(from);
    // Blocks before the checkpoint are in its tree already.
    blocks.retain(|block| block.sequence >= from);
    blocks.sort_by_key(|block| block.sequence);
    let replay = Replay { sequence: from, serial, life, records: Vec::new() };
    let mut found = SalvagedLog { replay, ..SalvagedLog::default() };
    for block in blocks {
        if block.life < found.replay.life {
            continue;
        }
        // The gap in the sequence numbers is the number of lost blocks.
        found.lose(block.sequence - found.replay.sequence);
        (found.replay.life, found.replay.sequence) = (block.life, block.sequence + 1);
        found.replay.append_block(block);
    }
    // Damaged blocks right behind the last intact one may have continued the log.
    let at = |sequence: u64| slots.get((sequence % ring) as usize);
    let damaged = (found.replay.sequence..from + ring).take_while(|&next| at(next) == Some(&LogSlot::Damaged));
    found.lose(damaged.count() as u64);
    // One lap beyond every sequence number in the ring.
    (found.replay.sequence, found.replay.life) = (end + ring, lives + 1);
    found
}

impl SalvagedLog {
    fn lose(&mut self, blocks: u64) {
        if self.lost == 0 {
            self.behind = self.replay.records.len();
        }
        self.lost += blocks;
    }
}

impl Replay {
    /// Adds the records of a block that the checkpoint does not contain.
    fn append_block(&mut self, block: &LogBlock) {
        for (record, number) in block.records.iter().zip(block.serial..) {
            // A change made before the checkpoint but committed after it is logged behind it, although the tree
            // contains it.
            if number >= self.serial || bug_injection::is_injected(InjectedBug::CountTwice) {
                self.records.push(*record);
                self.serial = number + 1;
            }
        }
    }
}
