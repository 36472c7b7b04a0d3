//! Allowed content of each block, derived from the commands of its hosts.
//!
//! A block is a register. A write takes effect at one point in time between its submission and its answer, so a value
//! may be read until a write that began after the end of the value's own write is answered with GOOD. A write that was
//! never answered, or was answered with an error, may have taken effect or not; once it is known to have ended, a read
//! without concurrent writes decides this permanently. A power failure restores every value that no later GOOD made
//! obsolete in stable storage, and may mix the atoms of writes that were under way.

mod block;
mod instant;

use crate::pattern::{self, Content, Value};
use block::Block;
pub(crate) use block::Torn;
pub(crate) use instant::Instant;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Logical time: number of events on all volumes of a run.
type LogicalTime = u64;

/// Logical clock that the oracles of a run share, so that events of several volumes can be ordered.
pub(crate) type Clock = Rc<Cell<LogicalTime>>;

/// Identifier of an outstanding operation: the time of its submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(u64);

/// Effect of a write that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteEffect {
    /// Acknowledged: it took effect.
    Good,
    /// Refused before it began: no effect.
    Never,
    /// Ended with unknown effect, block by block.
    Maybe,
    /// As `Maybe`, but atom by atom.
    Partly,
}

/// Oracle of one volume.
#[derive(Debug)]
pub(crate) struct Oracle {
    name: String,
    block_bytes: usize,
    blocks: u64,
    known: BTreeMap<u64, Block>,
    open: BTreeMap<OpId, Op>,
    clock: Clock,
    next_value: u64,
}

#[derive(Debug)]
struct Op {
    begun: LogicalTime,
    /// Value and extents of a write; `None` for reads and flushes.
    writes: Option<(Value, Vec<Range<u64>>)>,
}

impl Oracle {
    /// Creates the oracle of a volume of `blocks` blocks of zeros.
    pub(crate) fn new(name: &str, block_bytes: usize, blocks: u64, clock: &Clock) -> Self {
        Self {
            name: name.to_owned(),
            block_bytes,
            blocks,
            known: BTreeMap::new(),
            open: BTreeMap::new(),
            clock: clock.clone(),
            next_value: 1,
        }
    }

    /// Returns the number of blocks of the volume.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Grows the volume by blocks of zeros.
    pub(crate) fn grow(&mut self, blocks: u64) {
        assert!(blocks >= self.blocks, "volumes do not shrink");
        // The new blocks get no records, because a block without one holds zeros.
        self.blocks = blocks;
    }

    /// Returns the blocks that were the target of a write.
    pub(crate) fn touched(&self) -> Vec<u64> {
        self.known.keys().copied().collect()
    }

    /// Returns a value that no earlier write used.
    pub(crate) fn fresh(&mut self) -> Value {
        self.next_value += 1;
        Value::of_write(self.next_value)
    }

    /// Returns a value that no earlier WRITE SAME used.
    pub(crate) fn fresh_same(&mut self) -> Value {
        self.next_value += 1;
        Value::of_write_same(self.next_value)
    }

    /// Records the submission of a write of `value` to every block of `extents`.
    pub(crate) fn begin_write(&mut self, extents: &[Range<u64>], value: Value) -> OpId {
        let begun = self.tick();
        tracing::debug!(volume = self.name, op = begun, "{value} goes to {extents:?}");
        for lba in extents.iter().cloned().flatten() {
            self.known.entry(lba).or_default().begin(value, begun);
        }
        self.enter(Op { begun, writes: Some((value, extents.to_vec())) })
    }

    /// Records the submission of a read, a flush or a comparison.
    pub(crate) fn begin(&mut self) -> OpId {
        let begun = self.tick();
        self.enter(Op { begun, writes: None })
    }

    /// Records the end of a write. No effect on a write that a power failure ended.
    pub(crate) fn end_write(&mut self, op: OpId, ending: WriteEffect) {
        let now = self.tick();
        let Some(Op { begun, writes: Some((value, extents)) }) = self.open.remove(&op) else { return };
        tracing::debug!(volume = self.name, op = begun, "{value} has ended: {ending:?}");
        // The operation itself is removed by now, so it does not count as outstanding.
        let oldest = self.oldest();
        for lba in extents.into_iter().flatten() {
            let block = self.known.entry(lba).or_default();
            block.end(value, begun, ending, now);
            block.forget_before(oldest);
        }
    }

    /// Judges the data of a read of `range`.
    ///
    /// *Errors*: a block holds a value that is not allowed, in words.
    pub(crate) fn end_read(&mut self, op: OpId, range: Range<u64>, data: &[u8]) -> Result<(), String> {
        let now = self.tick();
        // A power failure has ended the operation, so its data is no evidence.
        let Some(Op { begun, .. }) = self.open.remove(&op) else { return Ok(()) };
        let expected = (range.end - range.start) as usize * self.block_bytes;
        if data.len() != expected {
            return Err(format!("{}: a read of {expected} bytes gave {}", self.name, data.len()));
        }
        let oldest = self.oldest();
        for (lba, bytes) in range.zip(data.chunks_exact(self.block_bytes)) {
            let content = pattern::read(bytes, lba);
            // A block without a record holds zeros; recording each of them would make large reads expensive.
            if content == Content::Pure(Value::ZERO) && !self.known.contains_key(&lba) {
                continue;
            }
            let block = self.known.entry(lba).or_default();
            if let Err(why) = block.observe(&content, begun, now) {
                return Err(format!("{}: block {lba} {why}", self.name));
            }
            block.forget_before(oldest);
        }
        Ok(())
    }

    /// Records that a read, flush or comparison ended without a result.
    pub(crate) fn give_up(&mut self, op: OpId) {
        self.open.remove(&op);
    }

    /// Records a flush that ended GOOD: writes that had ended before its submission are stable.
    pub(crate) fn end_flush(&mut self, op: OpId) {
        let Some(Op { begun, .. }) = self.open.remove(&op) else { return };
        self.known.values_mut().for_each(|block| block.flush(begun));
    }

    /// Judges a COMPARE AND WRITE that ended GOOD because all blocks held `compared`.
    ///
    /// *Errors*: a block cannot have held that value.
    pub(crate) fn end_compare_good(&mut self, op: OpId, compared: Value) -> Result<(), String> {
        // The clock does not advance here: the end of the command is recorded below.
        let now = self.clock.get();
        // Judged before the end is recorded, since the own write would make the compared value obsolete.
        if let Some(Op { begun, writes: Some((_, extents)) }) = self.open.get(&op) {
            for lba in extents.iter().cloned().flatten() {
                let block = self.known.entry(lba).or_default();
                if let Err(why) = block.consume(compared, *begun, now) {
                    return Err(format!("{}: COMPARE AND WRITE met {compared} in block {lba}, which {why}", self.name));
                }
            }
        }
        self.end_write(op, WriteEffect::Good);
        Ok(())
    }

    /// Judges a COMPARE AND WRITE that ended with a miscompare.
    ///
    /// *Errors*: all blocks certainly held `compared`.
    pub(crate) fn end_compare_missed(&mut self, op: OpId, compared: Value) -> Result<(), String> {
        if let Some(Op { begun, writes: Some((value, extents)) }) = self.open.get(&op) {
            let mut all = extents.iter().cloned().flatten();
            // A miscompare is a fault only if every block certainly held the compared value.
            let surely = all.all(|lba| {
                self.known.get(&lba).map_or(compared.is_zero(), |block| block.is_surely(compared, *value, *begun))
            });
            if surely {
                let extents = extents.clone();
                return Err(format!("{}: COMPARE AND WRITE missed {compared} in blocks {extents:?}", self.name));
            }
        }
        // A miscompare writes nothing (SBC-3 COMPARE AND WRITE).
        self.end_write(op, WriteEffect::Never);
        Ok(())
    }

    /// Records a power failure: no operation is outstanding, and every value that was not stable is possible again.
    pub(crate) fn crash(&mut self, torn: Torn) {
        let now = self.tick();
        // Answers that still arrive for these operations have no effect.
        self.open.clear();
        self.known.values_mut().for_each(|block| block.crash(torn, now));
    }

    /// Returns the most probable value of a block: the newest that it may hold.
    pub(crate) fn guess(&self, lba: u64) -> Value {
        self.known.get(&lba).map_or(Value::ZERO, Block::guess)
    }

    fn enter(&mut self, op: Op) -> OpId {
        // Unique, because every submission advances the clock; and in order of submission, which `oldest` relies on.
        let id = OpId(op.begun);
        self.open.insert(id, op);
        id
    }

    fn tick(&mut self) -> LogicalTime {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// Returns the submission time of the oldest outstanding operation.
    fn oldest(&self) -> LogicalTime {
        self.open.values().next().map_or(self.clock.get(), |op| op.begun)
    }
}

#[cfg(test)]
mod tests;
