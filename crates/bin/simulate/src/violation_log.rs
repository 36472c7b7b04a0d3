//! Verdict of a run: the first violation ends it.

use shard::Signal;
use std::cell::RefCell;
use std::rc::Rc;

/// Collector of violations. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ViolationLog(Rc<Inner>);

#[derive(Default)]
struct Inner {
    verdict: RefCell<Option<String>>,
    told: Signal,
}

impl ViolationLog {
    /// Records a violation; only the first one counts.
    pub(crate) fn fail(&self, why: impl Into<String>) {
        // Later violations are often consequences of the first one.
        self.0.verdict.borrow_mut().get_or_insert_with(|| why.into());
        self.0.told.raise();
    }

    /// Records the error as a violation.
    pub(crate) fn check<T>(&self, heard: Result<T, String>) -> Option<T> {
        heard.map_err(|why| self.fail(why)).ok()
    }

    /// True once a violation was recorded.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.verdict.borrow().is_some()
    }

    /// Waits for a violation and returns it.
    pub(crate) async fn failed(&self) -> String {
        self.0.told.wait(|| self.0.verdict.borrow().clone()).await
    }
}
