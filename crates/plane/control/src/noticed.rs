//! What parts of the daemon beside the data plane find wrong, until it is mended: the console's certificate, memory that runs short.
//!
//! Each is a problem of the status, a condition for alerts, and an event when it begins and when it ends.

use crate::Control;
use model::{EventCode, Problem, Subject};

impl Control {
    /// This is wrong from now on, until [`Control::settle`] ends it. It is an event when it begins.
    pub fn notice(&self, code: EventCode, subject: Subject, problem: Problem) {
        let Problem { subject: name, state, meaning, action, .. } = &problem;
        let sentence = format!("{name} is {state}: {meaning}; {action}");
        let before = self.noticed.known().insert((code, subject.clone()), problem);
        if before.is_none() {
            tracing::warn!("{sentence}");
            self.core.raise(code, subject, sentence);
        }
    }

    /// What it was wrong about is not there any more.
    pub fn unnotice(&self, code: EventCode, subject: &Subject) {
        self.noticed.known().remove(&(code, subject.clone()));
    }

    /// It is wrong no longer, which is the event `ends`; nothing where it was not wrong.
    pub fn settle(&self, code: EventCode, subject: Subject, ends: EventCode, sentence: &str) {
        if self.noticed.known().remove(&(code, subject.clone())).is_some() {
            tracing::info!("{sentence}");
            self.core.raise(ends, subject, sentence);
        }
    }
}
