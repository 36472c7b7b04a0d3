//! Who waits for work that belongs to nobody in particular.

use std::task::{Context, Waker};

/// How many wait, and who of them is to be woken.
#[derive(Default)]
pub(crate) struct Waiters {
    count: usize,
    wakers: Vec<Waker>,
}

impl Waiters {
    /// One more waits.
    pub(crate) fn enter(&mut self) {
        self.count += 1;
    }

    /// One of them waits no more, done or dropped; the others look again.
    pub(crate) fn leave(&mut self) -> Vec<Waker> {
        self.count -= 1;
        self.take()
    }

    /// True when nobody waits any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The task of `cx` is to be woken, once however often it asks.
    pub(crate) fn watch(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }

    /// Those who are to be woken.
    pub(crate) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }
}
