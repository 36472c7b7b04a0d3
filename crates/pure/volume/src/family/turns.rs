//! Work that belongs to nobody in particular, done in turns: whoever waits for a turn drives it, and it goes on
//! when they are dropped, because half a commit cannot be taken back, and may hold what others wait for.

use crate::waiters::Waiters;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use shard::Spawner;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Turns of one kind of work, one at a time.
pub(crate) struct Turns<E> {
    state: Rc<RefCell<State<E>>>,
    spawner: Spawner,
}

struct State<E> {
    begun: u64,
    /// The last turn that ended well.
    done: u64,
    /// The last turn that failed, and what with.
    failed: Option<(u64, E)>,
    running: Option<LocalBoxFuture<'static, Result<(), E>>>,
    /// True while the running turn is being polled, and not in its place.
    polled: bool,
    waiters: Waiters,
}

impl<E: Copy + 'static> Turns<E> {
    /// A turn that nobody waits for any more is carried to its end by a task of `spawner`'s.
    pub(crate) fn new(spawner: Spawner) -> Self {
        let (begun, done, failed, running, polled) = Default::default();
        let state = State { begun, done, failed, running, polled, waiters: Waiters::default() };
        Self { state: Rc::new(RefCell::new(state)), spawner }
    }

    /// A turn that began after this call has ended well.
    ///
    /// *Errors*: what such a turn failed with, when none has ended well since.
    pub(crate) async fn next(&self, start: impl Fn() -> LocalBoxFuture<'static, Result<(), E>>) -> Result<(), E> {
        let needed = self.state.borrow().begun + 1;
        let _waiter = Waiter::new(self);
        poll_fn(|cx| self.poll_until(needed, Some(&start), cx)).await
    }

    /// No turn is under way.
    pub(crate) async fn rest(&self) {
        let needed = self.state.borrow().begun;
        let _waiter = Waiter::new(self);
        // What it failed with is told to those who asked for it.
        let _: Result<(), E> = poll_fn(|cx| self.poll_until(needed, None, cx)).await;
    }

    /// The turn that is under way goes on no more, as when the process ends.
    pub(crate) fn abandon(&self) {
        let running = self.state.borrow_mut().running.take();
        drop(running);
    }

    fn poll_until(
        &self,
        needed: u64,
        start: Option<&dyn Fn() -> LocalBoxFuture<'static, Result<(), E>>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), E>> {
        loop {
            let mut running = {
                let mut state = self.state.borrow_mut();
                if state.done >= needed {
                    return Poll::Ready(Ok(()));
                }
                if let Some((turn, error)) = state.failed
                    && turn >= needed
                {
                    return Poll::Ready(Err(error));
                }
                if state.polled {
                    state.waiters.watch(cx);
                    return Poll::Pending;
                }
                state.polled = true;
                match (state.running.take(), start) {
                    (Some(running), _) => running,
                    (None, Some(start)) => {
                        state.begun += 1;
                        start()
                    }
                    (None, None) => {
                        // It was abandoned.
                        state.polled = false;
                        return Poll::Ready(Ok(()));
                    }
                }
            };
            // The state is not borrowed here: the work may look at it.
            let polled = running.poll_unpin(cx);
            let mut state = self.state.borrow_mut();
            state.polled = false;
            match polled {
                Poll::Pending => {
                    state.running = Some(running);
                    state.waiters.watch(cx);
                    return Poll::Pending;
                }
                Poll::Ready(result) => {
                    match result {
                        Ok(()) => state.done = state.begun,
                        Err(error) => state.failed = Some((state.begun, error)),
                    }
                    let waiting = state.waiters.take();
                    drop(state);
                    waiting.into_iter().for_each(Waker::wake);
                }
            }
        }
    }
}

impl<E> Clone for Turns<E> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), spawner: self.spawner.clone() }
    }
}

/// Somebody waits. Another waiter goes on when one leaves, done or dropped; after the last of them a task does.
struct Waiter<'a, E: Copy + 'static>(&'a Turns<E>);

impl<'a, E: Copy> Waiter<'a, E> {
    fn new(turns: &'a Turns<E>) -> Self {
        turns.state.borrow_mut().waiters.enter();
        Self(turns)
    }
}

impl<E: Copy + 'static> Drop for Waiter<'_, E> {
    fn drop(&mut self) {
        let (waiting, is_left) = {
            let mut state = self.0.state.borrow_mut();
            (state.waiters.leave(), state.waiters.is_empty() && state.running.is_some())
        };
        waiting.into_iter().for_each(Waker::wake);
        if is_left {
            let turns = self.0.clone();
            self.0.spawner.spawn(async move { turns.rest().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::Executor;
    use std::cell::Cell;

    /// Work that takes as many polls as it has `steps` permits for.
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
    fn turn_goes_on_when_who_began_it_leaves_and_serves_only_those_who_came_before_it() {
        let (permits, done, turns) = (Rc::default(), Rc::default(), Turns::new(Spawner::default()));
        let start = work(&permits, &done);
        let mut first = Box::pin(turns.next(&start));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(turns.next(&start));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        permits.set(1);
        assert!((&mut second).now_or_never().is_none(), "the turn that had begun does not cover it");
        assert_eq!(done.get(), 1);
        permits.set(1);
        assert_eq!((&mut second).now_or_never(), Some(Ok(())));
    }

    #[test]
    fn turn_that_nobody_waits_for_any_more_ends_by_itself() {
        let (executor, spawner) = (Rc::new(Executor::new(Box::new(|| {}))), Spawner::default());
        let starts = executor.clone();
        spawner.set(Rc::new(move |task| starts.spawn(task)));
        let (permits, done, turns) = (Rc::default(), Rc::default(), Turns::new(spawner));
        let start = work(&permits, &done);
        let mut first = Box::pin(turns.next(&start));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(turns.next(&start));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!(executor.task_count(), 0, "somebody waits yet");
        drop(second);
        assert_eq!(executor.task_count(), 1);
        permits.set(2);
        executor.run_ready();
        assert_eq!((executor.task_count(), done.get()), (0, 1), "the turn that had begun, and no other");
        let mut dropped = Box::pin(turns.next(&start));
        permits.set(0);
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        turns.abandon();
        executor.run_ready();
        assert_eq!((executor.task_count(), done.get()), (0, 1), "it was abandoned");
    }

    #[test]
    fn turn_that_failed_fails_those_who_waited_for_it_and_the_next_is_another() {
        let (permits, done, turns) = (Rc::new(Cell::new(1)), Rc::new(Cell::new(2)), Turns::new(Spawner::default()));
        let start = work(&permits, &done);
        let mut waits = Box::pin(turns.next(&start));
        assert_eq!(turns.next(&start).now_or_never(), Some(Err(9)));
        // Who came for the second turn needs that one.
        permits.set(9);
        assert_eq!((&mut waits).now_or_never(), Some(Ok(())));
        assert_eq!((turns.next(&start).now_or_never(), done.get()), (Some(Ok(())), 5));
    }
}
