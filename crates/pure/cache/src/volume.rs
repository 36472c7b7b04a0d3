//! A volume that wears every sleeve, and changes its policy while it is used.

use crate::holds::Hold;
use crate::limits::{Limited, Scheduler};
use crate::log::WriteLog;
use crate::merge::{MergeCounters, Merged};
use crate::policy::{Policy, WritePolicy};
use crate::read::{Cached, ReadCache, ReadCounters};
use crate::write::{WriteBack, WriteCounters, WriteMemory};
use crate::{Findings, Runtime, VolumeId};
use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};

/// What the volumes of one shard share. Cheap to clone.
#[derive(Clone)]
pub struct CacheShard<R: Runtime> {
    /// The clock and the tasks of the shard.
    pub runtime: R,
    /// Clean blocks in memory.
    pub reads: ReadCache,
    /// Memory for acknowledged writes.
    pub writes: WriteMemory,
    /// Where `WritePolicy::Back` of new volumes acknowledges from; without it there is no such policy.
    pub log: Option<WriteLog>,
    /// Who goes next below.
    pub scheduler: Scheduler<R>,
    /// Who hears of memory that changed.
    pub findings: Findings,
}

type Sleeves<D, R> = Limited<Cached<WriteBack<Merged<D>, R>, R>, R>;

/// A volume with a [`Policy`]: limits above the read cache above the write cache above merged writes.
pub struct PolicedVolume<D, R: Runtime>(Sleeves<D, R>);

/// What all sleeves of a volume have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounters {
    /// Of the read cache.
    pub reads: ReadCounters,
    /// Of the write cache.
    pub writes: WriteCounters,
    /// Of merged writes.
    pub merges: MergeCounters,
}

impl<D: BlockDevice + 'static, R: Runtime> PolicedVolume<D, R> {
    /// `device`, cached as `policy` says but written through: [`PolicedVolume::set_policy`] sets the rest.
    pub fn new(shard: &CacheShard<R>, volume: VolumeId, device: D, policy: &Policy) -> Self {
        let (runtime, findings) = (shard.runtime.clone(), shard.findings.clone());
        let merged = Merged::new(device);
        let back = WriteBack::new(volume, merged, runtime.clone(), &shard.writes, shard.log.clone(), findings);
        let cached = Cached::new(&shard.reads, volume, back, runtime.clone(), policy.share, policy.read_ahead);
        Self(Limited::new(cached, runtime, &shard.scheduler, policy.limits))
    }

    /// The volume follows `policy` from now on; where writes are acknowledged earlier or later than before, what was
    /// acknowledged is stable below first.
    ///
    /// *Errors*: as [`WriteBack::set_policy`]; everything but the write policy is changed all the same.
    pub async fn set_policy(&self, policy: &Policy) -> Result<(), IoError> {
        let cached = self.0.device();
        cached.set_share(policy.share);
        cached.set_read_ahead(policy.read_ahead);
        self.0.set_limits(policy.limits);
        self.write_back().set_policy(policy.write).await
    }

    /// Everything acknowledged is stable on the device itself, and writes go through from now on.
    pub async fn close(&self) -> Result<(), IoError> {
        self.write_back().set_policy(WritePolicy::Through).await
    }

    /// `WritePolicy::Back` acknowledges from `log` from now on; see [`WriteBack::set_log`].
    pub async fn set_log(&self, log: Option<WriteLog>) {
        self.write_back().set_log(log).await;
    }

    /// What waits is thrown away: the volume is gone for good. See [`WriteBack::throw_away`].
    pub async fn throw_away(&self) {
        self.write_back().throw_away().await;
    }

    /// Runs `change`, after which the device may hold something else, and forgets what was read before or meanwhile.
    ///
    /// The caller sees to it that nothing waits to be written: see [`PolicedVolume::close`].
    pub async fn replace<T>(&self, change: impl Future<Output = T>) -> T {
        self.0.device().replace(change).await
    }

    /// Flips one bit of the cached page `page` of 4 KiB, as bad memory would; false when it is not cached.
    #[cfg(test)]
    pub(crate) fn flip_cached_bit(&self, page: u64) -> bool {
        self.0.device().flip_bit(page)
    }

    /// The write policy that is in force.
    pub fn write_policy(&self) -> WritePolicy {
        self.write_back().policy()
    }

    /// What was done so far.
    pub fn counters(&self) -> VolumeCounters {
        let back = self.write_back();
        let merges = back.device().counters();
        VolumeCounters { reads: self.0.device().counters(), writes: back.counters(), merges }
    }

    /// Where a command on some of the blocks is held back, if one is.
    pub fn hold(&self, extent: Extent) -> Option<Hold> {
        let below = || self.write_back().holds(extent).then_some(Hold::Room);
        if self.0.holds(extent) { Some(Hold::Limit) } else { below() }
    }

    /// The device below all sleeves.
    pub fn device(&self) -> &D {
        self.write_back().device().device()
    }

    fn write_back(&self) -> &WriteBack<Merged<D>, R> {
        self.0.device().device()
    }
}

impl<D: BlockDevice + 'static, R: Runtime> BlockDevice for PolicedVolume<D, R> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.0.read(extent).await
    }

    fn read_at_once(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        self.0.read_at_once(extent)
    }

    fn write_at_once(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        self.0.write_at_once(start, data)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.0.write(start, data).await
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.0.write_fresh(start, data).await
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

    /// What waits in memory may get a place only when it goes below, which it does first.
    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        if self.counters().writes.dirty_bytes > 0 {
            let _: Stable = self.flush(Written::attest()).await?;
        }
        self.device().run(extent).await
    }

    fn space(&self) -> Option<Space> {
        self.device().space()
    }
}
