//! Stop requests to a shard.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Stop request for one shard, callable from any thread. Its main future waits for it with
/// [`Uring::stopped`](crate::Uring::stopped) and then shuts down in its own order.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    wakers: Vec<Waker>,
}

impl Stop {
    /// Requests the stop and wakes all waiting tasks.
    pub fn stop(&self) {
        let wakers = {
            let mut state = self.lock();
            state.stopped = true;
            // Woken outside of the lock.
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// True once [`Stop::stop`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.stopped {
            return Poll::Ready(());
        }
        // A task that polls repeatedly is stored once.
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
