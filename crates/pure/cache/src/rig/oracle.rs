//! Oracle: the permitted content of each block of a volume, during use and after a power cut.

use super::disk::Journal;
use block::{Buf, Extent, Rope, View};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Content written to a block.
#[derive(Clone, Debug)]
struct Version {
    value: u64,
    /// Time of submission, and the length of the journal then.
    begin: u64,
    begin_event: usize,
    /// Time of completion, successful or not.
    end: u64,
    acknowledged: bool,
    /// Length of the journal from which it survives a power cut.
    durable_event: usize,
}

/// Observation of a write by a read.
#[derive(Clone, Copy, Debug)]
struct Observation {
    value: u64,
    /// Time at which the read was submitted, and the length of the journal when it completed.
    begin: u64,
    event: usize,
}

/// Write known to the oracle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteId {
    value: u64,
    extent: Extent,
}

/// Permitted content of one volume.
pub(crate) struct Oracle {
    block_bytes: usize,
    blocks: RefCell<BTreeMap<u64, Vec<Version>>>,
    seen: RefCell<BTreeMap<u64, Vec<Observation>>>,
    tick: Cell<u64>,
    journal: Journal,
}

impl Oracle {
    pub(crate) fn new(block_bytes: usize, journal: &Journal) -> Self {
        Self {
            block_bytes,
            blocks: RefCell::default(),
            seen: RefCell::default(),
            tick: Cell::new(1),
            journal: journal.clone(),
        }
    }

    /// Advances and returns the logical time.
    pub(crate) fn tick(&self) -> u64 {
        self.tick.set(self.tick.get() + 1);
        self.tick.get()
    }

    /// Records the start of a write of `extent`; a discard is a write of value 0.
    pub(crate) fn begin(&self, extent: Extent, discard: bool) -> WriteId {
        let begin = self.tick();
        let value = if discard { 0 } else { begin };
        let begin_event = self.journal.len();
        let mut blocks = self.blocks.borrow_mut();
        for block in extent.start.0..extent.end().0 {
            let version =
                Version { value, begin, begin_event, end: u64::MAX, acknowledged: false, durable_event: usize::MAX };
            blocks.entry(block).or_default().push(version);
        }
        WriteId { value: begin, extent }
    }

    /// Content of a write.
    pub(crate) fn data(&self, write_id: WriteId) -> View {
        let mut buf = Buf::zeroed(write_id.extent.len.0 as usize * self.block_bytes);
        for (block, bytes) in (write_id.extent.start.0..).zip(buf.chunks_mut(self.block_bytes)) {
            for word in bytes.chunks_mut(16) {
                word[..8].copy_from_slice(&write_id.value.to_le_bytes());
                word[8..].copy_from_slice(&block.to_le_bytes());
            }
        }
        buf.freeze()
    }

    /// Records the end of the write; `durable` if its acknowledgement promises durability.
    pub(crate) fn end(&self, write_id: WriteId, acknowledged: bool, durable: bool) {
        let (end, event) = (self.tick(), self.journal.len());
        let mut blocks = self.blocks.borrow_mut();
        for block in write_id.extent.start.0..write_id.extent.end().0 {
            let versions = blocks.get_mut(&block).unwrap();
            let version = versions.iter_mut().find(|version| version.begin == write_id.value).unwrap();
            (version.end, version.acknowledged) = (end, acknowledged);
            if durable {
                version.durable_event = event;
            }
        }
    }

    /// Records that a flush started at `begin` has succeeded.
    pub(crate) fn flushed(&self, begin: u64) {
        let event = self.journal.len();
        for version in self.blocks.borrow_mut().values_mut().flatten() {
            if version.acknowledged && version.end < begin {
                version.durable_event = version.durable_event.min(event);
            }
        }
    }

    /// Checks content read between `begin` and now.
    pub(crate) fn judge_read(&self, extent: Extent, rope: Rope, begin: u64) -> Result<(), String> {
        let bytes = rope.into_view();
        self.judge(extent, &bytes, |_, versions, version| {
            let over = |other: &Version| other.acknowledged && other.end < begin && other.begin > version.end;
            !versions.iter().any(over)
        })?;
        let (mut seen, event) = (self.seen.borrow_mut(), self.journal.len());
        for (block, found) in (extent.start.0..).zip(bytes.chunks(self.block_bytes)) {
            let observation = Observation { value: value_of(found), begin, event };
            seen.entry(block).or_default().push(observation);
        }
        Ok(())
    }

    /// Checks content found after a power cut behind event `cut`; `lost` if the volume was reported as having lost
    /// data.
    pub(crate) fn judge_cut(&self, extent: Extent, rope: Rope, cut: usize, lost: bool) -> Result<(), String> {
        let seen = self.seen.borrow();
        self.judge(extent, &rope.into_view(), |block, versions, version| {
            let is_over = |other: &Version| {
                // A write that a read has returned must not disappear in favor of one that had ended before that
                // read.
                let read = |observation: &Observation| {
                    let is_it = observation.value != 0 && observation.value == other.value && observation.event <= cut;
                    is_it && version.value != other.value && version.acknowledged && version.end < observation.begin
                };
                other.begin > version.end || seen.get(&block).is_some_and(|seen| seen.iter().any(read))
            };
            let over = |other: &Version| other.durable_event <= cut && is_over(other);
            version.begin_event <= cut && (lost || !versions.iter().any(over))
        })
    }

    fn judge(
        &self,
        extent: Extent,
        bytes: &[u8],
        may: impl Fn(u64, &[Version], &Version) -> bool,
    ) -> Result<(), String> {
        if bytes.len() != extent.len.0 as usize * self.block_bytes {
            return Err(format!("{} bytes for {extent}", bytes.len()));
        }
        let blocks = self.blocks.borrow();
        let initial = Version { value: 0, begin: 0, begin_event: 0, end: 0, acknowledged: true, durable_event: 0 };
        for (block, found) in (extent.start.0..).zip(bytes.chunks(self.block_bytes)) {
            let (value, place) = (value_of(found), value_of(&found[8..]));
            let whole = found.chunks(16).all(|word| word == &found[..16]);
            if !whole || (value != 0 && place != block) || (value == 0 && place != 0) {
                return Err(format!("block {block} holds {value} of block {place}, whole: {whole}"));
            }
            let versions = blocks.get(&block).map_or(&[][..], Vec::as_slice);
            let all = versions.iter().chain([&initial]);
            if !all.filter(|version| version.value == value).any(|version| may(block, versions, version)) {
                return Err(format!("block {block} holds {value}, of {versions:?}"));
            }
        }
        Ok(())
    }
}

/// Value at the start of a block, or of the rest of one.
fn value_of(found: &[u8]) -> u64 {
    u64::from_le_bytes(found[..8].try_into().unwrap())
}
