//! Where a log ends, and what is in it: decided from its blocks alone.

use super::{LogBlock, Record};
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
/// The log ends before the first block that is not there. When a commit is found that began behind that block,
/// the block was on stable storage once: then the log is damaged, and nothing may be believed to be its end.
pub(crate) fn replay(blocks: &[Option<LogBlock>], from: u64, serial: u64, life: u32) -> Result<Replay, Damage> {
    let ring = blocks.len() as u64;
    let at = |sequence: u64| blocks.get((sequence % ring) as usize).and_then(Option::as_ref);
    let all = || blocks.iter().flatten();
    let mut found = Replay { sequence: from, serial, life: 1, records: Vec::new() };
    let (mut life, written) = (life, life);
    while found.sequence < from + ring
        && let Some(block) = at(found.sequence)
        && block.sequence == found.sequence
        && (block.life >= life || sabotage::is(Sabotage::BelieveOldLives))
    {
        life = block.life;
        found.sequence += 1;
        for (record, number) in block.records.iter().zip(block.serial..) {
            // The changes of the checkpoint may be logged behind it, when they were made before it and committed after.
            if number >= found.serial || sabotage::is(Sabotage::CountTwice) {
                found.records.push(*record);
                found.serial = number + 1;
            }
        }
    }
    let ahead = |block: &LogBlock| {
        block.sequence.checked_sub(u64::from(block.back)).is_some_and(|began| began > found.sequence)
    };
    if all().any(|block| ahead(block) && block.sequence < from + ring) {
        return Err(Damage("a block of the map log is lost"));
    }
    found.life = all().map(|block| block.life).max().unwrap_or(0).max(written) + 1;
    Ok(found)
}
