//! Bounded set of futures of one type whose slots are reused: commands without allocation.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Runs up to a fixed number of futures inside of one task.
///
/// A future that is ready at once costs a poll and a move; a pending one keeps its slot until it is ready, and only
/// woken futures are polled again.
pub struct Slots<F: Future> {
    places: Vec<Slot<F>>,
    free: Vec<usize>,
    woken: Arc<Woken>,
}

struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    flag: Arc<Flag>,
    waker: Waker,
}

#[derive(Default)]
struct Woken(Mutex<WokenState>);

#[derive(Default)]
struct WokenState {
    places: Vec<usize>,
    task: Option<Waker>,
}

struct Flag {
    place: usize,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A slot is listed at most once, so the list is bounded by the number of slots.
        if !self.queued.swap(true, Ordering::AcqRel) {
            let task = {
                let mut state = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
                state.places.push(self.place);
                // Taken: the task registers again only after it has looked at every woken slot.
                state.task.take()
            };
            // Outside of the lock, which the woken task takes.
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}

impl<F: Future> Slots<F> {
    /// Returns an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), woken: Arc::default() }
    }

    /// Number of pending futures.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True when no future is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts `future` and returns its output if it is ready at once; otherwise [`Slots::poll_next`] returns it.
    pub fn start(&mut self, future: F) -> Poll<F::Output> {
        let at = self.free.pop().unwrap_or_else(|| self.grow());
        // Moved into memory that is pinned already: reusing a slot allocates nothing.
        self.places[at].future.as_mut().set(Some(future));
        let polled = self.poll_place(at);
        if polled.is_ready() {
            self.free.push(at);
        }
        polled
    }

    /// Returns the output of the next woken future; pending while none is ready, also when the set is empty.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        loop {
            let at = {
                let mut state = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
                match state.places.pop() {
                    Some(at) => at,
                    None => {
                        // Registered under the lock: every later wake finds the task.
                        if !state.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                            state.task = Some(cx.waker().clone());
                        }
                        return Poll::Pending;
                    }
                }
            };
            // Cleared before the poll: a wake during it queues the slot again.
            self.places[at].flag.queued.store(false, Ordering::Release);
            if let Poll::Ready(output) = self.poll_place(at) {
                self.free.push(at);
                return Poll::Ready(output);
            }
        }
    }

    fn grow(&mut self) -> usize {
        let place = self.places.len();
        let flag = Arc::new(Flag { place, queued: AtomicBool::new(false), woken: self.woken.clone() });
        // One waker for all futures that the slot will hold: starting a future allocates nothing.
        let waker = Waker::from(flag.clone());
        self.places.push(Slot { future: Box::pin(None), flag, waker });
        place
    }

    fn poll_place(&mut self, at: usize) -> Poll<F::Output> {
        let place = &mut self.places[at];
        // A late wake of a finished future finds its slot empty, or polls the successor once in vain.
        let Some(future) = place.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = future.poll(&mut Context::from_waker(&place.waker));
        if polled.is_ready() {
            place.future.as_mut().set(None);
        }
        polled
    }
}

impl<F: Future> Default for Slots<F> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox;
    use futures_util::FutureExt;
    use std::future::poll_fn;

    #[test]
    fn slots_give_what_is_ready_at_once_and_what_is_woken_later() {
        let (post, inbox) = mailbox::channel::<u32>();
        let inbox = &inbox;
        let wait = |now: bool| async move { if now { 1 } else { inbox.receive().await.expect("sent") } };
        let mut slots = Slots::new();
        assert_eq!(slots.start(wait(true)), Poll::Ready(1));
        assert!(slots.start(wait(false)).is_pending());
        assert_eq!(slots.len(), 1);
        assert_eq!(poll_fn(|cx| slots.poll_next(cx)).now_or_never(), None);
        post.send(9).expect("open");
        assert_eq!(poll_fn(|cx| slots.poll_next(cx)).now_or_never(), Some(9));
        assert!(slots.is_empty());
        assert_eq!(slots.places.len(), 1, "places are used again");
    }
}
