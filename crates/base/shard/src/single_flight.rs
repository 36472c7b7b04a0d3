//! Shared runs of work that several callers wait for, one run at a time: a commit, a checkpoint.
//!
//! The waiting callers drive the run. It continues when they are dropped, because half a commit cannot be taken back
//! and may hold locks: another caller drives it then, and after the last of them a task of its own.

use crate::Spawner;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// One run of the work.
type Run<E> = LocalBoxFuture<'static, Result<(), E>>;

/// Runs of one kind of work, one at a time.
pub struct SingleFlight<E> {
    state: Rc<RefCell<State<E>>>,
    spawner: Spawner,
}

struct State<E> {
    begun: u64,
    /// Number of the last successful run.
    done: u64,
    /// Number and error of the last failed run.
    failed: Option<(u64, E)>,
    running: Option<Run<E>>,
    /// True while the run is being polled, and therefore not in `running`.
    polled: bool,
    /// True when the run that is being polled is to be dropped afterwards.
    abandoned: bool,
    /// Number of waiting callers, and the tasks to be woken on a change.
    waiting: usize,
    wakers: Vec<Waker>,
}

impl<E: Copy + 'static> SingleFlight<E> {
    /// Returns an idle instance. A run without callers is completed by a task of `spawner`.
    #[must_use]
    pub fn new(spawner: Spawner) -> Self {
        let (begun, done, failed, running, polled, abandoned, waiting, wakers) = Default::default();
        let state = State { begun, done, failed, running, polled, abandoned, waiting, wakers };
        Self { state: Rc::new(RefCell::new(state)), spawner }
    }

    /// Waits for a run that starts after this call, and so covers all state before it.
    ///
    /// *Errors*: that of such a run, when none has succeeded since.
    pub async fn run_after_now(&self, start: impl Fn() -> Run<E>) -> Result<(), E> {
        // A run in progress may have started too early, so the next one is required.
        let needed = self.state.borrow().begun + 1;
        self.until(needed, Some(&start)).await
    }

    /// Waits for the current run, or starts one when there is none.
    ///
    /// *Errors*: that of the run.
    pub async fn join_or_start(&self, start: impl Fn() -> Run<E>) -> Result<(), E> {
        let needed = {
            let state = self.state.borrow();
            // The run in progress, or the next one if none is.
            state.begun + u64::from(state.running.is_none() && !state.polled)
        };
        self.until(needed, Some(&start)).await
    }

    /// Waits until no run is in progress. Errors are reported only to the callers that asked for the run.
    pub async fn until_idle(&self) {
        let needed = self.state.borrow().begun;
        let _: Result<(), E> = self.until(needed, None).await;
    }

    /// Drops the current run without completing it, as at the end of the process. Waiting callers start another one.
    pub fn abandon(&self) {
        let (running, wakers) = {
            let mut state = self.state.borrow_mut();
            // A run that is being polled is not in its place; `poll_until` drops it after the poll.
            state.abandoned |= state.polled;
            (state.running.take(), std::mem::take(&mut state.wakers))
        };
        // Outside of the borrow: destructors may look at the state.
        drop(running);
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn until(&self, needed: u64, start: Option<&dyn Fn() -> Run<E>>) -> Result<(), E> {
        let _waiter = Waiter::new(self);
        poll_fn(|cx| self.poll_until(needed, start, cx)).await
    }

    fn poll_until(&self, needed: u64, start: Option<&dyn Fn() -> Run<E>>, cx: &Context<'_>) -> Poll<Result<(), E>> {
        loop {
            let mut running = {
                let mut state = self.state.borrow_mut();
                // Success first: a later run that succeeded covers the state of one that failed.
                if state.done >= needed {
                    return Poll::Ready(Ok(()));
                }
                if let Some((run, error)) = state.failed
                    && run >= needed
                {
                    return Poll::Ready(Err(error));
                }
                // Another caller, or this one through the work itself, is inside the poll below.
                if state.polled {
                    state.watch(cx);
                    return Poll::Pending;
                }
                // Stands for the run while that is out of its place: `join_or_start` counts it as in progress.
                state.polled = true;
                match (state.running.take(), start) {
                    // Also a run that another caller started: the caller that is polled drives it.
                    (Some(running), _) => running,
                    (None, Some(start)) => {
                        state.begun += 1;
                        drop(state);
                        // Started outside of the borrow: the work may look at the state.
                        start()
                    }
                    (None, None) => {
                        // The run was abandoned, and this caller starts none.
                        state.polled = false;
                        return Poll::Ready(Ok(()));
                    }
                }
            };
            // The state is not borrowed here: the work may look at it.
            let polled = running.poll_unpin(&mut Context::from_waker(cx.waker()));
            let mut state = self.state.borrow_mut();
            state.polled = false;
            let abandoned = std::mem::take(&mut state.abandoned);
            match polled {
                Poll::Pending if abandoned => {
                    // Dropped outside of the borrow. The loop then starts another run, if this caller may.
                    drop(state);
                    drop(running);
                }
                Poll::Pending => {
                    state.running = Some(running);
                    state.watch(cx);
                    return Poll::Pending;
                }
                Poll::Ready(result) => {
                    // One run at a time, so `begun` is still the number of this one.
                    match result {
                        Ok(()) => state.done = state.begun,
                        Err(error) => state.failed = Some((state.begun, error)),
                    }
                    // Woken outside of the borrow: tasks may look at the state.
                    let wakers = std::mem::take(&mut state.wakers);
                    drop(state);
                    wakers.into_iter().for_each(Waker::wake);
                }
            }
        }
    }
}

impl<E> State<E> {
    /// Registers the task of `cx`, once however often it is called.
    fn watch(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }
}

impl<E> Clone for SingleFlight<E> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), spawner: self.spawner.clone() }
    }
}

/// Counts a waiting caller.
struct Waiter<'a, E: Copy + 'static>(&'a SingleFlight<E>);

impl<'a, E: Copy> Waiter<'a, E> {
    fn new(flight: &'a SingleFlight<E>) -> Self {
        flight.state.borrow_mut().waiting += 1;
        Self(flight)
    }
}

impl<E: Copy + 'static> Drop for Waiter<'_, E> {
    fn drop(&mut self) {
        let (wakers, is_left) = {
            let mut state = self.0.state.borrow_mut();
            state.waiting -= 1;
            // The dropped caller may have been the one that drove the run: the others are woken to take over.
            (std::mem::take(&mut state.wakers), state.waiting == 0 && state.running.is_some())
        };
        wakers.into_iter().for_each(Waker::wake);
        if is_left {
            // No caller is left: the run is finished in the background.
            let flight = self.0.clone();
            self.0.spawner.spawn(async move { flight.until_idle().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Executor;
    use std::cell::Cell;

    /// Work of one step that completes while `permits` is above zero; the third run fails.
    fn work(permits: &Rc<Cell<u32>>, done: &Rc<Cell<u32>>) -> impl Fn() -> LocalBoxFuture<'static, Result<(), u8>> {
        let (permits, done) = (permits.clone(), done.clone());
        move || {
            let (permits, done) = (permits.clone(), done.clone());
            async move {
                poll_fn(|_| if permits.get() == 0 { Poll::Pending } else { Poll::Ready(()) }).await;
                permits.set(permits.get() - 1);
                done.set(done.get() + 1);
                if done.get() == 3 { Err(9) } else { Ok(()) }
            }
            .boxed_local()
        }
    }

    #[test]
    fn run_goes_on_when_who_began_it_leaves_and_serves_only_those_who_came_before_it() {
        let (permits, done, flight) = (Rc::default(), Rc::default(), SingleFlight::new(Spawner::default()));
        let start = work(&permits, &done);
        let mut first = Box::pin(flight.run_after_now(&start));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(flight.run_after_now(&start));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        permits.set(1);
        assert!((&mut second).now_or_never().is_none(), "the run that had begun does not cover it");
        assert_eq!(done.get(), 1);
        permits.set(1);
        assert_eq!((&mut second).now_or_never(), Some(Ok(())));
    }

    #[test]
    fn run_that_nobody_waits_for_any_more_ends_by_itself() {
        let (executor, spawner) = (Rc::new(Executor::new(Box::new(|| {}))), Spawner::default());
        let starts = executor.clone();
        spawner.set(Rc::new(move |task| starts.spawn(task)));
        let (permits, done, flight) = (Rc::default(), Rc::default(), SingleFlight::new(spawner));
        let start = work(&permits, &done);
        let mut first = Box::pin(flight.run_after_now(&start));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(flight.run_after_now(&start));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!(executor.task_count(), 0, "somebody waits yet");
        drop(second);
        assert_eq!(executor.task_count(), 1);
        permits.set(2);
        executor.run_ready();
        assert_eq!((executor.task_count(), done.get()), (0, 1), "the run that had begun, and no other");
        let mut dropped = Box::pin(flight.run_after_now(&start));
        permits.set(0);
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        flight.abandon();
        executor.run_ready();
        assert_eq!((executor.task_count(), done.get()), (0, 1), "it was abandoned");
    }

    #[test]
    fn run_that_failed_fails_those_who_waited_for_it_and_the_next_is_another() {
        let (permits, done, flight) =
            (Rc::new(Cell::new(1)), Rc::new(Cell::new(2)), SingleFlight::new(Spawner::default()));
        let start = work(&permits, &done);
        let mut waits = Box::pin(flight.run_after_now(&start));
        assert_eq!(flight.run_after_now(&start).now_or_never(), Some(Err(9)));
        // The caller that came for the second run needs that one.
        permits.set(9);
        assert_eq!((&mut waits).now_or_never(), Some(Ok(())));
        assert_eq!((flight.run_after_now(&start).now_or_never(), done.get()), (Some(Ok(())), 5));
    }

    #[test]
    fn run_under_way_is_joined_and_another_begins_where_none_is() {
        let (permits, done, flight) = (Rc::default(), Rc::default(), SingleFlight::new(Spawner::default()));
        let start = work(&permits, &done);
        let mut first = Box::pin(flight.run_after_now(&start));
        assert!((&mut first).now_or_never().is_none());
        let mut joins = Box::pin(flight.join_or_start(&start));
        assert!((&mut joins).now_or_never().is_none());
        permits.set(1);
        assert_eq!(((&mut joins).now_or_never(), done.get()), (Some(Ok(())), 1), "the run that had begun before it");
        permits.set(1);
        assert_eq!((flight.join_or_start(&start).now_or_never(), done.get()), (Some(Ok(())), 2));
    }

    #[test]
    fn run_that_is_abandoned_is_dropped_and_who_waits_begins_another() {
        let (executor, begun) = (Executor::new(Box::new(|| {})), Rc::new(Cell::new(0)));
        let flight = SingleFlight::<u8>::new(Spawner::default());
        let (waits, within, counts) = (flight.clone(), flight.clone(), begun.clone());
        executor.spawn(async move {
            let start = || {
                let (within, counts) = (within.clone(), counts.clone());
                async move {
                    counts.set(counts.get() + 1);
                    match counts.get() {
                        1 => std::future::pending().await,
                        2 => {
                            within.abandon();
                            std::future::pending().await
                        }
                        _ => Ok(()),
                    }
                }
                .boxed_local()
            };
            assert_eq!(waits.join_or_start(start).await, Ok(()));
        });
        executor.run_ready();
        assert_eq!(begun.get(), 1);
        flight.abandon();
        executor.run_ready();
        assert_eq!((begun.get(), executor.task_count()), (3, 0), "abandoned from outside, and from within");
    }
}
