//! Waiting for a condition of this shard's own state.

use smallvec::SmallVec;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Wakes those who wait for something to change; each looks for itself whether it has.
#[derive(Debug, Default)]
pub(crate) struct Signal(RefCell<SmallVec<[Waker; 4]>>);

impl Signal {
    /// Everybody who waits looks again.
    pub(crate) fn raise(&self) {
        let waiting = std::mem::take(&mut *self.0.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// What `look` gives once it gives something; asked now, and whenever the signal is raised.
    pub(crate) async fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| {
            if let Some(value) = look() {
                return Poll::Ready(value);
            }
            let mut waiting = self.0.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
