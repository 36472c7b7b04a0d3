//! Problems found by parts of the daemon outside the data plane, such as the console's certificate or a memory
//! shortage.
//!
//! Each is a problem in the status, a condition for alerts, and an event when it starts and when it ends.

use crate::core::Core;
use model::{EventCode, Problem, Subject};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Problems by the event that started them and its subject.
pub(crate) type CurrentProblems = BTreeMap<(EventCode, Subject), Problem>;

/// Current problems reported by parts of the daemon outside the data plane.
pub struct Notices {
    core: Arc<Core>,
    known: Mutex<CurrentProblems>,
}

impl Notices {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, known: Mutex::default() }
    }

    /// Returns all current problems.
    pub(crate) fn all(&self) -> CurrentProblems {
        self.known().clone()
    }

    /// Locks the problems.
    fn known(&self) -> MutexGuard<'_, CurrentProblems> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a problem until [`Notices::settle`] ends it. An event is raised when it starts.
    pub fn add(&self, code: EventCode, subject: Subject, problem: Problem) {
        let Problem { subject: name, state, meaning, action, .. } = &problem;
        let sentence = format!("{name} is {state}: {meaning}; {action}");
        // The lock is released with this statement, before the event is written to disk.
        let before = self.known().insert((code, subject.clone()), problem);
        // A repeated report updates the problem without another event.
        if before.is_none() {
            tracing::warn!("{sentence}");
            self.core.raise(code, subject, sentence);
        }
    }

    /// Drops a problem whose subject no longer exists, without an event.
    pub fn remove(&self, code: EventCode, subject: &Subject) {
        self.known().remove(&(code, subject.clone()));
    }

    /// Ends a problem and raises the event `ends`; does nothing if there was none.
    pub fn settle(&self, code: EventCode, subject: Subject, ends: EventCode, sentence: &str) {
        if self.known().remove(&(code, subject.clone())).is_some() {
            tracing::info!("{sentence}");
            self.core.raise(ends, subject, sentence);
        }
    }
}
