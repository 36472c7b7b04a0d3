//! Spares that will take the places of members that are missing or do not answer: what lists show while these are waited for.

use crate::system::now;
use model::{DiskId, DiskName, NextSpare};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Which spare takes the place of which member, and when.
#[derive(Default)]
pub(crate) struct ComingSpares(Mutex<BTreeMap<DiskId, Coming>>);

struct Coming {
    next: NextSpare,
    due: Instant,
}

impl ComingSpares {
    /// These are the ones that come; those of them that were not to come before.
    pub(crate) fn replace(&self, coming: BTreeMap<DiskId, (DiskName, Instant)>) -> Vec<(DiskId, NextSpare)> {
        let mut known = self.lock();
        known.retain(|member, before| coming.get(member).is_some_and(|(spare, _)| *spare == before.next.disk));
        let mut news = Vec::new();
        for (member, (disk, due)) in coming {
            // The time that was told stays: the two clocks may differ by a second.
            if known.contains_key(&member) {
                continue;
            }
            let in_s = due.saturating_duration_since(Instant::now()).as_secs();
            let next = NextSpare { disk, at: now().plus(in_s), in_s };
            news.push((member, next.clone()));
            known.insert(member, Coming { next, due });
        }
        news
    }

    /// The spare that takes the place of this member.
    pub(crate) fn of(&self, member: DiskId) -> Option<NextSpare> {
        let known = self.lock();
        let Coming { next, due } = known.get(&member)?;
        let in_s = due.saturating_duration_since(Instant::now()).as_secs();
        Some(NextSpare { in_s, ..next.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DiskId, Coming>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
