//! Event queue between the shards and the control plane.
//!
//! Every shard raises events; the control plane fetches them with [`Events::next`]. No command of a host touches the
//! queue.

use model::{Raised, Subject, SubjectKind, event};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Events of all shards that were not fetched yet. A clone refers to the same queue.
#[derive(Clone)]
pub struct Events(Arc<Mutex<Queue>>);

struct Queue {
    waiting: VecDeque<Raised>,
    waiting_max: usize,
    /// Events dropped because the queue was full.
    lost: u64,
    /// Wakers of the tasks that wait for an event.
    asking: Vec<Waker>,
}

impl Events {
    /// Creates a queue of at most `waiting_max` events. When it is full the oldest are dropped, and their number is an
    /// event.
    pub fn new(waiting_max: usize) -> Self {
        assert!(waiting_max > 0, "an event can wait until somebody asks");
        Self(Arc::new(Mutex::new(Queue { waiting: VecDeque::new(), waiting_max, lost: 0, asking: Vec::new() })))
    }

    /// Queues an event and wakes the waiting tasks.
    pub fn raise(&self, raised: Raised) {
        let mut queue = self.queue();
        // The newest events are kept: they describe the present state.
        if queue.waiting.len() == queue.waiting_max {
            queue.waiting.pop_front();
            queue.lost += 1;
        }
        queue.waiting.push_back(raised);
        assert!(queue.waiting.len() <= queue.waiting_max, "no more events wait than the bound allows");
        let asking = std::mem::take(&mut queue.asking);
        // The lock is released before wakers run, which may fetch from the queue at once.
        drop(queue);
        asking.into_iter().for_each(Waker::wake);
    }

    /// Waits for events and returns all that were raised since the last call.
    pub async fn next(&self) -> Vec<Raised> {
        poll_fn(|cx| {
            let mut queue = self.queue();
            if queue.waiting.is_empty() {
                // A task that polls again replaces its waker, so the list does not grow.
                queue.asking.retain(|waker| !waker.will_wake(cx.waker()));
                queue.asking.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(queue.take())
        })
        .await
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A thread that panicked leaves the queue valid: no change of it stops half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn take(&mut self) -> Vec<Raised> {
        let lost = std::mem::take(&mut self.lost);
        // The count of lost events comes first, with the time of the oldest event that is left, so that times stay
        // ascending.
        let notice = self.waiting.front().filter(|_| lost > 0).map(|oldest| {
            let node = Subject::new(SubjectKind::Node, &"this node");
            let sentence = format!("{lost} events before this one were not recorded");
            Raised::new(oldest.time, event::EVENTS_LOST, node, sentence)
        });
        notice.into_iter().chain(self.waiting.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use model::Timestamp;

    fn raised(second: u64) -> Raised {
        let pool = Subject::new(SubjectKind::Pool, &"tank");
        Raised::new(Timestamp::from_unix(second), event::POOL_DEGRADED, pool, "so it is")
    }

    #[test]
    fn events_are_told_once_in_order() {
        let events = Events::new(8);
        assert_eq!(events.next().now_or_never(), None);
        events.raise(raised(1));
        events.raise(raised(2));
        assert_eq!(events.next().now_or_never(), Some(vec![raised(1), raised(2)]));
        assert_eq!(events.next().now_or_never(), None);
    }

    #[test]
    fn events_that_nobody_asks_for_make_room_and_say_so() {
        let events = Events::new(2);
        (1..=5).for_each(|second| events.raise(raised(second)));
        let told = events.next().now_or_never().expect("there are some");
        assert_eq!(told.len(), 3);
        assert_eq!(
            (told[0].code, told[0].sentence.as_str()),
            (event::EVENTS_LOST, "3 events before this one were not recorded")
        );
        assert_eq!(told[1..], [raised(4), raised(5)]);
    }

    #[test]
    fn events_wake_whoever_asks() {
        let events = Events::new(2);
        let executor = shard::Executor::new(Box::new(|| {}));
        let (asked, told) = (events.clone(), std::rc::Rc::new(std::cell::Cell::new(0)));
        let tell = told.clone();
        executor.spawn(async move { tell.set(asked.next().await.len()) });
        executor.run_ready();
        events.raise(raised(1));
        executor.run_ready();
        assert_eq!(told.get(), 1);
    }
}
