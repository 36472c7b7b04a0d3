//! What each block may hold, as its hosts know it.
//!
//! A block is a register. A write takes effect at one instant between its submission and its answer, so
//! a value may be read until some write that began after it had ended was answered with GOOD. What was
//! submitted and never answered, or answered with an error, may have taken effect or not; once it is
//! known to be over, a read that meets no write under way decides it for good. A power cut brings back
//! everything that was not made stable by a later GOOD, and may mix the atoms of what was under way.

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

/// How many things had happened to all volumes of a run.
type Moment = u64;

/// What tells the oracles of a run the moments, so that those of several volumes can be compared.
pub(crate) type Clock = Rc<Cell<Moment>>;

/// Names an operation that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(u64);

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was acknowledged.
    Good,
    /// It was refused before it began.
    Never,
    /// It is over, and took effect or not: each block for itself.
    Maybe,
    /// As `Maybe`, and each atom for itself.
    Partly,
}

/// The judge of one volume.
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
    begun: Moment,
    /// What it writes, and where; nothing for reads and flushes.
    writes: Option<(Value, Vec<Range<u64>>)>,
}

impl Oracle {
    /// A volume of `blocks` blocks of zeros.
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

    /// How many blocks the volume has.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The volume has more blocks, of zeros.
    pub(crate) fn grow(&mut self, blocks: u64) {
        assert!(blocks >= self.blocks, "volumes do not shrink");
        self.blocks = blocks;
    }

    /// The blocks that were ever written, or meant to be.
    pub(crate) fn touched(&self) -> Vec<u64> {
        self.known.keys().copied().collect()
    }

    /// A value that no write has had.
    pub(crate) fn fresh(&mut self) -> Value {
        self.next_value += 1;
        Value::of_write(self.next_value)
    }

    /// A value that no WRITE SAME has had.
    pub(crate) fn fresh_same(&mut self) -> Value {
        self.next_value += 1;
        Value::of_write_same(self.next_value)
    }

    /// A write of `value` to every block of `extents` is submitted.
    pub(crate) fn begin_write(&mut self, extents: &[Range<u64>], value: Value) -> OpId {
        let begun = self.tick();
        tracing::debug!(volume = self.name, op = begun, "{value} goes to {extents:?}");
        for lba in extents.iter().cloned().flatten() {
            self.known.entry(lba).or_default().begin(value, begun);
        }
        self.enter(Op { begun, writes: Some((value, extents.to_vec())) })
    }

    /// A read, a flush or a comparison is submitted.
    pub(crate) fn begin(&mut self) -> OpId {
        let begun = self.tick();
        self.enter(Op { begun, writes: None })
    }

    /// The write is over. Without effect on one that a power cut has ended.
    pub(crate) fn end_write(&mut self, op: OpId, ending: Ending) {
        let now = self.tick();
        let Some(Op { begun, writes: Some((value, extents)) }) = self.open.remove(&op) else { return };
        tracing::debug!(volume = self.name, op = begun, "{value} has ended: {ending:?}");
        let oldest = self.oldest();
        for lba in extents.into_iter().flatten() {
            let block = self.known.entry(lba).or_default();
            block.end(value, begun, ending, now);
            block.forget_before(oldest);
        }
    }

    /// The read of `range` was answered with `data`.
    ///
    /// *Errors*: a block holds what it cannot, in words.
    pub(crate) fn end_read(&mut self, op: OpId, range: Range<u64>, data: &[u8]) -> Result<(), String> {
        let now = self.tick();
        let Some(Op { begun, .. }) = self.open.remove(&op) else { return Ok(()) };
        let expected = (range.end - range.start) as usize * self.block_bytes;
        if data.len() != expected {
            return Err(format!("{}: a read of {expected} bytes gave {}", self.name, data.len()));
        }
        let oldest = self.oldest();
        for (lba, bytes) in range.zip(data.chunks_exact(self.block_bytes)) {
            let content = pattern::read(bytes, lba);
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

    /// The read, flush or comparison came to nothing.
    pub(crate) fn give_up(&mut self, op: OpId) {
        self.open.remove(&op);
    }

    /// A flush that was submitted as `op` was answered with GOOD.
    pub(crate) fn end_flush(&mut self, op: OpId) {
        let Some(Op { begun, .. }) = self.open.remove(&op) else { return };
        self.known.values_mut().for_each(|block| block.flush(begun));
    }

    /// A COMPARE AND WRITE that found `compared` in all blocks was answered with GOOD.
    ///
    /// *Errors*: it cannot have found that.
    pub(crate) fn end_compare_good(&mut self, op: OpId, compared: Value) -> Result<(), String> {
        let now = self.clock.get();
        if let Some(Op { begun, writes: Some((_, extents)) }) = self.open.get(&op) {
            for lba in extents.iter().cloned().flatten() {
                let block = self.known.entry(lba).or_default();
                if let Err(why) = block.consume(compared, *begun, now) {
                    return Err(format!("{}: COMPARE AND WRITE met {compared} in block {lba}, which {why}", self.name));
                }
            }
        }
        self.end_write(op, Ending::Good);
        Ok(())
    }

    /// A COMPARE AND WRITE did not find `compared`.
    ///
    /// *Errors*: it must have found that.
    pub(crate) fn end_compare_missed(&mut self, op: OpId, compared: Value) -> Result<(), String> {
        if let Some(Op { begun, writes: Some((value, extents)) }) = self.open.get(&op) {
            let mut all = extents.iter().cloned().flatten();
            let surely = all.all(|lba| {
                self.known.get(&lba).map_or(compared.is_zero(), |block| block.is_surely(compared, *value, *begun))
            });
            if surely {
                let extents = extents.clone();
                return Err(format!("{}: COMPARE AND WRITE missed {compared} in blocks {extents:?}", self.name));
            }
        }
        self.end_write(op, Ending::Never);
        Ok(())
    }

    /// The power is cut: nothing is under way any more, and all that was not stable is open again.
    pub(crate) fn crash(&mut self, torn: Torn) {
        let now = self.tick();
        self.open.clear();
        self.known.values_mut().for_each(|block| block.crash(torn, now));
    }

    /// What the block holds, as far as anybody can say: the newest value that it may have.
    pub(crate) fn guess(&self, lba: u64) -> Value {
        self.known.get(&lba).map_or(Value::ZERO, Block::guess)
    }

    fn enter(&mut self, op: Op) -> OpId {
        let id = OpId(op.begun);
        self.open.insert(id, op);
        id
    }

    fn tick(&mut self) -> Moment {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// When the oldest operation that has not ended began.
    fn oldest(&self) -> Moment {
        self.open.values().next().map_or(self.clock.get(), |op| op.begun)
    }
}

#[cfg(test)]
mod tests;
