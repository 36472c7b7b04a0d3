//! Test owner of a unit: its state store and its sanitizer.

use crate::{ReplaceKeyFuture, Sanitizer, StateStore, StoreError, StoreFuture, TargetPort};
use block::IoError;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;

/// State store in memory that can be full or gone.
#[derive(Default)]
pub(crate) struct MemoryStore {
    pub kept: RefCell<Vec<u8>>,
    pub ports: RefCell<Vec<TargetPort>>,
    pub refuses: Cell<Option<StoreError>>,
    /// True while store operations do not complete.
    pub waits: Cell<bool>,
    pub times: Cell<usize>,
}

impl StateStore for MemoryStore {
    fn is_able(&self) -> bool {
        true
    }

    fn store(&self, kept: Vec<u8>) -> StoreFuture<'_> {
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

/// Sanitizer that counts its calls, and refuses unless `admits` is set.
#[derive(Default)]
pub(crate) struct Owner {
    pub admits: Cell<bool>,
    pub begun: Cell<usize>,
    /// True when the unit has an encryption key, and the number of replacements.
    pub has_key: Cell<bool>,
    pub replaced: Cell<usize>,
    /// Error of the next replacement, if any.
    pub fails: Cell<Option<IoError>>,
}

impl Owner {
    /// Creates the owner of an encrypted unit.
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

    fn replace_key(&self) -> ReplaceKeyFuture<'_> {
        Box::pin(async {
            self.replaced.set(self.replaced.get() + 1);
            self.fails.get().map_or(Ok(()), Err)
        })
    }

    fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
    }
}
