//! The first thing that is wrong in a run ends it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Who is told that something is wrong. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Judge(Rc<Inner>);

#[derive(Default)]
struct Inner {
    verdict: RefCell<Option<String>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Judge {
    /// This is wrong. Only the first counts.
    pub fn fail(&self, why: impl Into<String>) {
        self.0.verdict.borrow_mut().get_or_insert_with(|| why.into());
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// What the error says is wrong.
    pub fn hear<T>(&self, heard: Result<T, String>) -> Option<T> {
        heard.map_err(|why| self.fail(why)).ok()
    }

    /// True once something was wrong.
    pub fn has_failed(&self) -> bool {
        self.0.verdict.borrow().is_some()
    }

    /// Is ready once something is wrong, and says what.
    pub async fn failed(&self) -> String {
        poll_fn(|cx| match &*self.0.verdict.borrow() {
            Some(why) => Poll::Ready(why.clone()),
            None => {
                self.0.waiting.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}
