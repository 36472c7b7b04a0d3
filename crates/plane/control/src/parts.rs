//! What [`Control`](crate::Control) keeps for each of its modules. They work on it; nothing here knows them.

use isns::Entity;
use model::{DiskHealth, DiskId, DiskName, EventCode, IsnsState, MemoryReport, Problem, RefusedLogin, Subject};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Lost members that a spare was sought for.
#[derive(Default)]
pub(crate) struct Vigil {
    /// Since when members were not found.
    pub(crate) missing: BTreeMap<DiskId, Instant>,
    /// Members for which it was told that no spare fits, and how many spares there were then.
    pub(crate) in_vain: BTreeMap<DiskId, usize>,
}

/// What is known of the health of disks.
#[derive(Default)]
pub(crate) struct Health(pub(crate) Mutex<BTreeMap<DiskName, DiskHealth>>);

impl Health {
    /// What is known of this disk.
    pub(crate) fn of(&self, disk: &DiskName) -> Option<DiskHealth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(disk).cloned()
    }
}

/// How the registration is, for whoever asks.
#[derive(Default)]
pub(crate) struct Registration {
    shown: Mutex<Shown>,
    pub(crate) changed: Notify,
}

/// What is told of it.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) state: IsnsState,
    pub(crate) entity: Option<Entity>,
    /// How many names the server was asked for that another array may have, too, or why it was not.
    pub(crate) looked: Option<Result<usize, String>>,
}

impl Registration {
    /// Whoever registers looks at what is wanted.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// What is told of it now.
    pub(crate) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the daemon's memory was found and is used; nothing before it is watched.
#[derive(Default)]
pub(crate) struct Memory(pub(crate) Mutex<Option<MemoryReport>>);

/// Problems by the event that they began with, and its subject.
pub(crate) type Known = BTreeMap<(EventCode, Subject), Problem>;

/// What is wrong now.
#[derive(Default)]
pub(crate) struct Noticed(Mutex<Known>);

impl Noticed {
    /// Everything that is wrong now.
    pub(crate) fn all(&self) -> Known {
        self.known().clone()
    }

    /// The same, to be changed.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often it is written at most.
const EVERY: Duration = Duration::from_secs(60);

/// What was written down, and when somebody looked whether there is more.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) logins: Vec<RefusedLogin>,
    pub(crate) looked: Option<Instant>,
}

impl Written {
    /// True when somebody should look again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.duration_since(looked) >= EVERY)
    }
}
