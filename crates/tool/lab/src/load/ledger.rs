//! Expected content of each block of a unit, according to acknowledged and pending writes.

use super::Op;
use crate::stamp::{Found, STAMP_BYTES, Stamp};
use block::{Buf, View};
use serde::{Deserialize, Serialize};

/// Limit of faults that are kept as sentences; further ones are counted.
const FAULTS_KEPT: usize = 20;

/// Generations of every 512 bytes of a unit, and the faults found by reads.
///
/// Generations of a block are counted from one. `floor` is the newest one known to be stored: of an acknowledged write,
/// or of a read. `begun` is the newest one sent. A read may return any generation from the floor at its start to the
/// newest one sent until its end. Only one write of a block is in flight at a time, so there is no other order.
#[derive(Debug)]
pub struct Ledger {
    seed: u64,
    marks: Vec<Mark>,
    judged: u64,
    faults: u64,
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
/// Generations of one block.
struct Mark {
    /// Newest generation known to be stored; zero is the content before the run.
    floor: u32,
    begun: u32,
    writing: bool,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Blocks of 512 bytes that were read and verified.
    pub judged: u64,
    /// Blocks with wrong content.
    pub faults: u64,
    /// First faults, as sentences.
    pub words: Vec<String>,
}

impl Verification {
    /// Adds the counts and sentences of `other`.
    pub fn add(&mut self, other: Self) {
        self.judged += other.judged;
        self.faults += other.faults;
        self.words.extend(other.words);
        self.words.truncate(FAULTS_KEPT);
    }
}

/// Floors of a read's blocks at its start.
pub(super) type Floors = Vec<u32>;

impl Ledger {
    /// Creates the ledger of a unit of `unit_bytes` bytes with unknown content.
    #[must_use]
    pub fn new(unit_bytes: u64, seed: u64) -> Self {
        let blocks = usize::try_from(unit_bytes).expect("a unit that is judged fits into memory") / STAMP_BYTES;
        Self { seed, marks: vec![Mark::default(); blocks], judged: 0, faults: 0, words: Vec::new() }
    }

    fn first(op: &Op) -> usize {
        (op.offset / STAMP_BYTES as u64) as usize
    }

    fn marks(&mut self, op: &Op) -> &mut [Mark] {
        let (first, len) = (Self::first(op), op.bytes as usize / STAMP_BYTES);
        &mut self.marks[first..first + len]
    }

    /// Returns true if no write of any of the blocks is in flight.
    pub fn admits_write(&mut self, op: &Op) -> bool {
        self.marks(op).iter().all(|mark| !mark.writing)
    }

    /// Begins a write, and returns its data, with a new generation for each block.
    pub fn begin_write(&mut self, op: &Op) -> View {
        let seed = self.seed;
        let mut data = Buf::zeroed(op.bytes as usize);
        let first = Self::first(op) as u64;
        for ((block, mark), into) in (first..).zip(self.marks(op)).zip(data.chunks_mut(STAMP_BYTES)) {
            // Each write has a generation of its own, so that a read shows which write it returns.
            (mark.begun, mark.writing) = (mark.begun + 1, true);
            Stamp { block, generation: mark.begun.into(), seed }.fill(into);
        }
        data.freeze()
    }

    /// Ends a write. A failed write may have been stored or not.
    pub fn end_write(&mut self, op: &Op, well: bool) {
        for mark in self.marks(op) {
            mark.writing = false;
            // After a failed write the old content may remain, so the floor stays.
            if well {
                mark.floor = mark.begun;
            }
        }
    }

    /// Begins a read, and returns the floors of its blocks.
    pub fn begin_read(&mut self, op: &Op) -> Floors {
        self.marks(op).iter().map(|mark| mark.floor).collect()
    }

    /// Ends a read with `data`, and verifies it.
    pub fn end_read(&mut self, op: &Op, floors: &[u32], data: &[u8]) {
        let first = Self::first(op);
        for (index, (floor, bytes)) in floors.iter().zip(data.chunks(STAMP_BYTES)).enumerate() {
            self.judged += 1;
            let (block, seed) = ((first + index) as u64, self.seed);
            let mark = &mut self.marks[first + index];
            let found = Stamp::read(bytes);
            let wrong = match found {
                // A stamp of this run from another block shows a misdirected write or read.
                Found::Stamp(stamp) if stamp.seed == seed && stamp.block != block => {
                    format!("it holds what was written to block {}", stamp.block)
                }
                Found::Stamp(stamp) if stamp.seed == seed => {
                    let generation = u32::try_from(stamp.generation).unwrap_or(u32::MAX);
                    if (*floor..=mark.begun).contains(&generation) {
                        // A later read must return this generation or a newer one.
                        mark.floor = mark.floor.max(generation);
                        continue;
                    }
                    let known =
                        if generation > mark.begun { "nobody has sent" } else { "is older than what was acknowledged" };
                    format!("it holds generation {generation}, which {known} (generation {floor})")
                }
                // Content from before the run.
                _ if *floor == 0 => continue,
                Found::Stamp(_) => format!("it holds another run's data where generation {floor} was acknowledged"),
                Found::Zeros => format!("it holds zeros where generation {floor} was acknowledged"),
                Found::Damaged => format!("it holds no stamp where generation {floor} was acknowledged"),
            };
            // The judged blocks of other runs are faults as well, once a write of this run was acknowledged.
            self.faults += 1;
            if self.words.len() < FAULTS_KEPT {
                self.words.push(format!("block {block}: {wrong}"));
            }
        }
    }

    /// Returns the result so far.
    #[must_use]
    pub fn proof(&self) -> Verification {
        Verification { judged: self.judged, faults: self.faults, words: self.words.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::Time;

    fn op(block: u64, blocks: u32, write: bool) -> Op {
        let size = STAMP_BYTES as u32;
        Op { id: 0, due: Time(0), write, offset: block * u64::from(size), bytes: blocks * size }
    }

    fn read(ledger: &mut Ledger, at: Op, data: &[u8]) -> u64 {
        let (floors, before) = (ledger.begin_read(&at), ledger.proof().faults);
        ledger.end_read(&at, &floors, data);
        ledger.proof().faults - before
    }

    #[test]
    fn ledger_takes_what_may_be_there_and_nothing_else() {
        let mut ledger = Ledger::new(1 << 20, 1);
        let (write, look) = (op(4, 2, true), op(4, 2, false));
        assert_eq!(read(&mut ledger, look, &[5; 1024]), 0, "nothing is known yet");
        let first = ledger.begin_write(&write);
        assert!(!ledger.admits_write(&op(5, 1, true)) && ledger.admits_write(&op(6, 1, true)));
        assert_eq!(read(&mut ledger, look, &[0; 1024]), 0, "it may not have happened yet");
        ledger.end_write(&write, true);
        assert_eq!(read(&mut ledger, look, &first), 0);
        assert_eq!(read(&mut ledger, look, &[0; 1024]), 2, "an acknowledged write is lost");
        let second = ledger.begin_write(&write);
        assert_eq!(read(&mut ledger, look, &second), 0, "it may have happened already");
        assert_eq!(read(&mut ledger, look, &first), 2, "it has been seen, and is gone again");
        ledger.end_write(&write, false);
        let third = ledger.begin_write(&write);
        ledger.end_write(&write, true);
        assert_eq!(read(&mut ledger, look, &third), 0);
        assert_eq!(read(&mut ledger, look, &second), 2, "an older write landed after a newer one");
        assert_eq!(read(&mut ledger, op(8, 2, false), &third), 2, "it is in the wrong place");
        let other = Ledger::new(1 << 20, 2).begin_write(&write);
        assert_eq!(read(&mut ledger, look, &other), 2, "another run has written");
        assert!(ledger.proof().words[0].contains("zeros"), "{:?}", ledger.proof());
    }
}
