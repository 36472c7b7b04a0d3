//! Commit of map changes: data, then catalog, then log, each stable before the next.

use super::{Family, Log, MapError, meta};
use crate::bug_injection::{self, InjectedBug};
use crate::layout::BLOCK_BYTES;
use crate::maplog::{LogBlock, LogIdentity, Record, emit};
use block::{BlockDevice, Buf, Stable};
use futures_util::FutureExt;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Makes all data written and all changes made before this call durable (flush).
    ///
    /// *Errors*: any failure. The next call retries, with a checkpoint and a new log where the log could not be
    /// written; when data could not be made durable, the map accepts no more changes ([`Family::failure`]).
    pub(crate) async fn commit(self: &Rc<Self>) -> Result<(), MapError> {
        let family = self.clone();
        let turn = move || {
            let family = family.clone();
            async move { family.commit_turn().await }.boxed_local()
        };
        self.commits.run_after_now(turn).await
    }

    /// True when so many changes are unlogged that a commit is due.
    pub(crate) fn is_commit_due(&self) -> bool {
        self.log.borrow().pending.len() >= self.tuning.pending_max
    }

    async fn commit_turn(self: &Rc<Self>) -> Result<(), MapError> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let (records, freed, blocks) = {
            let mut log = self.log.borrow_mut();
            // Taken together: serials, records and freed places of this commit must be of one instant.
            let records = std::mem::take(&mut log.pending);
            assert!(records.len() as u64 <= log.serial, "every change that waits has a serial number");
            // Serial numbers are consecutive, so the pending ones are the last of them.
            let serial = log.serial - records.len() as u64;
            let blocks =
                blocks_of(serial..log.serial, &std::mem::take(&mut log.atomic_ranges), self.tuning.records_max);
            (records, std::mem::take(&mut log.freed), blocks)
        };
        // Cleared before the flush, so that data written while it runs is flushed by the next commit.
        let dirty = self.data.take_dirty();
        if let Err(error) = self.commit_changes(&records, &blocks, dirty).await {
            // The changes are in the layers, so a checkpoint makes them durable.
            self.data.restore_dirty(dirty);
            self.log.borrow_mut().freed.extend(freed);
            if !records.is_empty() {
                self.is_log_lost.set(true);
            }
            return Err(error);
        }
        // Places freed by this commit are reused only after it is stable and after the readers of this era have
        // finished.
        if !freed.is_empty() {
            self.space.defer_free(freed);
        }
        self.space.release_pending();
        Ok(())
    }

    async fn commit_changes(
        self: &Rc<Self>,
        records: &[Record],
        blocks: &[Range<u64>],
        dirty: u64,
    ) -> Result<(), MapError> {
        if !bug_injection::is_injected(InjectedBug::CommitBeforeData) {
            // One bit for each group; a pool has at most 64.
            let groups: SmallVec<[u16; 8]> = (0..64).filter(|group| dirty >> group & 1 == 1).collect();
            if !groups.is_empty() {
                let flushed = meta::flush(&self.shared, &groups).await;
                // After a failed flush the data may be gone from the caches below, so a later flush would prove
                // nothing; the map stops.
                let _: Stable = flushed.inspect_err(|error| self.fail_permanently(*error))?;
            }
        }
        if bug_injection::is_injected(InjectedBug::AcknowledgeBeforeCommit) {
            return Ok(());
        }
        // The log can only continue after a checkpoint that covers the changes missing in it.
        if self.is_log_lost.get() {
            return self.renew_log().await;
        }
        if records.is_empty() {
            return Ok(());
        }
        // A log block must not refer to slabs or epochs that the catalog does not have yet.
        self.commit_catalog().await?;
        if self.write_records(records, blocks).await.is_err() {
            // The content of the failed blocks is unknown, so the log neither reuses them nor continues behind
            // them.
            self.is_log_lost.set(true);
            return self.renew_log().await;
        }
        Ok(())
    }

    /// Replaces an unwritable log: a checkpoint takes in all changes, and a log of a new life starts behind the
    /// failed blocks.
    async fn renew_log(self: &Rc<Self>) -> Result<(), MapError> {
        // In a new life the failed blocks, whatever they hold, cannot be taken for a part of the log.
        self.log.borrow_mut().life += 1;
        self.checkpoint().await?;
        self.is_log_lost.set(false);
        Ok(())
    }

    /// Commits the catalog with the slabs and epochs that the map refers to.
    pub(super) async fn commit_catalog(&self) -> Result<(), MapError> {
        match self.space.required_commit() {
            Some(change) if !bug_injection::is_injected(InjectedBug::CommitBeforeCatalog) => {
                let committed = self.shared.store.committed(change).await;
                committed.map_err(|_| MapError::CatalogLost).inspect_err(|error| self.fail_permanently(*error))
            }
            _ => Ok(()),
        }
    }

    /// Writes `records` to the log, divided into `blocks` by serial number.
    async fn write_records(self: &Rc<Self>, records: &[Record], blocks: &[Range<u64>]) -> Result<(), MapError> {
        if !self.formatted.get() {
            // Without a head, opening would look for no log.
            self.checkpoint().await?;
        }
        // Half of the log at most at a time, so that a checkpoint can free the other half.
        let blocks_max = (self.log_blocks() / 2).max(1);
        let mut records = records;
        for part in blocks.chunks(blocks_max as usize) {
            let blocks = part.len() as u64;
            // A checkpoint frees the log up to where it began.
            while self.log_room() < blocks {
                self.checkpoint().await?;
            }
            let data = self.log.borrow().emit(self.meta.identity, &mut records, part);
            // Sequence numbers are taken after the wait: the log is not borrowed across an await.
            let next = self.log.borrow().sequence + blocks;
            self.meta.prepare_log(next).await?;
            let sequence = {
                let mut log = self.log.borrow_mut();
                let sequence = log.sequence;
                log.sequence += blocks;
                let kept = log.sequence - log.from;
                assert!(kept <= self.log_blocks(), "blocks that the last checkpoint lacks are not written over");
                sequence
            };
            self.meta.write_log(sequence, data.freeze()).await?;
        }
        assert!(records.is_empty(), "every change of a commit is in a block of the log");
        Ok(())
    }

    pub(super) fn log_blocks(&self) -> u64 {
        u64::from(self.meta.log_blocks())
    }

    /// Number of log blocks that no checkpoint needs any more.
    fn log_room(&self) -> u64 {
        let log = self.log.borrow();
        assert!(log.from <= log.sequence, "the log begins before it ends");
        self.log_blocks() - (log.sequence - log.from)
    }

    /// True when a checkpoint should start in the background, before a writer has to wait for it.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.log_room() < self.log_blocks() / 2 || self.overlay.borrow().len() >= self.tuning.changes_due
    }

    /// True when no change may be made before a checkpoint.
    pub(crate) fn is_checkpoint_overdue(&self) -> bool {
        self.overlay.borrow().len() >= 2 * self.tuning.changes_due
    }
}

impl Log {
    /// Encodes log blocks from the head of `records`, which it consumes.
    fn emit(&self, identity: LogIdentity, records: &mut &[Record], blocks: &[Range<u64>]) -> Buf {
        let mut data = Buf::zeroed(blocks.len() * BLOCK_BYTES as usize);
        for (at, (place, serials)) in data.chunks_exact_mut(BLOCK_BYTES as usize).zip(blocks).enumerate() {
            let (here, rest) = records.split_at((serials.end - serials.start) as usize);
            *records = rest;
            let block = LogBlock {
                sequence: self.sequence + at as u64,
                serial: serials.start,
                life: self.life,
                // The distance to the start of the commit: a missing block in the middle of a commit is
                // recognized as damage.
                back: at as u32,
                records: Vec::new(),
            };
            emit(identity, &block, here, place);
        }
        data
    }
}

/// Divides changes into log blocks: at most `records_max` in each, and no range of `whole` across two, because
/// a crash may leave one block without the next.
fn blocks_of(serials: Range<u64>, whole: &[Range<u64>], records_max: usize) -> Vec<Range<u64>> {
    let mut blocks = Vec::new();
    let mut start = serials.start;
    while start < serials.end {
        let full = serials.end.min(start + records_max as u64);
        // A range that would be cut begins the next block instead, into which it fits.
        let split = whole.iter().find(|whole| whole.start < full && full < whole.end);
        let end = split.map_or(full, |whole| whole.start);
        assert!(end > start, "what must stay together fits into a block");
        blocks.push(start..end);
        start = end;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_belong_together_are_in_one_block_of_the_log() {
        assert_eq!(blocks_of(7..7, &[], 3), []);
        assert_eq!(blocks_of(7..14, &[], 3), [7..10, 10..13, 13..14]);
        assert_eq!(blocks_of(7..14, &[9..11, 13..14], 3), [7..9, 9..12, 12..14]);
        assert_eq!(blocks_of(7..14, &[8..11, 11..13], 3), [7..8, 8..11, 11..14]);
        assert_eq!(blocks_of(0..6, &[0..3, 3..6], 3), [0..3, 3..6]);
    }
}
