//! The owner of a unit, for tests: what it keeps, and whether it has the unit sanitized.

use crate::{Keeper, Keeping, NotKept, Replacing, Sanitizer, TargetPort};
use block::IoError;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;

/// Keeps what it is given, in memory, and can be out of room or gone.
#[derive(Default)]
pub(crate) struct Shelf {
    pub kept: RefCell<Vec<u8>>,
    pub ports: RefCell<Vec<TargetPort>>,
    pub refuses: Cell<Option<NotKept>>,
    /// True while nothing that is to be kept gets there.
    pub waits: Cell<bool>,
    pub times: Cell<usize>,
}

impl Keeper for Shelf {
    fn is_able(&self) -> bool {
        true
    }

    fn keep(&self, kept: Vec<u8>) -> Keeping<'_> {
        Box::pin(async move {
            poll_fn(|_| if self.waits.get() { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }).await;
            self.times.set(self.times.get() + 1);
            match self.refuses.get() {
                Some(why) => Err(why),
                None => {
                    self.kept.replace(kept);
                    Ok(())
                }
            }
        })
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        self.ports.borrow().clone()
    }
}

/// Has nothing sanitized unless it is told to, and counts how often it was to begin.
#[derive(Default)]
pub(crate) struct Owner {
    pub admits: Cell<bool>,
    pub begun: Cell<usize>,
    /// True when the unit has a key, and how often that was replaced.
    pub has_key: Cell<bool>,
    pub replaced: Cell<usize>,
    /// What comes of replacing it.
    pub fails: Cell<Option<IoError>>,
}

impl Owner {
    /// The owner of a unit whose content is encrypted.
    pub(crate) fn with_key() -> Self {
        Self { has_key: Cell::new(true), ..Self::default() }
    }
}

impl Sanitizer for Owner {
    fn admits(&self) -> bool {
        self.admits.get()
    }

    fn has_key(&self) -> bool {
        self.has_key.get()
    }

    fn replace_key(&self) -> Replacing<'_> {
        Box::pin(async {
            self.replaced.set(self.replaced.get() + 1);
            self.fails.get().map_or(Ok(()), Err)
        })
    }

    fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
    }
}
