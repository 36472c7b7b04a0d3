//! Abandoned writes: the kernel still performs them, so no later operation may overtake them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Byte ranges of one disk that abandoned operations may still change. Almost always empty.
#[derive(Default)]
pub(crate) struct AbandonedWrites(Rc<RefCell<Vec<AbandonedWrite>>>);

struct AbandonedWrite {
    id: u64,
    bytes: Range<u64>,
    waiting: Vec<Waker>,
}

/// Abandoned operation; dropping it releases the range.
pub(crate) struct AbandonedRange {
    orphans: Rc<RefCell<Vec<AbandonedWrite>>>,
    id: u64,
}

impl AbandonedWrites {
    /// Closes `bytes` to later operations until the guard is dropped.
    pub fn register(&self, bytes: Range<u64>) -> AbandonedRange {
        let mut orphans = self.0.borrow_mut();
        // Unique among the present entries, whose numbers ascend.
        let id = orphans.last().map_or(0, |last| last.id + 1);
        orphans.push(AbandonedWrite { id, bytes, waiting: Vec::new() });
        AbandonedRange { orphans: self.0.clone(), id }
    }

    /// Waits until no abandoned operation can change `bytes`.
    pub async fn until_clear(&self, bytes: &Range<u64>) {
        poll_fn(|cx| {
            let mut orphans = self.0.borrow_mut();
            // One at a time: after its end the search is repeated.
            match orphans.iter_mut().find(|orphan| orphan.overlaps(bytes)) {
                Some(orphan) => {
                    orphan.waiting.push(cx.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl AbandonedWrite {
    fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

impl Drop for AbandonedRange {
    fn drop(&mut self) {
        let mut orphans = self.orphans.borrow_mut();
        if let Some(at) = orphans.iter().position(|orphan| orphan.id == self.id) {
            // Not `swap_remove`: the numbers must stay in order.
            orphans.remove(at).waiting.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn orphan_holds_back_what_overlaps_it_and_nothing_else() {
        let orphans = AbandonedWrites::default();
        let guard = orphans.register(512..1024);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(orphans.until_clear(&(0..512))).poll(&mut cx).is_ready());
        let later = 1000..2000;
        let mut waiting = pin!(orphans.until_clear(&later));
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        drop(guard);
        assert!(waiting.poll(&mut cx).is_ready());
    }
}
