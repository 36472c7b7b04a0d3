//! Volume cache: read cache with read-ahead, write-back from memory or a write log, write merging, and I/O limits.
//!
//! Every layer is a [`BlockDevice`](block::BlockDevice) over another one and can be used alone: [`Cached`] caches
//! reads and reads ahead, [`Merged`] merges small adjacent writes, [`WriteBack`] acknowledges from memory or from a
//! [`WriteLog`], [`Limited`] enforces IOPS and bandwidth limits and schedules volumes fairly. [`CachedVolume`]
//! stacks all of them and changes its [`Policy`] during I/O.
//!
//! The engine wraps each volume of a pool in a [`CachedVolume`]. The cache must never acknowledge a write earlier
//! than the policy allows, evict dirty data, or return a page that does not match its checksum while checking is on.
//! docs/cache.md describes the whole; docs/adr/0008-cache.md gives the reasons.

mod bug_injection;
mod finding;
mod limits;
mod log;
mod merge;
pub mod policy;
mod read;
#[cfg(test)]
mod rig;
mod runtime;
mod stalls;
#[cfg(test)]
mod tests;
mod volume;
mod write;

pub use finding::{Finding, Findings, Layer, VolumeId};
pub use limits::{Limited, Scheduler};
pub use log::{LogCounters, LogError, LogId, LogOwner, Recovery, Replayed, WriteLog};
pub use merge::{MergeCounters, Merged};
pub use policy::{Check, Limits, Policy, ReadAhead, Share, WritePolicy};
pub use read::{Cached, ReadCache, ReadCounters};
pub use runtime::Runtime;
pub use stalls::Stall;
pub use volume::{CacheShard, CachedVolume, VolumeCounters};
pub use write::{WriteBack, WriteCounters, WriteMemory};
