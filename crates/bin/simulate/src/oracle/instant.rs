//! Allowed content of a snapshot: the values that the blocks held at one point in time, common to all blocks.

use super::block::{Block, Torn};
use super::{LogicalTime, OpId, Oracle};
use crate::pattern::Value;
use std::collections::BTreeMap;

/// Values of one point in time between a request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Instant {
    blocks: u64,
    known: BTreeMap<u64, Block>,
    /// Possible values of each block, with the time span of each.
    spans: BTreeMap<u64, Vec<Span>>,
    /// Time of the answer.
    end: LogicalTime,
    next_value: u64,
}

/// Value of a block, with the first and the last time at which it may have been stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub value: Value,
    pub first: LogicalTime,
    pub last: Option<LogicalTime>,
}

impl Oracle {
    /// Returns the allowed content of a snapshot that was requested as `op` and is answered now, or interrupted by a
    /// crash.
    pub(crate) fn instant(&mut self, op: OpId, is_cut: bool) -> Instant {
        let end = self.tick();
        let begun = self.open.remove(&op).map_or(end, |op| op.begun);
        let known = self.known.iter().map(|(&lba, block)| (lba, block.frozen(begun, is_cut))).collect();
        let spans = self.known.iter().map(|(&lba, block)| (lba, block.spans(begun, is_cut))).collect();
        Instant { blocks: self.blocks, known, spans, end, next_value: self.next_value }
    }

    /// Creates the oracle of a volume with the content of `instant`.
    ///
    /// *Shape*: no other volume of the run has the number `number`.
    pub(crate) fn of_instant(&self, name: &str, number: u16, instant: &Instant) -> Self {
        let mut clone = Self::new(name, self.block_bytes, instant.blocks, &self.clock);
        clone.known = instant.known.clone();
        // Values of the clone's writes must differ from those of every other volume: the number of the volume in the
        // upper bits keeps them apart.
        clone.next_value = instant.next_value.max((u64::from(number) + 1) << 40);
        clone
    }

    /// Rolls the volume back to `instant`; with `perhaps`, after a power failure, either content is possible.
    pub(crate) fn roll_back(&mut self, instant: &Instant, perhaps: bool) {
        self.blocks = instant.blocks;
        let unwritten = Block::default();
        // A block that was never written has no record yet, but the snapshot may hold data there.
        for lba in instant.known.keys() {
            self.known.entry(*lba).or_default();
        }
        for (lba, block) in &mut self.known {
            let back = instant.known.get(lba).unwrap_or(&unwritten);
            if perhaps { block.join(back) } else { *block = back.clone() }
        }
    }
}

impl Instant {
    /// Records a power failure before the answer: values of outstanding writes may be torn.
    pub(crate) fn crash(&mut self, torn: Torn) {
        self.known.values_mut().for_each(|block| block.tear(torn));
    }

    /// Judges a complete read of a volume with this content; every later read must return the same.
    ///
    /// *Errors*: no point in time exists at which all blocks held the values that were read.
    pub(crate) fn settle(&mut self, seen: &Oracle) -> Result<(), String> {
        // Intersection of the time spans: from the latest first time to the earliest last time.
        let (mut first, mut last) = ((0, 0), (self.end, 0));
        for (&lba, spans) in &self.spans {
            // Each block was read just now, so the newest value is the one that was read.
            let value = seen.guess(lba);
            let of_value = || spans.iter().filter(move |span| span.value == value);
            // A mixture belongs to no single point in time.
            let Some(begin) = of_value().map(|span| span.first).min() else { continue };
            // A value that nothing has replaced may have been stored up to now.
            let end = of_value().map(|span| span.last.unwrap_or(LogicalTime::MAX)).max().unwrap_or(LogicalTime::MAX);
            first = first.max((begin, lba));
            last = last.min((end, lba));
        }
        if first.0 > last.0 {
            let (newer, older) = (first.1, last.1);
            return Err(format!(
                "{}: block {newer} shows {} of moment {} at the earliest, and block {older} shows {} of {} at the latest",
                seen.name,
                seen.guess(newer),
                first.0,
                seen.guess(older),
                last.0
            ));
        }
        // From now on the snapshot must show exactly what was read.
        self.known = seen.known.clone();
        Ok(())
    }
}
