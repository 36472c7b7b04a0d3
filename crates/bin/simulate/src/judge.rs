//! The first thing that is wrong in a run ends it.

use shard::Signal;
use std::cell::RefCell;
use std::rc::Rc;

/// Who is told that something is wrong. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Judge(Rc<Inner>);

#[derive(Default)]
struct Inner {
    verdict: RefCell<Option<String>>,
    told: Signal,
}

impl Judge {
    /// This is wrong. Only the first counts.
    pub(crate) fn fail(&self, why: impl Into<String>) {
        self.0.verdict.borrow_mut().get_or_insert_with(|| why.into());
        self.0.told.raise();
    }

    /// What the error says is wrong.
    pub(crate) fn hear<T>(&self, heard: Result<T, String>) -> Option<T> {
        heard.map_err(|why| self.fail(why)).ok()
    }

    /// True once something was wrong.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.verdict.borrow().is_some()
    }

    /// Is ready once something is wrong, and says what.
    pub(crate) async fn failed(&self) -> String {
        self.0.told.wait(|| self.0.verdict.borrow().clone()).await
    }
}
