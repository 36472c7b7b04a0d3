//! The way to a group: nothing is written to it while the catalog calls it clean.

use super::Shared;
use crate::catalog::GroupRecord;
use crate::error::PoolError;
use block::{BlockDevice, Stable, Written};
use std::cell::Cell;

/// A group, and whether the catalog calls it clean.
pub(crate) struct Gate<G> {
    device: G,
    /// Never stale, so never marked.
    protected: bool,
    clean: Cell<bool>,
    /// Writes under way.
    writing: Cell<u32>,
    /// Writes that have ever begun.
    begun: Cell<u64>,
}

impl<G> Gate<G> {
    pub(super) fn new(device: G, record: &GroupRecord) -> Self {
        let (protected, clean) = (record.protected, Cell::new(record.clean));
        Self { device, protected, clean, writing: Cell::new(0), begun: Cell::new(0) }
    }

    pub(crate) fn device(&self) -> &G {
        &self.device
    }
}

/// One write under way.
pub(crate) struct Writing<'a>(&'a Cell<u32>);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        assert!(self.0.get() > 0, "a write to a group ends once");
        self.0.set(self.0.get() - 1);
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    /// The group may be written: the catalog calls it dirty, and will as long as the answer lives.
    pub(crate) async fn begin_write(&self, group: u16) -> Result<Writing<'_>, PoolError> {
        let gate = self.gate(group);
        gate.writing.set(gate.writing.get() + 1);
        gate.begun.set(gate.begun.get() + 1);
        let writing = Writing(&gate.writing);
        if gate.clean.get() && !gate.protected {
            let ((), change) = self.store.change(|catalog| {
                catalog.groups[usize::from(group)].clean = false;
                Ok(())
            })?;
            self.store.committed(change).await?;
            gate.clean.set(false);
        }
        assert!(gate.protected || !gate.clean.get(), "nothing is written to a group that the catalog calls clean");
        Ok(writing)
    }

    /// The catalog calls the group clean; false when somebody writes to it.
    pub(super) async fn end_writes(&self, group: u16) -> Result<bool, PoolError> {
        let gate = self.gate(group);
        let begun = gate.begun.get();
        if gate.writing.get() > 0 {
            return Ok(false);
        }
        if gate.clean.get() && !gate.protected {
            return Ok(true);
        }
        let flushed = gate.device.flush(Written::attest()).await;
        let _: Stable = flushed.map_err(|error| PoolError::GroupFails { group, error })?;
        if gate.begun.get() != begun {
            return Ok(false);
        }
        if gate.protected {
            return Ok(true);
        }
        // A write that begins from here on marks the group dirty again, in a later commit than this.
        gate.clean.set(true);
        let ((), change) = self.store.change(|catalog| {
            catalog.groups[usize::from(group)].clean = true;
            Ok(())
        })?;
        self.store.committed(change).await?;
        Ok(true)
    }
}
