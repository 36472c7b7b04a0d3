//! Bringing the changes of a map into its tree: data, pages, root, each stable before the next.

use super::layers::for_the_tree;
use super::{Family, Head, MapError};
use crate::sabotage::{self, Sabotage};
use crate::tree::{Change, Key, apply};
use block::{BlockDevice, Stable};
use futures_util::FutureExt;
use std::collections::BTreeMap;
use std::rc::Rc;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// The tree has all changes that were made before this call, durably, and the log is free of them.
    ///
    /// *Errors*: whatever failed; the map is as it was, and the next call tries again.
    pub(crate) async fn checkpoint(self: &Rc<Self>) -> Result<(), MapError> {
        let family = self.clone();
        let turn = move || {
            let family = family.clone();
            async move { family.checkpoint_turn().await }.boxed_local()
        };
        self.checkpoints.begun_after(turn).await
    }

    async fn checkpoint_turn(self: &Rc<Self>) -> Result<(), MapError> {
        if let Some(error) = self.stopped() {
            return Err(error);
        }
        if self.is_head_doubtful.get() {
            // The pages of that head are free for those that are written now.
            let head = self.head.borrow().clone();
            if head.generation > 0 {
                let _: Stable = self.meta.supersede_head(&head).await?;
            }
            self.is_head_doubtful.set(false);
        }
        if let Some(era) = self.pages_era.take() {
            // Somebody may still be reading the tree before the last.
            self.space.eras.past(era).await;
        }
        let (layer, counters, mut head) = {
            let log = self.log.borrow();
            let mut head = self.head.borrow().clone();
            head.generation += 1;
            (head.serial, head.sequence, head.life) = (log.serial, log.sequence, log.life);
            (self.layers.borrow_mut().freeze(), self.count(), head)
        };
        let (since, before) = self.grown.get();
        self.grown.set((0, since + before));
        let space = self.meta.begin(head.generation);
        let changes = for_the_tree(&layer, self.changed_counters(&counters));
        drop(layer);
        if let Err(error) = self.write_checkpoint(&mut head, &changes).await {
            self.meta.undo(space);
            self.layers.borrow_mut().melt();
            let (since, before) = self.grown.get();
            self.grown.set((since + before, 0));
            return Err(error);
        }
        assert_eq!(head.generation, self.head.borrow().generation + 1, "a head follows the one before");
        assert!(head.sequence >= self.log.borrow().from, "the log does not go back");
        self.root.set(head.root);
        self.layers.borrow_mut().thaw();
        self.grown.set((self.grown.get().0, 0));
        self.log.borrow_mut().from = head.sequence;
        *self.head.borrow_mut() = head;
        *self.counters.borrow_mut() = counters;
        self.pages_era.set(Some(self.space.eras.turn()));
        self.say_formatted().await
    }

    /// The tree with `changes`, and behind it `head`, are on the disks, durably.
    async fn write_checkpoint(&self, head: &mut Head, changes: &BTreeMap<Key, Change>) -> Result<(), MapError> {
        assert_ne!(head.generation % 2, self.head.borrow().generation % 2, "a head leaves the one before where it is");
        let _: Stable = self.flush_data().await.inspect_err(|error| self.stop(*error))?;
        if head.generation == 1 {
            self.meta.format().await?;
        }
        self.meta.prepare_log(head.sequence).await?;
        let (root, grown) = apply(&self.meta, self.tuning.fanout, head.root, changes).await?;
        head.root = root;
        head.entries = head.entries.checked_add_signed(grown).expect("a tree has as many entries as were put there");
        self.meta.finish(head).await?;
        let stable = if sabotage::is(Sabotage::RootBeforePages) { Stable::attest() } else { self.meta.flush().await? };
        self.commit_catalog().await?;
        self.is_head_doubtful.set(true);
        let _: Stable = self.meta.write_head(head, stable).await?;
        self.is_head_doubtful.set(false);
        Ok(())
    }

    /// All data of the family is stable, whoever has written it.
    async fn flush_data(&self) -> Result<Stable, MapError> {
        let mut groups: Vec<u16> = {
            let granules = self.space.granules.borrow();
            granules.slabs().map(|slab| (slab >> 24) as u16).collect()
        };
        groups.dedup();
        if groups.is_empty() { Ok(self.meta.flush().await?) } else { super::meta::flush(&self.shared, &groups).await }
    }

    /// What must change in the tree for it to have `counters`.
    fn changed_counters(&self, counters: &BTreeMap<Key, u64>) -> BTreeMap<Key, Change> {
        let stored = self.counters.borrow();
        let gone = stored.keys().filter(|key| !counters.contains_key(key)).map(|&key| (key, Change::Remove));
        let new = counters.iter().filter(|(key, value)| stored.get(key) != Some(value));
        gone.chain(new.map(|(&key, &value)| (key, Change::Put(value)))).collect()
    }

    /// The catalog says that the family has a head, so that a lost one is never taken for an empty map.
    async fn say_formatted(&self) -> Result<(), MapError> {
        if self.formatted.replace(true) {
            return Ok(());
        }
        let said = self.shared.store.change(|catalog| {
            if let Some(record) = catalog.family_mut(self.id) {
                record.formatted = true;
            }
            Ok(())
        });
        let ((), change) = said.map_err(|_| MapError::CatalogLost)?;
        let committed = self.shared.store.committed(change).await;
        committed.map_err(|_| MapError::CatalogLost).inspect_err(|error| self.stop(*error))
    }

    /// Commits and checkpoints that are under way go on no more.
    pub(crate) fn abandon(&self) {
        self.commits.abandon();
        self.checkpoints.abandon();
    }

    /// No commit and no checkpoint is under way.
    pub(crate) async fn rest(&self) {
        self.commits.rest().await;
        self.checkpoints.rest().await;
    }
}
