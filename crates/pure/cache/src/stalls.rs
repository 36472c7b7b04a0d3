//! Register of stalled commands, for diagnosing where a command waits.

use block::Extent;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;

/// Reason why a command is stalled before it goes below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// Rate limits of its volume, or other volumes that go first.
    Limit,
    /// Back-pressure: waiting for write memory, or for space in the log.
    BackPressure,
}

/// Blocks of the commands that wait at one place. A command that does not wait is never in it.
#[derive(Debug, Default)]
pub(crate) struct Stalls(RefCell<Vec<Extent>>);

/// Entry of a waiting command; removed on drop.
struct Stalled<'a>(&'a Stalls, Extent);

impl Stalls {
    /// Awaits `passage`; while it is pending, a command on `extent` is registered as stalled.
    pub(crate) async fn track<T>(&self, extent: Extent, passage: impl Future<Output = T>) -> T {
        let mut passage = pin!(passage);
        let mut held = None;
        poll_fn(|cx| {
            let polled = passage.as_mut().poll(cx);
            if polled.is_pending() {
                // Only at the first pending poll: a command that passes at once costs nothing.
                held.get_or_insert_with(|| self.register(extent));
            }
            polled
        })
        .await
    }

    /// True when a command on some of these blocks is stalled here.
    pub(crate) fn contains(&self, extent: Extent) -> bool {
        self.0.borrow().iter().any(|held| held.overlaps(extent))
    }

    fn register(&self, extent: Extent) -> Stalled<'_> {
        self.0.borrow_mut().push(extent);
        Stalled(self, extent)
    }
}

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        let mut held = self.0.0.borrow_mut();
        // Equal extents may be listed several times, and any of them may be removed.
        let at = held.iter().position(|extent| *extent == self.1).expect("it is there until this is dropped");
        held.swap_remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::{pending, ready};

    #[test]
    fn command_is_registered_as_stalled_only_while_it_waits() {
        let stalls = Stalls::default();
        let (blocks, beside) = (Extent::new(8, 8), Extent::new(16, 8));
        assert_eq!(stalls.track(blocks, ready(7)).now_or_never(), Some(7));
        let mut waits = Box::pin(stalls.track(blocks, pending::<()>()));
        let mut again = Box::pin(stalls.track(blocks, pending::<()>()));
        assert!(!stalls.contains(blocks), "nobody has come yet");
        assert!((&mut waits).now_or_never().is_none() && (&mut again).now_or_never().is_none());
        assert!(stalls.contains(Extent::new(15, 1)) && !stalls.contains(beside));
        drop(waits);
        assert!(stalls.contains(blocks), "the other one waits on");
        drop(again);
        assert!(!stalls.contains(blocks));
    }
}
