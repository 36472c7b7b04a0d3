//! Cache of a shard, and translation of volume policies into those of the `cache` crate.

use crate::events::Events;
use crate::limits::Limits;
use cache::{CacheShard, Check, Finding, Findings, Policy, ReadCache, Scheduler, Share, VolumeCounters, WriteMemory};
use model::{
    CacheReport, Raised, ReadAhead, Size, Subject, SubjectKind, Timestamp, VolumeId, VolumePolicy, WritePolicy, event,
};
use shard::World;

/// Page size in which the cache counts, in bytes.
const PAGE_BYTES: u64 = block::PAGE_BYTES as u64;

/// Creates the cache that the volumes of a shard share. Corrupted memory is reported as an event.
pub fn cache_of<W: World>(world: &W, limits: &Limits, events: &Events) -> CacheShard<W> {
    let (clock, events) = (world.clone(), events.clone());
    let findings = Findings::new(move |finding| {
        let now = Timestamp::from_unix(clock.unix_seconds());
        events.raise(told(now, &finding));
    });
    CacheShard {
        runtime: world.clone(),
        reads: ReadCache::new(limits.read_cache_bytes_per_shard, findings.clone()),
        writes: WriteMemory::new(limits.write_cache_bytes_per_shard),
        // Each pool has a log of its own, which its volumes get when they are served.
        log: None,
        // Depth 0: no queue until volumes compete, see `ShardContext::update_queue_depth`.
        scheduler: Scheduler::new(world.clone(), 0),
        findings,
    }
}

fn told(now: Timestamp, finding: &Finding) -> Raised {
    let volume = VolumeId::from_bytes(finding.volume.0.to_be_bytes());
    let healed = if finding.healed { "it was reread from disk and nothing is lost" } else { "its contents are lost" };
    let sentence = format!(
        "memory corruption in the cache of volume {volume}, {} blocks from {} ({:?}): {healed}; run a memory test",
        finding.extent.len.0, finding.extent.start.0, finding.layer
    );
    Raised::new(now, event::MEMORY_WRONG, Subject::new(SubjectKind::Volume, &volume), sentence)
}

/// Identity of a volume in the cache.
pub fn cache_id(volume: VolumeId) -> cache::VolumeId {
    cache::VolumeId(u128::from_be_bytes(volume.to_bytes()))
}

/// Translates a policy into that of the cache.
pub fn policy_of(policy: &VolumePolicy) -> Policy {
    Policy {
        write: match policy.write {
            WritePolicy::Through => cache::WritePolicy::Through,
            WritePolicy::Back => cache::WritePolicy::Back,
            WritePolicy::BackVolatile => cache::WritePolicy::BackVolatile,
        },
        read_ahead: match policy.read_ahead {
            ReadAhead::Off => cache::ReadAhead::Off,
            ReadAhead::Fixed(size) => {
                // A size beyond the range of the cache is cut to its maximum.
                cache::ReadAhead::Fixed { bytes: u32::try_from(size.bytes()).unwrap_or(u32::MAX) }
            }
            ReadAhead::Adaptive => cache::ReadAhead::Adaptive,
        },
        // Every read from the cache is verified against its checksum (ADR 14).
        share: Share { weight: policy.cache_share, bytes_max: None, check: Check::Every },
        limits: cache::Limits {
            // 0 stands for no limit in the cache.
            iops_max: policy.iops.unwrap_or(0),
            bytes_per_second_max: policy.bandwidth.map_or(0, Size::bytes),
            burst: policy.burst.duration(),
            iops_min: policy.guarantee_iops.unwrap_or(0),
            priority: policy.priority,
        },
    }
}

/// Cache statistics of a volume.
pub(super) fn cache_report(counters: &VolumeCounters) -> CacheReport {
    let pages = |pages: u64| Size::new(pages * PAGE_BYTES);
    CacheReport {
        hits: pages(counters.reads.hit_pages),
        misses: pages(counters.reads.miss_pages),
        ahead: pages(counters.reads.ahead_pages),
        ahead_wasted: pages(counters.reads.ahead_wasted_pages),
        used: Size::new(counters.reads.used_bytes),
        dirty: Size::new(counters.writes.dirty_bytes),
        stuck: counters.writes.refused,
    }
}
