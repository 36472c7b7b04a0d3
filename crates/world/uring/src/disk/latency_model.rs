//! Files with the latency of a disk of some medium, for measurements.

use crate::clock;
use crate::world::Inner;
use block::medium::{OperationHandle, Progress, Timing, Transfer};
use shard::Time;
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// Latency model of a file.
pub(super) struct LatencyModel(RefCell<Timing>);

/// Operation in the latency model. Dropping it does not cancel it there.
pub(super) struct Passage<'a> {
    pace: &'a LatencyModel,
    ticket: Option<OperationHandle>,
}

impl LatencyModel {
    /// Returns the model for the file at `path` with `bytes`, if one is configured.
    pub fn of(world: &Rc<Inner>, path: &str, bytes: u64) -> Option<Box<Self>> {
        let like = world.media.iter().find(|like| Path::new(path).starts_with(&like.folder))?;
        let timing = Timing::new(like.medium, like.stroke_bytes.unwrap_or(bytes));
        Some(Box::new(Self(RefCell::new(timing))))
    }

    /// Submits an operation to the model.
    pub fn begin(&self, bytes: &Range<u64>, write: bool) -> Passage<'_> {
        let motion = Transfer { offset: bytes.start, bytes: bytes.end - bytes.start, write };
        let ticket = self.0.borrow_mut().submit(clock::now().0, motion);
        Passage { pace: self, ticket: Some(ticket) }
    }
}

impl Passage<'_> {
    /// Waits until a disk of the medium would have finished the operation.
    pub async fn end(mut self, world: &Inner) {
        // Asked again after each sleep: the end of an operation is known only once the arm is free for it.
        while let Some(ticket) = self.ticket {
            let progress = self.pace.0.borrow_mut().poll(clock::now().0, ticket);
            match progress {
                Progress::Ended => self.ticket = None,
                Progress::Until(then) => world.sleep_until(Time(then)).await,
            }
        }
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        // An operation that was dropped does not wait for the model anymore.
        if let Some(ticket) = self.ticket {
            self.pace.0.borrow_mut().forget(ticket);
        }
    }
}
