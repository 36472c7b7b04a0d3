//! Work that must run to its end even when the command that started it is dropped.
//!
//! Some changes cannot be left half done: a stripe half written has wrong parity. When the command that polls such work
//! is dropped, its future moves here and is driven by the next command of the same owner that waits. So no task and no
//! spawner are needed. Locks and pins that the work holds move with it. For one run that several callers wait for, see
//! [`SingleFlight`](crate::SingleFlight).
//!
//! A waker may be called from any thread, so the list of waiters is behind a lock; on one shard it is never contended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Work of one owner whose commands have been dropped.
pub struct Detached {
    work: RefCell<Vec<Work>>,
    /// Number of unfinished items, also while `work` is taken out to be polled.
    count: Cell<usize>,
    polling: Cell<bool>,
    /// True when the turn that is running is to drop the work that it has taken out.
    abandoned: Cell<bool>,
    next_id: Cell<u64>,
    hub: Arc<Hub>,
    /// Waker of the hub; work is polled with it.
    waker: Waker,
}

/// Wakes every waiting command: each of them drives all of the work.
#[derive(Default)]
struct Hub {
    waiting: Mutex<BTreeMap<u64, Waiter>>,
}

/// Waiting command, or part of the work itself.
///
/// A command drives the work. A part of the work is only woken when an item has finished: if it were woken whenever
/// work can continue, it would wake the work again, forever.
struct Waiter {
    waker: Waker,
    drives: bool,
}

impl Wake for Hub {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_matching(|waiter| waiter.drives);
    }
}

impl Hub {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Waiter>> {
        // Each change of the map is one call, so a panic elsewhere leaves it valid.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_matching(&self, which: impl Fn(&Waiter) -> bool) {
        let wakers = |waiting: &BTreeMap<u64, Waiter>| -> Vec<Waker> {
            waiting.values().filter(|waiter| which(waiter)).map(|waiter| waiter.waker.clone()).collect()
        };
        // Wakes outside of the lock: a waker may run code that takes it.
        let wakers = wakers(&self.waiting());
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Registration of a waiting command; removed on drop.
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
        let (work, count, polling, abandoned, next_id) = Default::default();
        Self { work, count, polling, abandoned, next_id, hub, waker }
    }
}

impl Detached {
    /// Runs `work` to its end. Polls it once immediately, and then whenever a command waits.
    pub fn start(&self, work: impl Future<Output = ()> + 'static) {
        // Counted first: the work may end during its first poll.
        self.count.set(self.count.get() + 1);
        // In the list even while a turn is running: its loop takes new work before it ends.
        self.work.borrow_mut().push(Box::pin(work));
        // Polled immediately: work that is ready needs no waiter.
        self.poll_all();
    }

    /// Wraps `work` in a future that guarantees its completion: when dropped, the work moves here.
    pub fn finish<T: 'static>(self: &Rc<Self>, work: impl Future<Output = T> + 'static) -> Finish<T> {
        Finish { work: Some(Box::pin(work)), detached: self.clone() }
    }

    /// Waits until `ready` is ready. Drives the work meanwhile, as it may be what is waited for.
    pub async fn until<T>(&self, mut ready: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let mut waiting = None;
        poll_fn(|cx| {
            if self.count.get() > 0 {
                // Registered before the turn: a wake during it must not be missed.
                self.register(&mut waiting, cx);
                self.poll_all();
            }
            let polled = ready(cx);
            if polled.is_pending() {
                // Work that arrives later may have to be driven for this condition to become ready.
                self.register(&mut waiting, cx);
            }
            polled
        })
        .await
    }

    /// Drops all work, when its owner is dropped.
    pub fn abandon(&self) {
        // When the work itself calls this, the turn has taken work out of the list, and would put it back at its end.
        self.abandoned.set(self.polling.get());
        let work = std::mem::take(&mut *self.work.borrow_mut());
        self.drop_work(work);
    }

    /// Drops `work`, and the work that its destructors start: a dropped [`Finish`] moves its work here.
    fn drop_work(&self, mut work: Vec<Work>) {
        while !work.is_empty() {
            self.count.set(self.count.get() - work.len());
            // Dropped outside of the borrow: destructors may start more work.
            drop(work);
            work = std::mem::take(&mut *self.work.borrow_mut());
        }
    }

    fn register<'a>(&'a self, waiting: &mut Option<Waiting<'a>>, cx: &Context<'_>) {
        if cx.waker().will_wake(&self.waker) {
            // Work that waits itself: it is polled whenever a waiting command is woken.
            return;
        }
        // A waiter that registers while the work is being polled belongs to the work, and does not drive it.
        let drives = !self.polling.get();
        let waiting = waiting.get_or_insert_with(|| {
            self.next_id.set(self.next_id.get() + 1);
            Waiting { hub: &self.hub, id: self.next_id.get() }
        });
        // Replaces the waker of an earlier poll, which may be outdated.
        self.hub.waiting().insert(waiting.id, Waiter { waker: cx.waker().clone(), drives });
    }

    /// Polls all work once, including work that is added meanwhile.
    fn poll_all(&self) {
        // Re-entered from work that waits through `until`: the outer turn polls everything.
        if self.polling.replace(true) {
            return;
        }
        // One waker for all items: it wakes the commands that drive them, whichever those are by then.
        let mut cx = Context::from_waker(&self.waker);
        let (mut pending, mut ended) = (Vec::new(), false);
        loop {
            // Taken out, so that no borrow is held during a poll: the polled work may start more work.
            let fresh = std::mem::take(&mut *self.work.borrow_mut());
            if fresh.is_empty() {
                break;
            }
            for mut work in fresh {
                // Its owner is gone, and the rest of the turn is dropped below without another poll.
                if self.abandoned.get() {
                    pending.push(work);
                    continue;
                }
                match work.as_mut().poll(&mut cx) {
                    Poll::Pending => pending.push(work),
                    Poll::Ready(()) => {
                        ended = true;
                        self.count.set(self.count.get() - 1);
                    }
                }
            }
        }
        // The part of `abandon` that only this turn can do, because the work is in its hands.
        if self.abandoned.take() {
            self.drop_work(std::mem::take(&mut pending));
        }
        // Only after the loop: pending work that went back earlier would be polled again without end.
        self.work.borrow_mut().extend(pending);
        self.polling.set(false);
        if ended {
            // An item that finished may be the condition that others wait for.
            self.hub.wake_matching(|_| true);
        }
    }
}

/// Future of [`Detached::finish`].
pub struct Finish<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T>>>>,
    detached: Rc<Detached>,
}

impl<T> Future for Finish<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let polled = self.work.as_mut().expect("a future is not polled after it was ready").as_mut().poll(cx);
        if polled.is_ready() {
            // Removed before the drop of this future, which would start it again otherwise.
            self.work = None;
        }
        polled
    }
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            // The output has no receiver anymore; only the completion matters.
            self.detached.start(async move { drop(work.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Work that finishes once the gate is open, with the waker to be called then.
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
            // So many parts that each is polled on its own, with a waker of its own.
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
        assert_eq!((Rc::strong_count(&held), detached.count.get()), (1, 0));
    }

    /// Work that holds `held` and never ends.
    async fn hold(held: Rc<()>) {
        std::future::pending::<()>().await;
        drop(held);
    }

    #[test]
    fn work_that_abandons_itself_and_the_rest_is_dropped_with_its_turn() {
        let detached = Rc::new(Detached::default());
        let held = Rc::new(());
        detached.start(hold(held.clone()));
        let (own, held_too) = (detached.clone(), held.clone());
        detached.start(async move {
            own.abandon();
            hold(held_too).await;
        });
        assert_eq!((Rc::strong_count(&held), detached.count.get()), (1, 0));
        detached.start(async {});
        assert_eq!(detached.count.get(), 0, "work that comes later runs as before");
    }

    #[test]
    fn work_that_abandoned_work_starts_as_it_is_dropped_is_dropped() {
        let detached = Rc::new(Detached::default());
        let held = Rc::new(());
        let (own, inner) = (detached.clone(), hold(held.clone()));
        detached.start(async move { own.finish(inner).await });
        detached.abandon();
        assert_eq!((Rc::strong_count(&held), detached.count.get()), (1, 0));
    }
}
