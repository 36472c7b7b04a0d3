//! Page pool behind [`Buf`](super::Buf): one per thread, in power-of-two classes, bounded.

use super::{PAGE_BYTES, Pages};
use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of size classes that are pooled. Larger buffers return to the allocator.
const CLASSES: usize = 12; // 1 page .. 2^11 pages = 8 MiB

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool::new());
}

/// Bytes in use per thread. A buffer may be freed by another thread than the one that allocated it, so a single counter
/// may be negative; the sum over all threads is the number of bytes in use.
static TAKEN: Mutex<Vec<Arc<AtomicI64>>> = Mutex::new(Vec::new());

struct Pool {
    free: [Vec<Arc<Pages>>; CLASSES],
    held_bytes: usize,
    held_bytes_max: usize,
    taken: Arc<AtomicI64>,
}

impl Pool {
    fn new() -> Self {
        let taken = Arc::new(AtomicI64::new(0));
        // A poisoned lock is used all the same: the list is valid after every step.
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(taken.clone());
        // 16 MiB until `set_held_bytes_max` sets the share of this shard.
        Self { free: Default::default(), held_bytes: 0, held_bytes_max: 16 << 20, taken }
    }

    /// Makes room for a free buffer of `class` by evicting from the class that holds most. The pool so follows the
    /// current sizes of requests instead of keeping those of the past.
    fn make_room(&mut self, class: usize) -> bool {
        let held = |pool: &Self, class: usize| pool.free[class].len() * class_bytes(class);
        // Otherwise the loop below would empty the pool and still find no room.
        if class_bytes(class) > self.held_bytes_max {
            return false;
        }
        while self.held_bytes + class_bytes(class) > self.held_bytes_max {
            let most = (0..CLASSES).max_by_key(|&other| held(self, other)).unwrap_or(class);
            // Only a class that holds more than `class` gives way: with equal shares two sizes would evict each other
            // in turn.
            if held(self, most) <= held(self, class) {
                return false;
            }
            // Not empty: it holds more than `class` does.
            self.free[most].pop();
            self.held_bytes -= class_bytes(most);
        }
        true
    }

    fn count_taken(&self, bytes: i64) {
        // Single writer, its own thread: a load and a store cost less than a locked addition.
        self.taken.store(self.taken.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }
}

/// Sets the limit on free pages in the pool of this thread, in bytes, and releases what exceeds it.
pub fn set_held_bytes_max(bytes: usize) {
    POOL.with_borrow_mut(|pool| {
        pool.held_bytes_max = bytes;
        // Largest buffers first: the fewest releases bring the pool below its limit.
        for class in (0..CLASSES).rev() {
            while pool.held_bytes > bytes && pool.free[class].pop().is_some() {
                pool.held_bytes -= class_bytes(class);
            }
        }
    });
}

/// Returns the number of free bytes in the pool of this thread.
#[must_use]
pub fn held_bytes() -> usize {
    POOL.with_borrow(|pool| pool.held_bytes)
}

/// Returns the bytes of buffers in use, over all threads. Takes a lock: for periodic work and reports, not for
/// commands.
#[must_use]
pub fn taken_bytes() -> u64 {
    let threads = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    // A buffer may be returned on another thread, so single counters can be negative and only the sum is meaningful.
    let sum: i64 = threads.iter().map(|taken| taken.load(Ordering::Relaxed)).sum();
    u64::try_from(sum).unwrap_or(0)
}

/// Returns the bytes in use counted by this thread alone, so that other tests of the process do not interfere.
#[cfg(test)]
pub(crate) fn taken_here() -> i64 {
    POOL.with_borrow(|pool| pool.taken.load(Ordering::Relaxed))
}

fn class_of(len: usize) -> usize {
    // An empty buffer has a page as well, so that every buffer has a class.
    len.div_ceil(PAGE_BYTES).max(1).next_power_of_two().trailing_zeros() as usize
}

const fn class_bytes(class: usize) -> usize {
    PAGE_BYTES << class
}

pub(super) fn take(len: usize) -> Arc<Pages> {
    let class = class_of(len);
    let kept = POOL.with_borrow_mut(|pool| {
        // Counted before the lookup, so that buffers from the allocator count as well.
        // Counted by class, not by length, so that `give_last` can subtract the same amount without knowing the length.
        pool.count_taken(class_bytes(class) as i64);
        // `None` for sizes above the largest class, which are never pooled.
        let mut pages = pool.free.get_mut(class)?.pop()?;
        pool.held_bytes -= class_bytes(class);
        Arc::get_mut(&mut pages).expect("the pool holds the only reference").counted = true;
        Some(pages)
    });
    // Whole classes are allocated: `give_last` derives the class from the number of pages.
    kept.unwrap_or_else(|| Arc::new(Pages::zeroed(1 << class, true)))
}

/// Counts pages that go back to the allocator.
impl Drop for Pages {
    fn drop(&mut self) {
        // Also the last of two references that two threads drop at the same moment, of which neither saw itself as last.
        if self.counted {
            let bytes = class_bytes(self.class());
            // The pool of a thread that is exiting is gone, and its count with it.
            let _ = POOL.try_with(|pool| pool.borrow().count_taken(-(bytes as i64)));
        }
    }
}

/// Returns the pages to the pool when the caller held the last reference.
#[inline]
pub(super) fn give(pages: Arc<Pages>) {
    // Most pages are still shared; reading the count is cheaper than `Arc::get_mut`.
    if Arc::strong_count(&pages) == 1 {
        give_last(pages);
    }
}

fn give_last(mut pages: Arc<Pages>) {
    // `get_mut` synchronizes with the drops of other threads: their reads end before the pages are reused.
    // Resident memory takes this path, too; it is neither counted nor pooled.
    let Some(own) = Arc::get_mut(&mut pages).filter(|pages| pages.counted) else { return };
    // Counted below: their drop must not count them again, and must not use the pool while it is borrowed.
    own.counted = false;
    let class = own.class();
    // The pool of a thread that is exiting is gone; its pages go to the allocator instead.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        pool.count_taken(-(class_bytes(class) as i64));
        // Larger buffers are counted, too, and go back to the allocator.
        if class < CLASSES && pool.make_room(class) {
            pool.held_bytes += class_bytes(class);
            pool.free[class].push(pages);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;
    use std::sync::{Barrier, Mutex, PoisonError};

    /// Serializes tests of large buffers, which the count of the process includes.
    static LARGE_BUFFERS: Mutex<()> = Mutex::new(());

    /// Regression: of two threads that dropped the last two references at once neither counted the memory as returned.
    #[test]
    fn memory_whose_last_two_references_are_dropped_at_once_is_counted_as_returned() {
        const LARGE: u64 = 128 << 20;
        let _alone = LARGE_BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..60 {
            let first = Buf::recycled(LARGE as usize).freeze();
            let (second, both) = (first.clone(), Barrier::new(2));
            std::thread::scope(|scope| {
                for view in [first, second] {
                    let both = &both;
                    scope.spawn(move || {
                        both.wait();
                        drop(view);
                    });
                }
            });
            assert!(taken_bytes() < LARGE, "all of it was dropped");
        }
    }

    #[test]
    fn taken_bytes_are_given_back_from_whichever_thread_drops_them() {
        // Other tests of this process take buffers at the same time, so the test uses one that is larger than all of
        // theirs.
        const LARGE: u64 = 64 << 20;
        let _alone = LARGE_BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        let buf = Buf::recycled(LARGE as usize);
        assert!(taken_bytes() >= LARGE);
        std::thread::scope(|scope| scope.spawn(move || drop(buf)).join().expect("dropping does not panic"));
        assert!(taken_bytes() < LARGE);
    }

    #[test]
    fn pool_keeps_what_is_asked_for_now() {
        let take_all = |len: usize, count: usize| -> Vec<Buf> { (0..count).map(|_| Buf::recycled(len)).collect() };
        set_held_bytes_max(64 * PAGE_BYTES);
        drop(take_all(PAGE_BYTES, 64));
        assert_eq!(held_bytes(), 64 * PAGE_BYTES);
        drop(take_all(16 * PAGE_BYTES, 2));
        assert_eq!((held_bytes(), POOL.with_borrow(|pool| pool.free[4].len())), (64 * PAGE_BYTES, 2));
        drop(take_all(16 * PAGE_BYTES, 2));
        assert_eq!(POOL.with_borrow(|pool| pool.free[4].len()), 2, "as much of both: nothing is exchanged to and fro");
        drop(take_all(128 * PAGE_BYTES, 1));
        assert_eq!(held_bytes(), 64 * PAGE_BYTES, "what would never fit drives nothing out");
    }

    #[test]
    fn resident_buffer_is_neither_taken_nor_given_back() {
        let storage = Buf::resident(PAGE_BYTES);
        assert_eq!(taken_here(), 0);
        let view = storage.freeze();
        let part = view.slice(..10);
        drop(view);
        drop(part);
        assert_eq!((taken_here(), held_bytes()), (0, 0));
        let buf = Buf::recycled(PAGE_BYTES);
        assert_eq!(taken_here(), PAGE_BYTES as i64, "the counter counts");
        drop(buf);
    }
}
