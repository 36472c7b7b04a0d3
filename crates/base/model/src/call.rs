//! How an order travels from control to the data plane, and its answer back.

use crate::{Order, Refusal, Report};
use std::fmt;

/// Where the answer goes. Called once, from the data plane's thread; must not block.
pub type Reply = Box<dyn FnOnce(Result<Report, Refusal>) + Send>;

/// An order and the place for its answer, as sent over a `shard::mailbox`.
///
/// A call that is dropped unanswered tells its sender that the data plane is gone.
pub struct Call {
    /// What to do.
    pub order: Order,
    /// Where to say how it went.
    pub reply: Reply,
}

impl Call {
    /// A call that hands its answer to `reply`.
    pub fn new(order: Order, reply: impl FnOnce(Result<Report, Refusal>) + Send + 'static) -> Self {
        Self { order, reply: Box::new(reply) }
    }

    /// The asker has the answer.
    pub fn answer(self, answer: Result<Report, Refusal>) {
        (self.reply)(answer);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("order", &self.order).finish_non_exhaustive()
    }
}
