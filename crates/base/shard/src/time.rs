//! Monotonic time, and the timers of one shard.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Instant on the world's monotonic clock, in nanoseconds since the world started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Duration from `earlier` to this instant; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// As [`Self::since`], in whole microseconds.
    #[inline]
    #[must_use]
    pub const fn since_us(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        // Saturates after 584 years: a deadline that never comes, instead of one in the past.
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Timers of one shard. A world's reactor sleeps until [`Timers::next`] and calls [`Timers::fire`].
#[derive(Clone, Debug, Default)]
pub struct Timers(Rc<RefCell<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<(Time, u64), Waker>,
    next_id: u64,
    now: Time,
}

impl Timers {
    /// Waits until the clock has reached `at`.
    #[must_use]
    pub fn sleep_until(&self, at: Time) -> Sleep {
        Sleep { timers: self.clone(), at, id: None }
    }

    /// Due time of the next timer.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.0.borrow().waiting.keys().next().map(|&(at, _)| at)
    }

    /// Wakes every task whose timer is due at `now`.
    pub fn fire(&self, now: Time) {
        loop {
            // One at a time, without the borrow: a woken task may drop or set other timers.
            let due = {
                let mut queue = self.0.borrow_mut();
                // Monotonic: an earlier time does not move it back.
                // Stored before timers fire: a task that is woken may set one that is due already.
                queue.now = queue.now.max(now);
                match queue.waiting.first_entry() {
                    Some(first) if first.key().0 <= now => Some(first.remove()),
                    _ => None,
                }
            };
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }
}

/// Future of [`Timers::sleep_until`]. Dropping it cancels the timer.
#[derive(Debug)]
pub struct Sleep {
    timers: Timers,
    at: Time,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timers = self.timers.clone();
        let mut queue = timers.0.borrow_mut();
        // Against the time of the last `fire`, so a timer costs no clock call.
        if queue.now >= self.at {
            // Removed, so that `next` does not report a timer that has no task.
            if let Some(id) = self.id.take() {
                queue.waiting.remove(&(self.at, id));
            }
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            queue.next_id += 1;
            queue.next_id
        });
        // The number distinguishes timers of the same time.
        // Under the same key at each poll: a timer has one entry, with the waker of the last poll.
        queue.waiting.insert((self.at, id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // Its entry would end a sleep of the reactor for no task.
        if let Some(id) = self.id {
            self.timers.0.borrow_mut().waiting.remove(&(self.at, id));
        }
    }
}
