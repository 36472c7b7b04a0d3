//! Register of stalled commands, for diagnosing where a command waits.

use block::Extent;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;

/// Reason why a command is stalled before it goes below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Rate limits of its volume, or other volumes that go first.
    Limit,
    /// Back-pressure: waiting for write memory, or for space in the log.
    Room,
}

/// Blocks of the commands that wait at one place. A command that does not wait is never in it.
#[derive(Debug, Default)]
pub(crate) struct Holds(RefCell<Vec<Extent>>);

/// Entry of a waiting command; removed on drop.
struct Held<'a>(&'a Holds, Extent);

impl Holds {
    /// Awaits `passing`; while it is pending, a command on `extent` is registered as stalled.
    pub(crate) async fn pass<T>(&self, extent: Extent, passing: impl Future<Output = T>) -> T {
        let mut passing = pin!(passing);
        let mut held = None;
        poll_fn(|cx| {
            let polled = passing.as_mut().poll(cx);
            if polled.is_pending() {
                // Only at the first pending poll: a command that passes at once costs nothing.
                held.get_or_insert_with(|| self.hold(extent));
            }
            polled
        })
        .await
    }

    /// True when a command on some of these blocks is stalled here.
    pub(crate) fn holds(&self, extent: Extent) -> bool {
        self.0.borrow().iter().any(|held| held.overlaps(extent))
    }

    fn hold(&self, extent: Extent) -> Held<'_> {
        self.0.borrow_mut().push(extent);
        Held(self, extent)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.0.0.borrow_mut();
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
    fn command_is_held_while_it_waits_and_not_before_or_after() {
        let holds = Holds::default();
        let (blocks, beside) = (Extent::new(8, 8), Extent::new(16, 8));
        assert_eq!(holds.pass(blocks, ready(7)).now_or_never(), Some(7));
        let mut waits = Box::pin(holds.pass(blocks, pending::<()>()));
        let mut again = Box::pin(holds.pass(blocks, pending::<()>()));
        assert!(!holds.holds(blocks), "nobody has come yet");
        assert!((&mut waits).now_or_never().is_none() && (&mut again).now_or_never().is_none());
        assert!(holds.holds(Extent::new(15, 1)) && !holds.holds(beside));
        drop(waits);
        assert!(holds.holds(blocks), "the other one waits on");
        drop(again);
        assert!(!holds.holds(blocks));
    }
}
