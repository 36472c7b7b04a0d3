//! Files that take as long as a disk of some medium would.

use crate::clock;
use crate::world::Inner;
use block::medium::{Motion, Progress, Ticket, Timing};
use shard::Time;
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// The model behind a file.
pub(super) struct Pace(RefCell<Timing>);

/// An operation that the model has to do, too. When it is dropped before, the model does it all the same.
pub(super) struct Passage<'a> {
    pace: &'a Pace,
    ticket: Option<Ticket>,
}

impl Pace {
    /// The model of the file at `path` with `bytes`, where one was asked for.
    pub fn of(world: &Rc<Inner>, path: &str, bytes: u64) -> Option<Box<Self>> {
        let like = world.media.iter().find(|like| Path::new(path).starts_with(&like.folder))?;
        let timing = Timing::new(like.medium, like.stroke_bytes.unwrap_or(bytes));
        Some(Box::new(Self(RefCell::new(timing))))
    }

    /// The model begins with it now.
    pub fn begin(&self, bytes: &Range<u64>, write: bool) -> Passage<'_> {
        let motion = Motion { offset: bytes.start, bytes: bytes.end - bytes.start, write };
        let ticket = self.0.borrow_mut().submit(clock::now().0, motion);
        Passage { pace: self, ticket: Some(ticket) }
    }
}

impl Passage<'_> {
    /// A disk of the medium would have done it.
    pub async fn end(mut self, world: &Inner) {
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
        if let Some(ticket) = self.ticket {
            self.pace.0.borrow_mut().forget(ticket);
        }
    }
}
