//! Work that belongs to nobody in particular, done in turns: whoever waits for a turn drives it, and it goes on
//! when some of them are dropped, because half a commit cannot be taken back.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Turns of one kind of work, one at a time.
pub(crate) struct Turns<E> {
    state: RefCell<State<E>>,
}

struct State<E> {
    begun: u64,
    ended: u64,
    running: Option<LocalBoxFuture<'static, Result<(), E>>>,
    /// True while the running turn is being polled, and not in its place.
    polled: bool,
    failed: Option<E>,
    waiting: Vec<Waker>,
}

impl<E: Copy> Turns<E> {
    pub(crate) fn new() -> Self {
        let state = State { begun: 0, ended: 0, running: None, polled: false, failed: None, waiting: Vec::new() };
        Self { state: RefCell::new(state) }
    }

    /// A turn that began after this call has ended well.
    ///
    /// *Errors*: what a turn failed with, now or ever: nothing is tried again.
    pub(crate) async fn next(&self, start: impl Fn() -> LocalBoxFuture<'static, Result<(), E>>) -> Result<(), E> {
        let needed = self.state.borrow().begun + 1;
        let _next = WakeOthers(self);
        poll_fn(|cx| self.poll_until(needed, Some(&start), cx)).await
    }

    /// No turn is under way.
    pub(crate) async fn rest(&self) {
        let needed = self.state.borrow().begun;
        let _next = WakeOthers(self);
        // What it failed with is told to those who asked for it.
        let _: Result<(), E> = poll_fn(|cx| self.poll_until(needed, None, cx)).await;
    }

    /// The turn that is under way goes on no more, as when the process ends.
    pub(crate) fn abandon(&self) {
        let running = self.state.borrow_mut().running.take();
        drop(running);
    }

    /// What a turn failed with.
    pub(crate) fn failure(&self) -> Option<E> {
        self.state.borrow().failed
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
                if let Some(error) = state.failed {
                    return Poll::Ready(Err(error));
                }
                if state.ended >= needed {
                    return Poll::Ready(Ok(()));
                }
                if state.polled {
                    state.wait(cx);
                    return Poll::Pending;
                }
                state.polled = true;
                match (state.running.take(), start) {
                    (Some(running), _) => running,
                    (None, Some(start)) => {
                        state.begun += 1;
                        start()
                    }
                    (None, None) => unreachable!("a turn that has begun and not ended is running"),
                }
            };
            // The state is not borrowed here: the work may look at it.
            let polled = running.poll_unpin(cx);
            let mut state = self.state.borrow_mut();
            state.polled = false;
            match polled {
                Poll::Pending => {
                    state.running = Some(running);
                    state.wait(cx);
                    return Poll::Pending;
                }
                Poll::Ready(result) => {
                    state.ended = state.begun;
                    state.failed = result.err();
                    let waiting = std::mem::take(&mut state.waiting);
                    drop(state);
                    waiting.into_iter().for_each(Waker::wake);
                }
            }
        }
    }
}

impl<E> State<E> {
    fn wait(&mut self, cx: &Context<'_>) {
        if !self.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
    }
}

/// Lets another waiter go on when one leaves, done or dropped.
struct WakeOthers<'a, E>(&'a Turns<E>);

impl<E> Drop for WakeOthers<'_, E> {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut self.0.state.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::cell::Cell;
    use std::rc::Rc;

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
        let (permits, done, turns) = (Rc::default(), Rc::default(), Turns::new());
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
    fn turn_that_failed_is_never_tried_again() {
        let (permits, done, turns) = (Rc::new(Cell::new(9)), Rc::new(Cell::new(2)), Turns::new());
        let start = work(&permits, &done);
        assert_eq!(turns.next(&start).now_or_never(), Some(Err(9)));
        assert_eq!(turns.next(&start).now_or_never(), Some(Err(9)));
        assert_eq!(done.get(), 3);
    }
}
