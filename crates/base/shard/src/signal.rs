//! Waiting for a condition on state of the same shard.

use smallvec::SmallVec;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Wakes the tasks that wait for a change; each re-evaluates its own condition.
#[derive(Debug, Default)]
pub struct Signal(RefCell<SmallVec<[Waker; 4]>>);

impl Signal {
    /// Wakes all waiting tasks.
    pub fn raise(&self) {
        // Taken first: a woken task may watch again.
        let waiting = std::mem::take(&mut *self.0.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Registers the task of `cx` to be woken at the next raise; registering twice has no further effect.
    pub fn watch(&self, cx: &Context<'_>) {
        let mut waiting = self.0.borrow_mut();
        // Each task is registered once, so the list is bounded by the number of tasks.
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }

    /// Waits until `look` returns a value; evaluated now, and after each raise.
    pub async fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match look() {
            Some(value) => Poll::Ready(value),
            None => {
                // Single-threaded: no wake can happen between the check and the registration.
                self.watch(cx);
                Poll::Pending
            }
        })
        .await
    }

    /// Waits until `holds` is true; evaluated now, and after each raise.
    pub async fn until(&self, mut holds: impl FnMut() -> bool) {
        self.wait(|| holds().then_some(())).await;
    }
}

/// Lets every other ready task run once.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        // Queued behind all tasks that are ready.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Executor;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn signal_remembers_a_task_once_and_wakes_who_waits() {
        let (signal, open) = (Rc::new(Signal::default()), Rc::new(Cell::new(false)));
        let executor = Executor::new(Box::new(|| {}));
        let (waits, looks) = (signal.clone(), open.clone());
        executor.spawn(async move {
            let mut wait = std::pin::pin!(waits.until(|| looks.get()));
            for _ in 0..100 {
                assert!(futures_util::poll!(&mut wait).is_pending());
                yield_now().await;
            }
            wait.await;
        });
        for _ in 0..200 {
            executor.run_ready();
        }
        assert_eq!(signal.0.borrow().len(), 1);
        signal.raise();
        executor.run_ready();
        assert_eq!(executor.task_count(), 1, "raised, but it does not hold");
        open.set(true);
        signal.raise();
        executor.run_ready();
        assert_eq!(executor.task_count(), 0);
    }

    #[test]
    fn task_that_yields_lets_the_others_run_first() {
        let executor = Executor::new(Box::new(|| {}));
        let order = Rc::new(RefCell::new(Vec::new()));
        for task in 0..3 {
            let order = order.clone();
            executor.spawn(async move {
                order.borrow_mut().push((0, task));
                yield_now().await;
                order.borrow_mut().push((1, task));
            });
        }
        while executor.task_count() > 0 {
            executor.run_ready();
        }
        assert_eq!(*order.borrow(), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    }
}
