//! Pools that are not open, with the reason: shown in lists, and reflected in the sense data of their LUNs.
//! Kept in memory only.

use model::{Absence, Access, Name, PoolWaiting};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Known pools that are not open.
#[derive(Default)]
pub(crate) struct ClosedPools(Mutex<BTreeMap<Name, PoolWaiting>>);

impl ClosedPools {
    /// Records the reason for a pool; returns true when the sense data for its LUNs changes.
    pub(crate) fn note(&self, pool: &Name, waiting: PoolWaiting) -> bool {
        let needs_operator = waiting.needs_operator;
        let before = self.lock().insert(pool.clone(), waiting);
        // Only the need for an operator changes the sense data; other changes concern the text alone.
        before.is_none_or(|before| before.needs_operator != needs_operator)
    }

    /// Removes a pool that is open again or no longer known.
    pub(crate) fn forget(&self, pool: &Name) {
        self.lock().remove(pool);
    }

    /// Returns the reason why the pool is not open.
    pub(crate) fn of(&self, pool: &Name) -> Option<PoolWaiting> {
        self.lock().get(pool).cloned()
    }

    /// Removes the pools for which `keep` returns false.
    pub(crate) fn retain(&self, keep: impl Fn(&Name) -> bool) {
        self.lock().retain(|name, _| keep(name));
    }

    /// Returns true while a known pool is not open.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Sets for each volume of a closed pool whether hosts are told to retry or that an operator is needed.
    pub(crate) fn mark(&self, access: &mut Access) {
        let pools = self.lock();
        for volume in access.absent.values_mut() {
            // A volume without a pool waits for its file, which the reconcile loop tries again.
            let waiting = volume.name.pool().and_then(|pool| pools.get(pool));
            let needs_operator = waiting.is_some_and(|waiting| waiting.needs_operator);
            volume.absence = if needs_operator { Absence::NeedsOperator } else { Absence::Waits };
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, PoolWaiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
