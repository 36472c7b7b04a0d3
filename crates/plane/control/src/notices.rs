//! What parts of the daemon beside the data plane find wrong, until it is mended: the console's certificate, memory that runs short.
//!
//! Each is a problem of the status, a condition for alerts, and an event when it begins and when it ends.

use crate::core::Core;
use model::{EventCode, Problem, Subject};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Problems by the event that they began with, and its subject.
pub(crate) type Known = BTreeMap<(EventCode, Subject), Problem>;

/// Problems that parts of the daemon beside the data plane have found.
pub struct Notices {
    core: Arc<Core>,
    known: Mutex<Known>,
}

impl Notices {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, known: Mutex::default() }
    }

    /// Everything that is wrong now.
    pub(crate) fn all(&self) -> Known {
        self.known().clone()
    }

    /// The same, to be changed.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is wrong from now on, until [`Notices::settle`] ends it. It is an event when it begins.
    pub fn add(&self, code: EventCode, subject: Subject, problem: Problem) {
        let Problem { subject: name, state, meaning, action, .. } = &problem;
        let sentence = format!("{name} is {state}: {meaning}; {action}");
        let before = self.known().insert((code, subject.clone()), problem);
        if before.is_none() {
            tracing::warn!("{sentence}");
            self.core.raise(code, subject, sentence);
        }
    }

    /// What it was wrong about is not there any more.
    pub fn remove(&self, code: EventCode, subject: &Subject) {
        self.known().remove(&(code, subject.clone()));
    }

    /// It is wrong no longer, which is the event `ends`; nothing where it was not wrong.
    pub fn settle(&self, code: EventCode, subject: Subject, ends: EventCode, sentence: &str) {
        if self.known().remove(&(code, subject.clone())).is_some() {
            tracing::info!("{sentence}");
            self.core.raise(ends, subject, sentence);
        }
    }
}
