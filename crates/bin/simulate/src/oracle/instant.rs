//! What a snapshot may show: of each block a value that it held at one instant, the same for all blocks.

use super::block::{Block, Torn};
use super::{Moment, OpId, Oracle};
use crate::pattern::Value;
use std::collections::BTreeMap;

/// Values of one instant between the question for it and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Instant {
    blocks: u64,
    known: BTreeMap<u64, Block>,
    /// For each block the values that it may have had, and the instants at which it may have.
    spans: BTreeMap<u64, Vec<Span>>,
    /// When it was answered.
    end: Moment,
    next_value: u64,
}

/// A value of a block, and the first and the last moment at which it may have been there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub value: Value,
    pub first: Moment,
    pub last: Option<Moment>,
}

impl Oracle {
    /// What a snapshot shows that was asked for as `op`, and is answered now, or cut off.
    pub(crate) fn instant(&mut self, op: OpId, is_cut: bool) -> Instant {
        let end = self.tick();
        let begun = self.open.remove(&op).map_or(end, |op| op.begun);
        let known = self.known.iter().map(|(&lba, block)| (lba, block.frozen(begun, is_cut))).collect();
        let spans = self.known.iter().map(|(&lba, block)| (lba, block.spans(begun, is_cut))).collect();
        Instant { blocks: self.blocks, known, spans, end, next_value: self.next_value }
    }

    /// A volume that shows what `instant` does.
    ///
    /// *Shape*: `number` is that of no other volume of the run.
    pub(crate) fn of_instant(&self, name: &str, number: u16, instant: &Instant) -> Self {
        let mut clone = Self::new(name, self.block_bytes, instant.blocks, &self.clock);
        clone.known = instant.known.clone();
        // Its writes are no others'.
        clone.next_value = instant.next_value.max((u64::from(number) + 1) << 40);
        clone
    }

    /// The volume shows what `instant` does, or perhaps so, where the power went over it.
    pub(crate) fn roll_back(&mut self, instant: &Instant, perhaps: bool) {
        self.blocks = instant.blocks;
        let unwritten = Block::default();
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
    /// The power went before the answer: what was under way may be torn.
    pub(crate) fn crash(&mut self, torn: Torn) {
        self.known.values_mut().for_each(|block| block.tear(torn));
    }

    /// A volume that shows it was looked at, whole: every look from now on finds the same.
    ///
    /// *Errors*: there was no instant at which all blocks held what was found.
    pub(crate) fn settle(&mut self, seen: &Oracle) -> Result<(), String> {
        let (mut first, mut last) = ((0, 0), (self.end, 0));
        for (&lba, spans) in &self.spans {
            let value = seen.guess(lba);
            let of_value = || spans.iter().filter(move |span| span.value == value);
            // A mixture is of no single moment.
            let Some(begin) = of_value().map(|span| span.first).min() else { continue };
            let end = of_value().map(|span| span.last.unwrap_or(Moment::MAX)).max().unwrap_or(Moment::MAX);
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
        self.known = seen.known.clone();
        Ok(())
    }
}
