//! Giving back what nobody sees any more, after a snapshot or a clone was deleted or a volume rolled back.

use super::branch::CLEANING;
use super::{Branch, Family, MapError, lineage};
use crate::maplog::Record;
use crate::sabotage::{self, Sabotage};
use crate::tree::{Key, Place};
use block::BlockDevice;
use std::rc::Rc;

/// Versions that are looked at in one step, about.
const STEP: usize = 512;

/// What a step of a cleaning has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cleaned {
    pub(crate) freed: u64,
    pub(crate) more: bool,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Some granules of the branch have only versions that somebody sees; the progress is kept with them.
    pub(crate) async fn clean_step(self: &Rc<Self>, branch: &Rc<Branch>) -> Result<Cleaned, MapError> {
        let asked = branch.cleaning.get() & CLEANING;
        if branch.cleaning.get() == 0 {
            return Ok(Cleaned::default());
        }
        self.admit_change().await?;
        let (pass, from) = match branch.cleaned.get() {
            (0, _) => (asked, 0),
            under_way => under_way,
        };
        let end = self.step_end(branch, from).await?;
        let freed = {
            let last = end.map_or(1 << 32, u64::from);
            let _held = branch.locks.exclusive(u64::from(from)..last).await;
            self.clean(branch, from, end).await?
        };
        let progress = Key::progress(branch.number);
        match end {
            Some(end) => self.change(Record::put(progress, u64::from(end) << 24 | u64::from(pass))),
            // What came up meanwhile is another pass.
            None if pass != asked => self.change(Record::put(progress, u64::from(asked))),
            None => {
                let done = Record { key: progress, value: None, freed: None, mapped: 0, exclusive: false };
                self.change(done);
                self.end_cleaning(branch, pass).await?;
                return Ok(Cleaned { freed, more: false });
            }
        }
        Ok(Cleaned { freed, more: true })
    }

    /// The granule before which a step that begins at `from` ends; none when it goes to the end.
    async fn step_end(&self, branch: &Branch, from: u32) -> Result<Option<u32>, MapError> {
        let (mut key, end) = (Key::version(branch.number, from, 0), Key::version(branch.number + 1, 0, 0));
        let mut count = 0;
        loop {
            let (entries, next) = self.entries(key, end).await?;
            count += entries.len();
            match next {
                None => return Ok(None),
                Some(next) if count >= STEP && next.middle() > from => return Ok(Some(next.middle())),
                Some(next) => key = next,
            }
        }
    }

    /// Removes from the granules `from` up to `end` what nobody sees; returns how many places are freed.
    async fn clean(&self, branch: &Branch, from: u32, end: Option<u32>) -> Result<u64, MapError> {
        let mut key = Key::version(branch.number, from, 0);
        let end = end.map_or(Key::version(branch.number + 1, 0, 0), |end| Key::version(branch.number, end, 0));
        let mut versions: Vec<(Key, u64)> = Vec::new();
        let mut freed = 0;
        loop {
            let (entries, next) = self.entries(key, end).await?;
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
        let mut viewers = branch.viewers();
        if sabotage::is(Sabotage::FreeWhatOlderSees) && viewers.len() > 1 {
            viewers.remove(0);
        }
        let kept = lineage::kept(&epochs, &branch.dead.borrow(), &viewers);
        // A hole above nothing says what would be so without it.
        let mut nothing = branch.parent.is_none();
        let mut freed = 0;
        for (&(key, value), kept) in versions.iter().zip(kept) {
            let place = self.data.place_of(value);
            if kept && (place != Place::HOLE || !nothing) {
                nothing = false;
                continue;
            }
            let place = Some(place).filter(|place| place.is_data());
            freed += u64::from(place.is_some());
            self.change(Record { key, value: None, freed: place, mapped: 0, exclusive: false });
        }
        freed
    }

    /// The catalog knows that the branch is clean, or gone if it was deleted.
    async fn end_cleaning(self: &Rc<Self>, branch: &Rc<Branch>, pass: u32) -> Result<(), MapError> {
        self.commit().await?;
        let ended = self.shared.store.change(|catalog| {
            let Some(family) = catalog.family_mut(self.id) else { return Ok(()) };
            let Some(at) = family.branches.iter().position(|one| one.number == branch.number) else { return Ok(()) };
            let record = &mut family.branches[at];
            if record.cleaning & CLEANING != pass {
                return Ok(());
            }
            if record.dying {
                family.branches.remove(at);
                return Ok(());
            }
            record.cleaning = 0;
            record.dead = lineage::hiding(&record.dead, &branch.viewers());
            Ok(())
        });
        let ((), change) = ended.map_err(|_| MapError::CatalogLost)?;
        self.follow_catalog();
        self.need(change);
        self.shared.store.committed(change).await.map_err(|_| MapError::CatalogLost)
    }
}
