//! Garbage collection of a branch: frees versions that no snapshot or volume sees after a snapshot or clone was
//! deleted or a volume rolled back.
//!
//! Called by the pool's background work. Progress is an entry of the map, so that it continues after a crash.

use super::branch::CLEANING;
use super::{Branch, Family, MapError, visibility};
use crate::bug_injection::{self, InjectedBug};
use crate::maplog::Record;
use crate::tree::{GranuleAddress, Key};
use block::BlockDevice;
use std::rc::Rc;

/// Approximate number of versions examined in one step.
const STEP: usize = 512;

/// Result of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GcStep {
    pub(crate) freed: u64,
    pub(crate) more: bool,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Frees the unreferenced versions of some granules of the branch and records the progress.
    pub(crate) async fn gc_step(self: &Rc<Self>, branch: &Rc<Branch>) -> Result<GcStep, MapError> {
        let asked = branch.cleaning.get() & CLEANING;
        if branch.cleaning.get() == 0 {
            return Ok(GcStep::default());
        }
        // Before the lock, so that writers of these granules do not wait for a checkpoint as well.
        self.admit_change().await?;
        let (pass, from) = match branch.cleaned.get() {
            // A request that arrives during a pass does not restart it: the pass keeps its own number.
            (0, _) => (asked, 0),
            under_way => under_way,
        };
        let end = self.step_end(branch, from).await?;
        let freed = {
            // Granule numbers have 32 bits, so this is the end of every branch.
            let last = end.map_or(1 << 32, u64::from);
            // The lock of the step's granules keeps writers out while their versions are compared.
            let _held = branch.locks.exclusive(u64::from(from)..last).await;
            self.clean(branch, from, end).await?
        };
        // Progress is an entry of the map, logged behind the removals that it covers.
        let progress = Key::progress(branch.number);
        match end {
            Some(end) => self.change(Record::put(progress, u64::from(end) << 24 | u64::from(pass))),
            // A deletion during the pass starts another pass from granule 0.
            None if pass != asked => self.change(Record::put(progress, u64::from(asked))),
            None => {
                let done = Record { key: progress, value: None, freed: None, mapped: 0, exclusive: false };
                self.change(done);
                self.end_cleaning(branch, pass).await?;
                return Ok(GcStep { freed, more: false });
            }
        }
        Ok(GcStep { freed, more: true })
    }

    /// Granule before which a step from `from` ends; none when it goes to the end of the branch.
    async fn step_end(&self, branch: &Branch, from: u32) -> Result<Option<u32>, MapError> {
        let (mut key, end) = (Key::version(branch.number, from, 0), Key::version(branch.number + 1, 0, 0));
        let mut count = 0;
        loop {
            let (entries, next) = self.entries(key, end).await?;
            count += entries.len();
            match next {
                None => return Ok(None),
                // A step ends between granules, never between versions of one.
                Some(next) if count >= STEP && next.middle() > from => return Ok(Some(next.middle())),
                Some(next) => key = next,
            }
        }
    }

    /// Removes versions that no viewer sees from the granules `from` up to `end`; returns the number of places
    /// freed.
    async fn clean(&self, branch: &Branch, from: u32, end: Option<u32>) -> Result<u64, MapError> {
        let mut key = Key::version(branch.number, from, 0);
        let end = end.map_or(Key::version(branch.number + 1, 0, 0), |end| Key::version(branch.number, end, 0));
        let mut versions: Vec<(Key, u64)> = Vec::new();
        let mut freed = 0;
        loop {
            let (entries, next) = self.entries(key, end).await?;
            // Versions of one granule may be in several leaves; they are judged when all of them are collected.
            for entry in entries {
                if versions.last().is_some_and(|last| last.0.middle() != entry.0.middle()) {
                    freed += self.clean_granule(branch, &versions);
                    versions.clear();
                }
                versions.push(entry);
            }
            match next {
                Some(next) => key = next,
                None => return Ok(freed + self.clean_granule(branch, &versions)),
            }
        }
    }

    fn clean_granule(&self, branch: &Branch, versions: &[(Key, u64)]) -> u64 {
        let epochs: Vec<u64> = versions.iter().map(|(key, _)| key.low()).collect();
        let mut viewers = branch.view_epochs();
        if bug_injection::is_injected(InjectedBug::FreeSharedVersions) && viewers.len() > 1 {
            viewers.remove(0);
        }
        let kept = visibility::retained(&epochs, &branch.dead.borrow(), &viewers);
        // A hole with nothing beneath it has no effect and is dropped.
        let mut nothing = branch.parent.is_none();
        let mut freed = 0;
        for (&(key, value), kept) in versions.iter().zip(kept) {
            let place = self.data.place_of(value);
            if kept && (place != GranuleAddress::HOLE || !nothing) {
                nothing = false;
                continue;
            }
            let place = Some(place).filter(|place| place.is_data());
            freed += u64::from(place.is_some());
            self.change(Record { key, value: None, freed: place, mapped: 0, exclusive: false });
        }
        freed
    }

    /// Records in the catalog that the branch is clean, or removes the branch if it was deleted.
    async fn end_cleaning(self: &Rc<Self>, branch: &Rc<Branch>, pass: u32) -> Result<(), MapError> {
        // The removals must be durable before the catalog forgets that they were due.
        self.commit().await?;
        let ended = self.shared.store.change(|catalog| {
            // The whole family may have been deleted in the meantime.
            let Some(family) = catalog.family_mut(self.id) else { return Ok(()) };
            let Some(at) = family.branches.iter().position(|one| one.number == branch.number) else { return Ok(()) };
            let record = &mut family.branches[at];
            // Another deletion was requested meanwhile; the next pass ends the cleaning.
            if record.cleaning & CLEANING != pass {
                return Ok(());
            }
            if record.deleting {
                family.branches.remove(at);
                return Ok(());
            }
            record.cleaning = 0;
            record.dead = visibility::effective_ranges(&record.dead, &branch.view_epochs());
            Ok(())
        });
        let ((), change) = ended.map_err(|_| MapError::CatalogLost)?;
        self.follow_catalog();
        self.require_commit(change);
        self.shared.store.committed(change).await.map_err(|_| MapError::CatalogLost)
    }
}
