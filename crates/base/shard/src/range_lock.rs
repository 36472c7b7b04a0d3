//! Range locks (stripes, blocks): shared or exclusive, fair in order of arrival.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Range locks of one device, local to a shard.
///
/// A request waits for every earlier one that overlaps it unless both are shared, so that no request starves.
#[derive(Clone, Debug, Default)]
pub struct RangeLocks(Rc<RefCell<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// In order of arrival. Short (bounded by the command slots), so a scan is cheapest.
    requests: Vec<Request>,
    next_id: u64,
}

#[derive(Debug)]
struct Request {
    id: u64,
    range: Range<u64>,
    exclusive: bool,
    /// True for a request that blocks no other one.
    passive: bool,
    waker: Option<Waker>,
}

impl RangeLocks {
    /// Returns a set without locks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks `range` in shared mode: excludes exclusive holders.
    #[must_use]
    pub fn shared(&self, range: Range<u64>) -> Acquire {
        self.acquire(range, false, false)
    }

    /// Locks `range` in exclusive mode: excludes all other holders.
    #[must_use]
    pub fn exclusive(&self, range: Range<u64>) -> Acquire {
        self.acquire(range, true, false)
    }

    /// Waits until every earlier request that overlaps `range` has ended, as a barrier. Blocks no other request.
    #[must_use]
    pub fn barrier(&self, range: Range<u64>) -> Acquire {
        // Exclusive, so that it waits for shared requests, too.
        self.acquire(range, true, true)
    }

    fn acquire(&self, range: Range<u64>, exclusive: bool, passive: bool) -> Acquire {
        Acquire { locks: self.clone(), range, exclusive, passive, id: None }
    }

    /// True when a request, held or waiting, overlaps `range`.
    #[must_use]
    pub fn is_busy(&self, range: &Range<u64>) -> bool {
        self.0.borrow().requests.iter().any(|request| overlap(&request.range, range))
    }

    fn release(&self, id: u64) {
        let woken: Vec<Waker> = {
            let mut table = self.0.borrow_mut();
            let Some(at) = table.requests.iter().position(|request| request.id == id) else { return };
            let range = table.requests.remove(at).range;
            // Only later requests can have waited for this one.
            // Requests that stay blocked by another one register their wakers again when they are polled.
            table.requests[at..]
                .iter_mut()
                .filter(|request| overlap(&request.range, &range))
                .filter_map(|request| request.waker.take())
                .collect()
        };
        // Outside of the borrow: a woken task may poll its request.
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Table {
    fn is_blocked(&self, id: u64) -> bool {
        let Some(at) = self.requests.iter().position(|request| request.id == id) else { return false };
        let (earlier, own) = (&self.requests[..at], &self.requests[at]);
        // Passive requests wait for others, but others do not wait for them.
        let is_before = |other: &&Request| overlap(&other.range, &own.range) && !other.passive;
        earlier.iter().filter(is_before).any(|other| other.exclusive || own.exclusive)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Future of [`RangeLocks::shared`], [`RangeLocks::exclusive`] and [`RangeLocks::barrier`]. Dropping it gives up its
/// place in the queue.
#[derive(Debug)]
pub struct Acquire {
    locks: RangeLocks,
    range: Range<u64>,
    exclusive: bool,
    passive: bool,
    id: Option<u64>,
}

impl Future for Acquire {
    type Output = RangeGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<RangeGuard> {
        let locks = self.locks.clone();
        let mut table = locks.0.borrow_mut();
        let id = *self.id.get_or_insert_with(|| {
            table.next_id += 1;
            table.next_id
        });
        // Queued at the first poll, not at creation: an unpolled future must not block others.
        // The queue is in order of arrival, so a request keeps its place over all polls.
        if !table.requests.iter().any(|request| request.id == id) {
            let (range, exclusive, passive) = (self.range.clone(), self.exclusive, self.passive);
            table.requests.push(Request { id, range, exclusive, passive, waker: None });
        }
        if table.is_blocked(id) {
            let own = table.requests.iter_mut().find(|request| request.id == id);
            // Stored at each poll: `release` takes the waker out when it wakes a request that may still be blocked.
            own.expect("the request was pushed above").waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // The guard owns the request from here on; the drop of this future must not release it.
        self.id = None;
        Poll::Ready(RangeGuard { locks: locks.clone(), id })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.locks.release(id);
        }
    }
}

/// Held range; released on drop.
#[derive(Debug)]
#[must_use = "the range is locked only while the guard lives"]
pub struct RangeGuard {
    locks: RangeLocks,
    id: u64,
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.locks.release(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn exclusive_waits_for_shared_and_keeps_later_readers_behind() {
        let locks = RangeLocks::new();
        let first = locks.shared(0..4).now_or_never().expect("nothing is held");
        let mut writer = Box::pin(locks.exclusive(2..6));
        assert!((&mut writer).now_or_never().is_none());
        let mut late = Box::pin(locks.shared(3..4));
        assert!((&mut late).now_or_never().is_none(), "a late reader must not starve the writer");
        assert!(locks.shared(0..2).now_or_never().is_some(), "a range beside is free");
        drop(first);
        let held = (&mut writer).now_or_never().expect("the reader is gone");
        assert!((&mut late).now_or_never().is_none());
        drop(held);
        assert!(late.now_or_never().is_some());
        assert!(!locks.is_busy(&(0..10)));
    }

    #[test]
    fn passed_waits_for_what_came_before_and_keeps_nobody_waiting() {
        let locks = RangeLocks::new();
        let first = locks.exclusive(0..4).now_or_never().expect("nothing is held");
        let reader = locks.shared(8..9).now_or_never().expect("nothing is held there");
        let mut passed = Box::pin(locks.barrier(0..10));
        assert!((&mut passed).now_or_never().is_none());
        let later = locks.exclusive(5..6).now_or_never().expect("it keeps nobody waiting");
        drop(first);
        assert!((&mut passed).now_or_never().is_none(), "a reader came before, too");
        drop(reader);
        assert!(passed.now_or_never().is_some(), "what came later does not matter");
        drop(later);
    }

    #[test]
    fn acquire_that_is_dropped_gives_up_its_place() {
        let locks = RangeLocks::new();
        let held = locks.exclusive(0..1).now_or_never().expect("free");
        let mut waiting = Box::pin(locks.exclusive(0..1));
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(held);
        assert!(locks.exclusive(0..1).now_or_never().is_some());
    }
}
