//! Block device of the write cache: reads merge dirty data over the volume, writes are admitted, logged or passed on.

use super::WriteBack;
use crate::Runtime;
use crate::bug_injection::{InjectedBug, is_injected};
use crate::log::Content;
use crate::policy::WritePolicy;
use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};

impl<D: BlockDevice + 'static, R: Runtime> BlockDevice for WriteBack<D, R> {
    fn geometry(&self) -> Geometry {
        let below = self.0.device.geometry();
        let volatile_cache = match self.0.policy.get() {
            WritePolicy::BackVolatile => true,
            // Acknowledged data is stable in the log, so hosts need not flush.
            WritePolicy::Back if !self.0.is_volatile() => false,
            _ => below.volatile_cache,
        };
        Geometry { volatile_cache, ..below }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let inner = &*self.0;
        if inner.dirty.borrow().is_empty() {
            return inner.device.read(extent).await;
        }
        inner.device.geometry().admit(extent)?;
        let mut rope = Rope::new();
        let mut at = extent.start;
        // Gaps are read below separately: an error under dirty blocks does not affect the read.
        for (part, data) in inner.waiting(extent)? {
            if at < part.start {
                rope.append(inner.device.read(Extent { start: at, len: part.start - at }).await?);
            }
            rope.push(data);
            at = part.end();
        }
        if at < extent.end() {
            rope.append(inner.device.read(Extent { start: at, len: extent.end() - at }).await?);
        }
        let bytes = extent.len.bytes(inner.device.geometry().block_bytes);
        assert_eq!(rope.len() as u64, bytes, "what waits and what lies below are all of a read");
        Ok(rope)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let _active = self.pass().await;
        match self.0.policy.get() {
            WritePolicy::Through => self.0.device.write(start, data).await,
            // The log has failed: written through, once the failure is recorded.
            WritePolicy::Back if self.0.is_volatile() => self.write_past(start, data, false).await,
            WritePolicy::Back => self.write_back(start, data, true, false).await,
            WritePolicy::BackVolatile => self.write_back(start, data, false, false).await,
        }
    }

    /// Writes atomically: a log record is replayed as a whole or not at all; without a log the device below provides
    /// the atomicity.
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        // One record, or one atomic write below; splitting would lose the atomicity.
        if data.len() > self.atomic_bytes_max() as usize {
            let extent = self.0.device.geometry().extent_of(start, data.len())?;
            return Err(IoError::new(IoErrorKind::Unsupported, extent));
        }
        let _active = self.pass().await;
        match self.0.policy.get() {
            WritePolicy::Through => self.0.device.write_atomic(start, data).await,
            WritePolicy::Back if !self.0.is_volatile() => self.write_back(start, data, true, true).await,
            WritePolicy::Back | WritePolicy::BackVolatile => self.write_past(start, data, true).await,
        }
    }

    fn atomic_bytes_max(&self) -> u32 {
        let below = self.0.device.atomic_bytes_max();
        let record = self.0.log().map_or(usize::MAX, |log| log.record_bytes_max());
        // The smaller of both, because a log that fails sends the write below.
        below.min(u32::try_from(record).unwrap_or(u32::MAX))
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        {
            // Only write-through passes the hint on; with write-back this is an ordinary write.
            let _active = self.pass().await;
            if self.0.policy.get() == WritePolicy::Through {
                return self.0.device.write_unlogged(start, data).await;
            }
        }
        self.write(start, data).await
    }

    /// Makes everything written before this call survive power loss; dirty data is written below first, except what
    /// is stable in the log already.
    ///
    /// *Errors*: as for any device; also for blocks that the device below refuses or that were corrupted in memory,
    /// at each flush until they are overwritten.
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        let inner = &self.0;
        // Everything acknowledged is stable in the log already.
        if inner.policy.get() == WritePolicy::Back && !inner.is_volatile() {
            return Ok(Stable::attest());
        }
        let newest = inner.dirty.borrow().newest();
        self.settle(newest).await?;
        if is_injected(InjectedBug::FlushNotPassedOn) {
            return Ok(Stable::attest());
        }
        inner.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let inner = &*self.0;
        inner.device.geometry().admit(extent)?;
        let _active = self.pass().await;
        if inner.policy.get() == WritePolicy::Through {
            return inner.device.discard(extent).await;
        }
        // Older records of these blocks must be destaged before the discard, or a replay would undo it after readers
        // have seen it. Newer ones are logged and destaged behind it.
        let _lock = loop {
            // A write whose caller was dropped may still be in flight into the log.
            inner.changed.wait(|| (!inner.is_logging(extent)).then_some(())).await;
            self.clear_above(extent).await?;
            let lock = inner.below.exclusive(extent.start.0..extent.end().0).await;
            let is_clear = !inner.is_logging(extent) && !inner.dirty.borrow().overlaps(extent, u64::MAX);
            if is_clear || is_injected(InjectedBug::DiscardOvertaken) {
                break lock;
            }
        };
        let mut _record_ref = None;
        if inner.policy.get() == WritePolicy::Back
            && let Some(log) = inner.log()
        {
            // Without a record of its own, the discard would be undone by a replay of older records.
            match log.append(inner.volume, Content::Discard { extent }).await {
                Ok(record_ref) => _record_ref = record_ref,
                Err(_) => log.failure_recorded().await?,
            }
        }
        // Under the lock, and with its record kept in the log, until the device has done it.
        inner.device.discard(extent).await
    }
}
