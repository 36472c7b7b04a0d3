//! Which pools are not open and why, as long as the daemon runs: what lists show, and what hosts are told meanwhile.

use model::{Absence, Access, Name, PoolWaiting};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The pools that should be open and are not.
#[derive(Default)]
pub(crate) struct Absences(Mutex<BTreeMap<Name, PoolWaiting>>);

impl Absences {
    /// The pool waits for this; true when hosts are told something else than before.
    pub(crate) fn note(&self, pool: &Name, waiting: PoolWaiting) -> bool {
        let needs_operator = waiting.needs_operator;
        let before = self.lock().insert(pool.clone(), waiting);
        before.is_none_or(|before| before.needs_operator != needs_operator)
    }

    /// The pool is open, or is none of ours any more.
    pub(crate) fn forget(&self, pool: &Name) {
        self.lock().remove(pool);
    }

    /// What the pool waits for.
    pub(crate) fn of(&self, pool: &Name) -> Option<PoolWaiting> {
        self.lock().get(pool).cloned()
    }

    /// Pools that `keep` is false of are open, or none of ours.
    pub(crate) fn retain(&self, keep: impl Fn(&Name) -> bool) {
        self.lock().retain(|name, _| keep(name));
    }

    /// True while a pool is not open.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.lock().is_empty()
    }

    /// The volumes of pools that do not open without an operator are marked so.
    pub(crate) fn mark(&self, access: &mut Access) {
        let pools = self.lock();
        for volume in access.absent.values_mut() {
            let waiting = volume.name.pool().and_then(|pool| pools.get(pool));
            let needs_operator = waiting.is_some_and(|waiting| waiting.needs_operator);
            volume.absence = if needs_operator { Absence::NeedsOperator } else { Absence::Waits };
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, PoolWaiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
