//! Checkpoint: applies the map changes to the tree. Data, pages and head are made stable in that order.

use super::overlay::tree_changes;
use super::{Family, Head, MapError};
use crate::bug_injection::{self, InjectedBug};
use crate::tree::{Change, Key, apply};
use block::{BlockDevice, Stable};
use futures_util::FutureExt;
use std::collections::BTreeMap;
use std::rc::Rc;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Writes all changes made before this call to the tree, durably, and frees the log of them.
    ///
    /// *Errors*: any failure; the map is unchanged, and the next call retries.
    pub(crate) async fn checkpoint(self: &Rc<Self>) -> Result<(), MapError> {
        let family = self.clone();
        let turn = move || {
            let family = family.clone();
            async move { family.checkpoint_turn().await }.boxed_local()
        };
        self.checkpoints.run_after_now(turn).await
    }

    async fn checkpoint_turn(self: &Rc<Self>) -> Result<(), MapError> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.is_head_doubtful.get() {
            // That head may be on the disks and its pages are free again: its slot is overwritten before they
            // are reused.
            let head = self.head.borrow().clone();
            // Before the first head there is none to put there; `Meta::format` zeroes both slots again.
            if head.generation > 0 {
                let _: Stable = self.meta.supersede_head(&head).await?;
            }
            self.is_head_doubtful.set(false);
        }
        if let Some(era) = self.pages_era.take() {
            // Readers may still use the tree before the last one, whose pages this checkpoint reuses.
            self.space.eras.drained(era).await;
        }
        let (layer, counters, mut head) = {
            let log = self.log.borrow();
            let mut head = self.head.borrow().clone();
            // Taken in one step: the frozen changes are exactly those before `head.serial`.
            head.generation += 1;
            (head.serial, head.sequence, head.life) = (log.serial, log.sequence, log.life);
            (self.overlay.borrow_mut().freeze(), self.count(), head)
        };
        let (since, before) = self.grown.get();
        // Keys of the frozen changes still count: they are in neither the old tree nor the new one yet.
        self.grown.set((0, since + before));
        // The free pages as they were, for the case that the checkpoint fails.
        let space = self.meta.begin(head.generation);
        let changes = tree_changes(&layer, self.changed_counters(&counters));
        // Dropped here, so that `merge_back` is the last owner and need not copy the layer.
        drop(layer);
        if let Err(error) = self.write_checkpoint(&mut head, &changes).await {
            // The failed checkpoint leaves no trace: its pages are free and its changes go into the next one.
            self.meta.undo(space);
            self.overlay.borrow_mut().merge_back();
            let (since, before) = self.grown.get();
            self.grown.set((since + before, 0));
            return Err(error);
        }
        assert_eq!(head.generation, self.head.borrow().generation + 1, "a head follows the one before");
        assert!(head.sequence >= self.log.borrow().from, "the log does not go back");
        // Root and frozen layer change without an await between, so lookups see either the old or the new tree
        // with the right changes.
        self.root.set(head.root);
        self.overlay.borrow_mut().drop_frozen();
        self.grown.set((self.grown.get().0, 0));
        // From here on the log blocks before the new head may be overwritten.
        self.log.borrow_mut().from = head.sequence;
        *self.head.borrow_mut() = head;
        *self.counters.borrow_mut() = counters;
        // Readers that start from now on use the new tree; the next checkpoint waits for the others.
        self.pages_era.set(Some(self.space.eras.advance_era()));
        self.record_formatted().await
    }

    /// Writes the tree with `changes`, and then `head`, durably.
    async fn write_checkpoint(&self, head: &mut Head, changes: &BTreeMap<Key, Change>) -> Result<(), MapError> {
        assert_ne!(head.generation % 2, self.head.borrow().generation % 2, "a head leaves the one before where it is");
        // Versions in the tree refer to data, so the data is stable first.
        let _: Stable = self.flush_data().await.inspect_err(|error| self.fail_permanently(*error))?;
        if head.generation == 1 {
            self.meta.format().await?;
        }
        // The log continues at the new head, and opening needs a block or zeros there.
        self.meta.prepare_log(head.sequence).await?;
        let (root, grown) = apply(&self.meta, self.tuning.fanout, head.root, changes).await?;
        head.root = root;
        head.entries = head.entries.checked_add_signed(grown).expect("a tree has as many entries as were put there");
        self.meta.finish(head).await?;
        let stable = if bug_injection::is_injected(InjectedBug::RootBeforePages) {
            Stable::attest()
        } else {
            self.meta.flush().await?
        };
        // The head must not become visible before the slabs and epochs that its tree refers to.
        self.commit_catalog().await?;
        // Until the write succeeds it is unknown which head a crash would leave.
        self.is_head_doubtful.set(true);
        let _: Stable = self.meta.write_head(head, stable).await?;
        self.is_head_doubtful.set(false);
        Ok(())
    }

    /// Flushes all data of the family.
    async fn flush_data(&self) -> Result<Stable, MapError> {
        let mut groups: Vec<u16> = {
            let granules = self.space.granules.borrow();
            granules.slabs().map(|slab| (slab >> 24) as u16).collect()
        };
        // Slabs are in ascending order of their groups, so equal ones are adjacent.
        groups.dedup();
        if groups.is_empty() { Ok(self.meta.flush().await?) } else { super::meta::flush(&self.shared, &groups).await }
    }

    /// Changes that bring the tree's counters to `counters`.
    fn changed_counters(&self, counters: &BTreeMap<Key, u64>) -> BTreeMap<Key, Change> {
        let stored = self.counters.borrow();
        let gone = stored.keys().filter(|key| !counters.contains_key(key)).map(|&key| (key, Change::Remove));
        let new = counters.iter().filter(|(key, value)| stored.get(key) != Some(value));
        gone.chain(new.map(|(&key, &value)| (key, Change::Put(value)))).collect()
    }

    /// Records in the catalog that the family has a head, so that a lost head is never mistaken for an empty
    /// map.
    async fn record_formatted(&self) -> Result<(), MapError> {
        if self.formatted.replace(true) {
            return Ok(());
        }
        // After the head is stable: from this commit on, a missing head is damage.
        let said = self.shared.store.change(|catalog| {
            if let Some(record) = catalog.family_mut(self.id) {
                record.formatted = true;
            }
            Ok(())
        });
        let ((), change) = said.map_err(|_| MapError::CatalogLost)?;
        let committed = self.shared.store.committed(change).await;
        committed.map_err(|_| MapError::CatalogLost).inspect_err(|error| self.fail_permanently(*error))
    }

    /// Abandons commits and checkpoints in progress.
    pub(crate) fn abort(&self) {
        self.commits.abandon();
        self.checkpoints.abandon();
    }

    /// Waits until no commit and no checkpoint is in progress.
    pub(crate) async fn drain(&self) {
        // Commits first, because one that is in progress may start a checkpoint.
        self.commits.until_idle().await;
        self.checkpoints.until_idle().await;
    }
}
