//! Making changes of a map durable: data first, then the log.

use super::{Family, MapError, meta};
use crate::layout::BLOCK_BYTES;
use crate::maplog::{LogBlock, Record, emit};
use crate::sabotage::{self, Sabotage};
use block::{BlockDevice, Buf, Stable};
use futures_util::FutureExt;
use smallvec::SmallVec;
use std::rc::Rc;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// All data that was written and all changes that were made before this call survive power loss.
    ///
    /// *Errors*: whatever failed, for good: the map takes no change any more then.
    pub(crate) async fn commit(self: &Rc<Self>) -> Result<(), MapError> {
        let family = self.clone();
        let turn = move || {
            let family = family.clone();
            async move { family.commit_turn().await }.boxed_local()
        };
        self.commits.next(turn).await
    }

    /// True when changes wait that should not become many more.
    pub(crate) fn is_commit_due(&self) -> bool {
        self.log.borrow().pending.len() >= self.tuning.pending_max
    }

    async fn commit_turn(self: &Rc<Self>) -> Result<(), MapError> {
        let (records, freed, serial) = {
            let mut log = self.log.borrow_mut();
            let records = std::mem::take(&mut log.pending);
            let serial = log.serial - records.len() as u64;
            (records, std::mem::take(&mut log.freed), serial)
        };
        let dirty = self.dirty.take();
        if !sabotage::is(Sabotage::CommitBeforeData) {
            let groups: SmallVec<[u16; 8]> = (0..64).filter(|group| dirty >> group & 1 == 1).collect();
            if !groups.is_empty() {
                let _: Stable = meta::flush(&self.shared, &groups).await?;
            }
        }
        if !records.is_empty() && !sabotage::is(Sabotage::AcknowledgeBeforeCommit) {
            self.commit_catalog().await?;
            self.write_records(&records, serial).await?;
        }
        if !freed.is_empty() {
            // Nobody who looks from now on finds these places in the map.
            self.quarantine.borrow_mut().push_back((self.eras.turn(), freed));
        }
        self.release_quarantine();
        Ok(())
    }

    /// The slabs and epochs that the map speaks of are in the catalog.
    pub(super) async fn commit_catalog(&self) -> Result<(), MapError> {
        match self.needs.get() {
            Some(change) if !sabotage::is(Sabotage::CommitBeforeCatalog) => {
                self.shared.store.committed(change).await.map_err(|_| MapError::CatalogLost)
            }
            _ => Ok(()),
        }
    }

    /// The log has `records`, of which the first is change number `serial`.
    async fn write_records(self: &Rc<Self>, records: &[Record], serial: u64) -> Result<(), MapError> {
        // A part of the log at a time, so that a checkpoint can make room behind it.
        let blocks_max = (self.log_blocks() / 2).max(1);
        let records_max = self.tuning.records_max;
        let mut serial = serial;
        for part in records.chunks(records_max * blocks_max as usize) {
            let blocks = part.len().div_ceil(records_max) as u64;
            while self.log_room() < blocks {
                self.checkpoint().await?;
            }
            let data = self.emit(part, serial);
            let sequence = {
                let mut log = self.log.borrow_mut();
                let sequence = log.sequence;
                log.sequence += blocks;
                sequence
            };
            let written = self.meta.write_log(sequence, data.freeze()).await?;
            let _ = written;
            if !sabotage::is(Sabotage::SkipLogFlush) {
                let _: Stable = self.meta.flush().await?;
            }
            serial += part.len() as u64;
        }
        Ok(())
    }

    fn emit(&self, records: &[Record], serial: u64) -> Buf {
        let records_max = self.tuning.records_max;
        let blocks = records.len().div_ceil(records_max);
        let mut data = Buf::zeroed(blocks * BLOCK_BYTES as usize);
        let log = self.log.borrow();
        let places = data.chunks_exact_mut(BLOCK_BYTES as usize);
        for (at, (place, records)) in places.zip(records.chunks(records_max)).enumerate() {
            let block = LogBlock {
                sequence: log.sequence + at as u64,
                serial: serial + (at * records_max) as u64,
                life: log.life,
                back: at as u32,
                records: Vec::new(),
            };
            emit(self.meta.identity, &block, records, place);
        }
        data
    }

    pub(super) fn log_blocks(&self) -> u64 {
        u64::from(self.meta.log_blocks())
    }

    /// Blocks of the log that no checkpoint needs any more.
    fn log_room(&self) -> u64 {
        let log = self.log.borrow();
        self.log_blocks() - (log.sequence - log.from)
    }

    /// True when a checkpoint should be made before somebody has to wait for it.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.log_room() < self.log_blocks() / 2 || self.layers.borrow().len() >= self.tuning.changes_due
    }

    /// True when nobody may change the map before a checkpoint was made.
    pub(crate) fn is_checkpoint_overdue(&self) -> bool {
        self.layers.borrow().len() >= 2 * self.tuning.changes_due
    }
}
