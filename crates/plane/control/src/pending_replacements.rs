//! Pending spare replacements: which spare will replace which missing or unresponsive member, and when. Shown
//! in lists during the waiting time.

use crate::system::now;
use model::{DiskId, DiskName, NextSpare};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Pending replacements by member.
#[derive(Default)]
pub(crate) struct PendingReplacements(Mutex<BTreeMap<DiskId, PendingReplacement>>);

struct PendingReplacement {
    next: NextSpare,
    due: Instant,
}

impl PendingReplacements {
    /// Replaces the set of pending replacements, and returns those that are new.
    pub(crate) fn replace(&self, coming: BTreeMap<DiskId, (DiskName, Instant)>) -> Vec<(DiskId, NextSpare)> {
        let mut known = self.lock();
        // An announcement ends when its member returns or another spare is chosen.
        known.retain(|member, before| coming.get(member).is_some_and(|(spare, _)| *spare == before.next.disk));
        let mut news = Vec::new();
        for (member, (disk, due)) in coming {
            // The announced time stays: recomputing it from the monotonic clock may shift it by a second.
            if known.contains_key(&member) {
                continue;
            }
            let in_s = due.saturating_duration_since(Instant::now()).as_secs();
            let next = NextSpare { disk, at: now().plus(in_s), seconds_left: in_s };
            news.push((member, next.clone()));
            known.insert(member, PendingReplacement { next, due });
        }
        news
    }

    /// Returns the pending replacement of this member, with the seconds left.
    pub(crate) fn of(&self, member: DiskId) -> Option<NextSpare> {
        let known = self.lock();
        let PendingReplacement { next, due } = known.get(&member)?;
        let in_s = due.saturating_duration_since(Instant::now()).as_secs();
        Some(NextSpare { seconds_left: in_s, ..next.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DiskId, PendingReplacement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
