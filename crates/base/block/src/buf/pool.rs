//! The pool of pages behind [`Buf`](super::Buf): one per thread, in power-of-two classes, bounded.

use super::{PAGE_BYTES, Pages};
use std::cell::RefCell;
use std::sync::Arc;

/// The largest class that is kept: larger buffers go back to the allocator.
const CLASSES: usize = 12; // 1 page .. 2^11 pages = 8 MiB

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool { free: Default::default(), held_bytes: 0, held_bytes_max: 16 << 20 });
}

struct Pool {
    free: [Vec<Arc<Pages>>; CLASSES],
    held_bytes: usize,
    held_bytes_max: usize,
}

/// The pool of this thread keeps at most `bytes` of free pages from now on; what it holds beyond is released.
pub fn set_held_bytes_max(bytes: usize) {
    POOL.with_borrow_mut(|pool| {
        pool.held_bytes_max = bytes;
        for class in (0..CLASSES).rev() {
            while pool.held_bytes > bytes && pool.free[class].pop().is_some() {
                pool.held_bytes -= class_bytes(class);
            }
        }
    });
}

/// Free bytes that the pool of this thread holds now.
#[must_use]
pub fn held_bytes() -> usize {
    POOL.with_borrow(|pool| pool.held_bytes)
}

fn class_of(len: usize) -> usize {
    len.div_ceil(PAGE_BYTES).max(1).next_power_of_two().trailing_zeros() as usize
}

fn class_bytes(class: usize) -> usize {
    PAGE_BYTES << class
}

pub(super) fn take(len: usize) -> Arc<Pages> {
    let class = class_of(len);
    let kept = POOL.with_borrow_mut(|pool| {
        let pages = pool.free.get_mut(class)?.pop()?;
        pool.held_bytes -= class_bytes(class);
        Some(pages)
    });
    kept.unwrap_or_else(|| Arc::new(Pages::zeroed(1 << class)))
}

/// Takes pages back when the caller was the last to hold them.
pub(super) fn give(mut pages: Arc<Pages>) {
    if Arc::get_mut(&mut pages).is_none() {
        return;
    }
    let class = pages.count().trailing_zeros() as usize;
    // A thread that is going away has no pool any more; its pages go back to the allocator.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if class < CLASSES && pool.held_bytes + class_bytes(class) <= pool.held_bytes_max {
            pool.held_bytes += class_bytes(class);
            pool.free[class].push(pages);
        }
    });
}
