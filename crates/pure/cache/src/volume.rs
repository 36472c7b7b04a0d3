//! Volume with all cache layers and a policy that can change during I/O.

use crate::limits::{Limited, Scheduler};
use crate::log::WriteLog;
use crate::merge::{MergeCounters, Merged};
use crate::policy::{Policy, WritePolicy};
use crate::read::{Cached, ReadCache, ReadCounters};
use crate::stalls::Stall;
use crate::write::{WriteBack, WriteCounters, WriteMemory};
use crate::{Findings, Runtime, VolumeId};
use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};

/// Resources that the volumes of one shard share. Cheap to clone.
#[derive(Clone)]
pub struct CacheShard<R: Runtime> {
    /// Clock and task spawner of the shard.
    pub runtime: R,
    /// Read cache.
    pub reads: ReadCache,
    /// Memory budget of acknowledged writes.
    pub writes: WriteMemory,
    /// Write log of new volumes; without one `WritePolicy::Back` is not available.
    pub log: Option<WriteLog>,
    /// Scheduler of commands to the layers below.
    pub scheduler: Scheduler<R>,
    /// Receiver of reports of corrupted memory.
    pub findings: Findings,
}

type Layers<D, R> = Limited<Cached<WriteBack<Merged<D>, R>, R>, R>;

/// Volume with a [`Policy`]: limits above the read cache above the write cache above merged writes.
pub struct CachedVolume<D, R: Runtime>(Layers<D, R>);

/// Counters of all layers of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounters {
    /// Read cache.
    pub reads: ReadCounters,
    /// Write cache.
    pub writes: WriteCounters,
    /// Merged writes.
    pub merges: MergeCounters,
}

impl<D: BlockDevice + 'static, R: Runtime> CachedVolume<D, R> {
    /// Wraps `device`, cached as `policy` says but written through: [`CachedVolume::set_policy`] sets the rest.
    pub fn new(shard: &CacheShard<R>, volume: VolumeId, device: D, policy: &Policy) -> Self {
        let (runtime, findings) = (shard.runtime.clone(), shard.findings.clone());
        // From the bottom up; each layer wraps the one before.
        let merged = Merged::new(device);
        let back = WriteBack::new(volume, merged, runtime.clone(), &shard.writes, shard.log.clone(), findings);
        let cached = Cached::new(&shard.reads, volume, back, runtime.clone(), policy.share, policy.read_ahead);
        Self(Limited::new(cached, runtime, &shard.scheduler, policy.limits))
    }

    /// Applies `policy`. Where the write policy changes, everything acknowledged is made stable below first.
    ///
    /// *Errors*: as [`WriteBack::set_policy`]; everything but the write policy is changed nevertheless.
    pub async fn set_policy(&self, policy: &Policy) -> Result<(), IoError> {
        let cached = self.0.device();
        // The parts that cannot fail are applied first, so they hold even if the write policy cannot change.
        cached.set_share(policy.share);
        cached.set_read_ahead(policy.read_ahead);
        self.0.set_limits(policy.limits);
        self.write_back().set_policy(policy.write).await
    }

    /// Makes everything acknowledged stable on the device, and writes through from then on.
    pub async fn close(&self) -> Result<(), IoError> {
        // Written through, a volume has neither dirty data nor records that a restart would need.
        self.write_back().set_policy(WritePolicy::Through).await
    }

    /// Changes the log that `WritePolicy::Back` acknowledges from; see [`WriteBack::set_log`].
    pub async fn set_log(&self, log: Option<WriteLog>) {
        self.write_back().set_log(log).await;
    }

    /// Discards all dirty data of a volume that is deleted. See [`WriteBack::discard_dirty`].
    pub async fn discard_dirty(&self) {
        self.write_back().discard_dirty().await;
    }

    /// Runs `change`, after which the device may hold different content, and drops what was read before or during it.
    ///
    /// The caller ensures that no write is pending: see [`CachedVolume::close`].
    pub async fn replace<T>(&self, change: impl Future<Output = T>) -> T {
        self.0.device().replace(change).await
    }

    /// Flips one bit of the cached page `page` of 4 KiB, as faulty memory would; false when it is not cached.
    #[cfg(test)]
    pub(crate) fn flip_cached_bit(&self, page: u64) -> bool {
        self.0.device().flip_bit(page)
    }

    /// Write policy in force.
    pub fn write_policy(&self) -> WritePolicy {
        self.write_back().policy()
    }

    /// Counters so far.
    pub fn counters(&self) -> VolumeCounters {
        let back = self.write_back();
        let merges = back.device().counters();
        VolumeCounters { reads: self.0.device().counters(), writes: back.counters(), merges }
    }

    /// Layer in which a command on some of these blocks waits; `None` when none does.
    pub fn stall(&self, extent: Extent) -> Option<Stall> {
        let below = || self.write_back().is_stalled(extent).then_some(Stall::BackPressure);
        // From the top down: a command that waits for its limits has not reached the write cache.
        if self.0.is_stalled(extent) { Some(Stall::Limit) } else { below() }
    }

    /// Device below all layers.
    pub fn device(&self) -> &D {
        self.write_back().device().device()
    }

    fn write_back(&self) -> &WriteBack<Merged<D>, R> {
        self.0.device().device()
    }
}

impl<D: BlockDevice + 'static, R: Runtime> BlockDevice for CachedVolume<D, R> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.0.read(extent).await
    }

    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        self.0.try_read(extent)
    }

    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        self.0.try_write(start, data)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.0.write(start, data).await
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.0.write_unlogged(start, data).await
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.0.write_atomic(start, data).await
    }

    fn atomic_bytes_max(&self) -> u32 {
        self.0.atomic_bytes_max()
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.0.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.0.discard(extent).await
    }

    /// Flushes dirty data first: on a thin volume it may be allocated only when it is written below.
    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        if self.counters().writes.dirty_bytes > 0 {
            let _: Stable = self.flush(Written::attest()).await?;
        }
        // The read cache knows no allocation, so the question goes to the volume itself.
        self.device().run(extent).await
    }

    fn space(&self) -> Option<Space> {
        // Dirty data is not subtracted: a thin volume allocates when the data is written below.
        self.device().space()
    }
}
