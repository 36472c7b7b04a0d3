//! Application of a change to the open map: layers, counters, and freed places.

use super::{Family, MapError};
use crate::bug_injection::{self, InjectedBug};
use crate::catalog::DeadRange;
use crate::maplog::Record;
use crate::tree::{Counter, Damage, Key, Tag};
use block::BlockDevice;
use std::collections::BTreeMap;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Applies `record` to the map, for all later lookups; it is durable after a commit.
    pub(crate) fn change(&self, record: Record) {
        if let Some(place) = record.place() {
            self.space.granules.borrow_mut().mark_mapped(place);
        }
        let record = if bug_injection::is_injected(InjectedBug::LeakMoved) && record.place().is_some() {
            Record { freed: None, ..record }
        } else {
            record
        };
        if let Some(freed) = record.freed {
            // A place that is held already was freed before: two versions claimed it, which only damage
            // explains.
            if !self.space.granules.borrow_mut().hold_freed(freed) {
                self.fail_permanently(Damage("two versions have one place").into());
            } else if bug_injection::is_injected(InjectedBug::ReuseBeforeCommit) {
                self.space.granules.borrow_mut().release(freed);
            } else {
                self.log.borrow_mut().freed.push(freed);
            }
        }
        // Applied and queued without an await, so that a checkpoint takes both or neither.
        self.apply_record(&record);
        let mut log = self.log.borrow_mut();
        log.pending.push(record);
        // Consecutive without gaps: a log block stores only the serial number of its first record.
        log.serial += 1;
    }

    /// Applies `record` to layers and counters.
    pub(super) fn apply_record(&self, record: &Record) {
        self.overlay.borrow_mut().apply(record);
        if record.key.tag() == Some(Tag::Progress)
            && let Some(branch) = self.branch(record.key.branch())
        {
            branch.set_gc_progress(record.value.unwrap_or(0));
        }
        if record.key.tag() != Some(Tag::Version) {
            return;
        }
        if record.value.is_some() && record.freed.is_none() {
            // A version that frees a place replaces one, so only the others can make the tree larger.
            let (now, before) = self.grown.get();
            self.grown.set((now + 1, before));
        }
        let more = i64::from(record.place().is_some()) - i64::from(record.freed.is_some());
        self.allocated.set(add(self.allocated.get(), more));
        // The log may still have records of a branch whose deletion has ended.
        let Some(branch) = self.branch(record.key.branch()) else { return };
        let epoch = record.key.low();
        if epoch == branch.epoch.get() {
            branch.mapped.set(add(branch.mapped.get(), i64::from(record.mapped)));
            branch.own_versions.set(add(branch.own_versions.get(), more));
        }
        // After a roll-back to this snapshot the volume sees the version again, so it is not exclusive.
        let revived = |range: &DeadRange| range.after + 1 == epoch;
        if let Some(before) = epoch.checked_sub(1).filter(|_| record.exclusive)
            && !branch.dead.borrow().iter().any(revived)
        {
            // The epoch before this one is that of the newest snapshot.
            let mut exclusive = branch.exclusive.borrow_mut();
            let count = exclusive.entry(before).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Current values of all counters.
    pub(super) fn count(&self) -> BTreeMap<Key, u64> {
        let mut counters = BTreeMap::from([(Key::counter(Counter::Allocated, 0, 0), self.allocated.get())]);
        for branch in self.branches() {
            let epoch = branch.epoch.get();
            counters.insert(Key::counter(Counter::Mapped, branch.number, epoch), branch.mapped.get());
            counters.insert(Key::counter(Counter::OwnVersions, branch.number, epoch), branch.own_versions.get());
            for (&epoch, &count) in branch.exclusive.borrow().iter() {
                counters.insert(Key::counter(Counter::Exclusive, branch.number, epoch), count);
            }
        }
        counters
    }

    /// Reads the counters from the tree. Those of a past epoch are ignored.
    pub(super) async fn read_counters(&self) -> Result<(), MapError> {
        let end = Key(Key::counter(Counter::Allocated, 0x00ff_ffff, u64::MAX).0 + 1);
        let mut from = Key::counter(Counter::Mapped, 0, 0);
        loop {
            let (entries, next) = self.entries(from, end).await?;
            entries.into_iter().for_each(|(key, value)| self.recount(key, value));
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    fn recount(&self, key: Key, value: u64) {
        self.counters.borrow_mut().insert(key, value);
        let branch = self.branch(key.branch());
        match (Counter::of(key.middle()), branch) {
            (Some(Counter::Allocated), _) => self.allocated.set(value),
            (Some(Counter::Mapped), Some(branch)) if key.low() == branch.epoch.get() => branch.mapped.set(value),
            (Some(Counter::OwnVersions), Some(branch)) if key.low() == branch.epoch.get() => {
                branch.own_versions.set(value)
            }
            (Some(Counter::Exclusive), Some(branch)) if branch.snapshots.borrow().contains(&key.low()) => {
                branch.exclusive.borrow_mut().insert(key.low(), value);
            }
            _ => {}
        }
    }
}

fn add(count: u64, more: i64) -> u64 {
    // Counts from a damaged map need not add up until they are repaired, so they saturate.
    count.saturating_add_signed(more)
}
