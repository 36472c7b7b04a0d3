//! Work that has to end even when the command that began it is dropped.
//!
//! Some changes cannot be left half done: a stripe half written is wrong parity. Their future moves here when the command that polls it
//! is dropped, and is driven by whichever command of the same owner waits next; so no task and no spawner is needed. What the work
//! holds (locks, pins) travels with it. For one run that several wait for, see [`SingleFlight`](crate::SingleFlight).
//!
//! A waker may be called from any thread, so those who wait are behind a lock; on one shard it is never contended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Work of one owner that has no command of its own any more.
pub struct Detached {
    work: RefCell<Vec<Work>>,
    /// How much there is, also while `work` is taken out to be polled.
    count: Cell<usize>,
    polling: Cell<bool>,
    next_id: Cell<u64>,
    hub: Arc<Hub>,
    /// Wakes the hub.
    waker: Waker,
}

/// Wakes every command that waits: any of them drives all of the work.
#[derive(Default)]
struct Hub {
    waiting: Mutex<BTreeMap<u64, Waiter>>,
}

/// Who waits. A command drives the work; a part of the work itself only hears of what has ended: were it woken
/// whenever the work can go on, it would wake the work, and so for ever.
struct Waiter {
    waker: Waker,
    drives: bool,
}

impl Wake for Hub {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_those(|waiter| waiter.drives);
    }
}

impl Hub {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_those(&self, which: impl Fn(&Waiter) -> bool) {
        let wakers = |waiting: &BTreeMap<u64, Waiter>| -> Vec<Waker> {
            waiting.values().filter(|waiter| which(waiter)).map(|waiter| waiter.waker.clone()).collect()
        };
        // Outside of the lock: who is woken may look for it.
        let wakers = wakers(&self.waiting());
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A command that waits; forgotten when it does not any more.
struct Waiting<'a> {
    hub: &'a Hub,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.hub.waiting().remove(&self.id);
    }
}

impl Default for Detached {
    fn default() -> Self {
        let hub = Arc::<Hub>::default();
        let waker = Waker::from(hub.clone());
        let (work, count, polling, next_id) = Default::default();
        Self { work, count, polling, next_id, hub, waker }
    }
}

impl Detached {
    /// Carries `work` to its end; begins at once, and goes on whenever a command waits.
    pub fn start(&self, work: impl Future<Output = ()> + 'static) {
        self.count.set(self.count.get() + 1);
        self.work.borrow_mut().push(Box::pin(work));
        self.turn();
    }

    /// `work` with the promise that it ends, dropped or not.
    pub fn finish<T: 'static>(self: &Rc<Self>, work: impl Future<Output = T> + 'static) -> Finish<T> {
        Finish { work: Some(Box::pin(work)), detached: self.clone() }
    }

    /// Is ready once `ready` says so; drives the work meanwhile, for it may be what is waited for.
    pub async fn until<T>(&self, mut ready: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let mut waiting = None;
        poll_fn(|cx| {
            if self.count.get() > 0 {
                // Before the turn: what wakes during it must not be missed.
                self.remember(&mut waiting, cx);
                self.turn();
            }
            let polled = ready(cx);
            if polled.is_pending() {
                // Work may yet come that has to be driven for this to become ready.
                self.remember(&mut waiting, cx);
            }
            polled
        })
        .await
    }

    /// Drops all work; its owner is going away.
    pub fn abandon(&self) {
        let work = std::mem::take(&mut *self.work.borrow_mut());
        drop(work);
    }

    fn remember<'a>(&'a self, waiting: &mut Option<Waiting<'a>>, cx: &Context<'_>) {
        if cx.waker().will_wake(&self.waker) {
            // Work that waits itself is polled whenever a command that waits is woken.
            return;
        }
        let drives = !self.polling.get();
        let waiting = waiting.get_or_insert_with(|| {
            self.next_id.set(self.next_id.get() + 1);
            Waiting { hub: &self.hub, id: self.next_id.get() }
        });
        self.hub.waiting().insert(waiting.id, Waiter { waker: cx.waker().clone(), drives });
    }

    /// Polls everything once, also what begins meanwhile.
    fn turn(&self) {
        if self.polling.replace(true) {
            return;
        }
        let mut cx = Context::from_waker(&self.waker);
        let (mut pending, mut ended) = (Vec::new(), false);
        loop {
            let fresh = std::mem::take(&mut *self.work.borrow_mut());
            if fresh.is_empty() {
                break;
            }
            for mut work in fresh {
                match work.as_mut().poll(&mut cx) {
                    Poll::Pending => pending.push(work),
                    Poll::Ready(()) => {
                        ended = true;
                        self.count.set(self.count.get() - 1);
                    }
                }
            }
        }
        self.work.borrow_mut().extend(pending);
        self.polling.set(false);
        if ended {
            // What ended may be what others wait for.
            self.hub.wake_those(|_| true);
        }
    }
}

/// See [`Detached::finish`].
pub struct Finish<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T>>>>,
    detached: Rc<Detached>,
}

impl<T> Future for Finish<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let polled = self.work.as_mut().expect("a future is not polled after it was ready").as_mut().poll(cx);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.detached.start(async move { drop(work.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Work that is done once the gate is open, and a waker to be called then.
    #[derive(Clone, Default)]
    struct Gate(Rc<(Cell<bool>, RefCell<Option<Waker>>)>);

    impl Gate {
        async fn pass(self) {
            poll_fn(|cx| {
                *self.0.1.borrow_mut() = Some(cx.waker().clone());
                if self.0.0.get() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }

        fn open(&self) {
            self.0.0.set(true);
            self.0.1.borrow_mut().take().expect("the work was polled").wake();
        }
    }

    #[derive(Default)]
    struct Count(Mutex<u32>);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            *self.0.lock().expect("no panic") += 1;
        }
    }

    #[test]
    fn work_of_a_dropped_command_ends_when_another_drives_it() {
        let detached = Rc::new(Detached::default());
        let (gate, done) = (Gate::default(), Rc::new(Cell::new(false)));
        let (inner, tell) = (gate.clone(), done.clone());
        let mut command = detached.finish(async move {
            inner.pass().await;
            tell.set(true);
        });
        assert!((&mut command).now_or_never().is_none());
        drop(command);
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        let wait = || detached.until(|_| if done.get() { Poll::Ready(()) } else { Poll::Pending });
        let mut waits = [Box::pin(wait()), Box::pin(wait())];
        for (wait, count) in waits.iter_mut().zip(&counts) {
            let waker = Waker::from(count.clone());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        gate.open();
        assert!(counts.iter().all(|count| *count.0.lock().expect("no panic") == 1), "all who wait are woken");
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_some()));
        assert_eq!(detached.count.get(), 0);
        drop(waits);
        assert!(detached.hub.waiting().is_empty(), "nobody waits any more");
    }

    #[test]
    fn work_dropped_while_others_wait_already_is_driven_by_them() {
        let detached = Rc::new(Detached::default());
        let (gate, done) = (Gate::default(), Rc::new(Cell::new(false)));
        let (inner, tell) = (gate.clone(), done.clone());
        let mut command = detached.finish(async move {
            inner.pass().await;
            tell.set(true);
        });
        assert!((&mut command).now_or_never().is_none());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut wait = Box::pin(detached.until(|_| if done.get() { Poll::Ready(()) } else { Poll::Pending }));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(command);
        gate.open();
        assert_eq!(*count.0.lock().expect("no panic"), 1);
        assert!(wait.now_or_never().is_some());
    }

    #[test]
    fn work_that_waits_for_other_work_is_woken_by_its_end() {
        let detached = Rc::new(Detached::default());
        let (gate, first, second) = (Gate::default(), Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (own, done, again) = (detached.clone(), second.clone(), first.clone());
        detached.start(async move {
            own.until(|_| if again.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            done.set(true);
        });
        let (inner, tell) = (gate.clone(), first.clone());
        detached.start(async move {
            inner.pass().await;
            tell.set(true);
        });
        let wait = || detached.until(|_| if second.get() { Poll::Ready(()) } else { Poll::Pending });
        let executor = crate::Executor::new(Box::new(|| {}));
        let ended = Rc::new(Cell::new(false));
        let tell = ended.clone();
        assert!(wait().now_or_never().is_none());
        let (own, done) = (detached.clone(), second.clone());
        executor.spawn(async move {
            own.until(|_| if done.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            tell.set(true);
        });
        executor.run_ready();
        gate.open();
        (0..4).for_each(|_| executor.run_ready());
        assert!(ended.get());
    }

    #[test]
    fn work_of_many_parts_that_wait_is_quiet() {
        let detached = Rc::new(Detached::default());
        let (gate, open) = (Gate::default(), Rc::new(Cell::new(false)));
        let (inner, tell) = (gate.clone(), open.clone());
        detached.start(async move {
            inner.pass().await;
            tell.set(true);
        });
        let (own, ready, done) = (detached.clone(), open.clone(), Rc::new(Cell::new(false)));
        let tell = done.clone();
        detached.start(async move {
            // So many that they are polled one by one, each with a waker of its own.
            let part = || own.until(|_| if ready.get() { Poll::Ready(()) } else { Poll::Pending });
            futures_util::future::join_all((0..64).map(|_| part())).await;
            tell.set(true);
        });
        let executor = crate::Executor::new(Box::new(|| {}));
        let (own, ready) = (detached.clone(), done.clone());
        executor.spawn(async move { own.until(|_| if ready.get() { Poll::Ready(()) } else { Poll::Pending }).await });
        (0..100).for_each(|_| executor.run_ready());
        assert!(!executor.is_ready(), "nobody has anything to do until the gate opens");
        gate.open();
        (0..100).for_each(|_| executor.run_ready());
        assert!(done.get());
    }

    #[test]
    fn work_that_wakes_itself_at_once_wakes_who_has_just_come() {
        let detached = Rc::new(Detached::default());
        let (turns, done) = (Cell::new(0), Rc::new(Cell::new(false)));
        let tell = done.clone();
        detached.start(async move {
            poll_fn(|cx| {
                turns.set(turns.get() + 1);
                cx.waker().wake_by_ref();
                if turns.get() < 5 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            tell.set(true);
        });
        let executor = crate::Executor::new(Box::new(|| {}));
        let own = detached.clone();
        executor.spawn(async move { own.until(|_| if done.get() { Poll::Ready(()) } else { Poll::Pending }).await });
        (0..8).for_each(|_| executor.run_ready());
        assert_eq!(executor.task_count(), 0);
    }

    #[test]
    fn work_that_is_abandoned_is_dropped() {
        let detached = Rc::new(Detached::default());
        let held = Rc::new(());
        let own = held.clone();
        detached.start(async move {
            let _own = own;
            std::future::pending::<()>().await;
        });
        assert_eq!(Rc::strong_count(&held), 2);
        detached.abandon();
        assert_eq!(Rc::strong_count(&held), 1);
    }
}
