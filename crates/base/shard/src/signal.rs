//! Waiting for a condition of this shard's own state.

use smallvec::SmallVec;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Wakes those who wait for something to change; each looks for itself whether it has.
#[derive(Debug, Default)]
pub struct Signal(RefCell<SmallVec<[Waker; 4]>>);

impl Signal {
    /// Everybody who waits looks again.
    pub fn raise(&self) {
        let waiting = std::mem::take(&mut *self.0.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The task of `cx` looks again when the signal is raised. It is remembered once, however often it asks.
    pub fn watch(&self, cx: &Context<'_>) {
        let mut waiting = self.0.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }

    /// What `look` gives once it gives something; asked now, and whenever the signal is raised.
    pub async fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match look() {
            Some(value) => Poll::Ready(value),
            None => {
                self.watch(cx);
                Poll::Pending
            }
        })
        .await
    }

    /// Ready once `holds`; asked now, and whenever the signal is raised.
    pub async fn until(&self, mut holds: impl FnMut() -> bool) {
        self.wait(|| holds().then_some(())).await;
    }
}

/// Lets every other task that is ready run once.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
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
