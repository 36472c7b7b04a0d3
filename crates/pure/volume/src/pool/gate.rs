//! Write gate of a group: no write starts while the catalog records the group as clean.
//!
//! The clean flag decides whether a group without its own redo log needs a resync after a crash. Called by
//! volumes and families before each write.

use super::Shared;
use crate::catalog::GroupRecord;
use crate::error::PoolError;
use block::{BlockDevice, Stable, Written};
use std::cell::Cell;

/// Device of a group and its clean flag.
pub(crate) struct WriteGate<G> {
    device: G,
    /// Protected groups keep their own redo log: they are never marked dirty.
    protected: bool,
    clean: Cell<bool>,
    /// Number of writes in flight.
    in_flight: Cell<u32>,
    /// Number of writes started since the pool was opened.
    started: Cell<u64>,
}

impl<G> WriteGate<G> {
    pub(super) fn new(device: G, record: &GroupRecord) -> Self {
        let (protected, clean) = (record.protected, Cell::new(record.clean));
        Self { device, protected, clean, in_flight: Cell::new(0), started: Cell::new(0) }
    }

    pub(crate) fn device(&self) -> &G {
        &self.device
    }
}

/// Guard of one write in flight.
pub(crate) struct WriteGuard<'a>(&'a Cell<u32>);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        assert!(self.0.get() > 0, "a write to a group ends once");
        self.0.set(self.0.get() - 1);
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    /// Starts a write: the catalog records the group as dirty, and keeps it so while the returned guard lives.
    pub(crate) async fn start_write(&self, group: u16) -> Result<WriteGuard<'_>, PoolError> {
        let gate = self.gate(group);
        // Counted before the await, so that `mark_clean_if_idle` cannot mark the group clean in between.
        gate.in_flight.set(gate.in_flight.get() + 1);
        gate.started.set(gate.started.get() + 1);
        let writing = WriteGuard(&gate.in_flight);
        if gate.clean.get() && !gate.protected {
            let ((), change) = self.store.change(|catalog| {
                catalog.groups[usize::from(group)].clean = false;
                Ok(())
            })?;
            // The dirty flag must be on stable storage before the first write, or a crash would skip the
            // resync.
            self.store.committed(change).await?;
            // Only after the commit: until then every other write has to wait for it as well.
            gate.clean.set(false);
        }
        assert!(gate.protected || !gate.clean.get(), "nothing is written to a group that the catalog calls clean");
        Ok(writing)
    }

    /// Flushes the group and records it as clean; false while a write is in flight.
    pub(super) async fn mark_clean_if_idle(&self, group: u16) -> Result<bool, PoolError> {
        let gate = self.gate(group);
        // The number in flight does not show writes that begin and end during the flush, so starts are counted.
        let begun = gate.started.get();
        if gate.in_flight.get() > 0 {
            return Ok(false);
        }
        if gate.clean.get() && !gate.protected {
            return Ok(true);
        }
        // Data and parity are stable before the catalog calls the group clean.
        let flushed = gate.device.flush(Written::attest()).await;
        let _: Stable = flushed.map_err(|error| PoolError::GroupFails { group, error })?;
        // A write that started during the flush is not covered by it.
        if gate.started.get() != begun {
            return Ok(false);
        }
        // The catalog calls a protected group clean at all times, so the flush above is all.
        if gate.protected {
            return Ok(true);
        }
        // A write that starts from here on marks the group dirty again, in a later commit than this one.
        gate.clean.set(true);
        let ((), change) = self.store.change(|catalog| {
            catalog.groups[usize::from(group)].clean = true;
            Ok(())
        })?;
        self.store.committed(change).await?;
        Ok(true)
    }
}
