//! Transfer of orders from the control plane to the data plane, and of the responses back.

use crate::{Order, Refusal, Report};
use std::fmt;

/// Callback that receives the response. Called once, on a thread of the data plane; must not block.
pub type Reply = Box<dyn FnOnce(Result<Report, Refusal>) + Send>;

/// Order with the callback for its response, as sent through a `shard::mailbox`.
///
/// If a call is dropped without a response, the sender concludes that the data plane has ended.
pub struct Call {
    /// Order to execute.
    pub order: Order,
    /// Callback for the response.
    pub reply: Reply,
}

impl Call {
    /// Returns a call that passes its response to `reply`.
    pub fn new(order: Order, reply: impl FnOnce(Result<Report, Refusal>) + Send + 'static) -> Self {
        Self { order, reply: Box::new(reply) }
    }

    /// Delivers the response to the sender.
    pub fn answer(self, answer: Result<Report, Refusal>) {
        // `self` is consumed, so a call cannot be answered twice.
        (self.reply)(answer);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A closure has no `Debug`; the order identifies the call.
        f.debug_struct("Call").field("order", &self.order).finish_non_exhaustive()
    }
}
