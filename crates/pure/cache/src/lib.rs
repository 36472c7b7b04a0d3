//! Caching, and the policies of a volume: what is kept in memory, read early, written late, and how fast.
//!
//! Everything here is a sleeve, a [`BlockDevice`](block::BlockDevice) over one, and each can be used alone:
//! [`Cached`] keeps and reads ahead, [`Merged`] joins small neighbouring writes, [`WriteBack`] acknowledges
//! from memory or from a [`WriteLog`], [`Limited`] holds a volume to its limits and shares out what there is.
//! [`PolicedVolume`] wears all of them and changes its [`Policy`] while it is used. docs/cache.md tells the
//! whole; docs/adr/0008-cache.md says why it is so.

mod finding;
mod holds;
mod limits;
mod log;
mod merge;
pub mod policy;
mod read;
#[cfg(test)]
mod rig;
mod runtime;
mod sabotage;
#[cfg(test)]
mod tests;
mod volume;
mod write;

pub use finding::{Finding, Findings, Layer, VolumeId};
pub use holds::Hold;
pub use limits::{Limited, Scheduler};
pub use log::{LogCounters, LogError, LogId, LogOwner, Recovery, Replayed, WriteLog};
pub use merge::{MergeCounters, Merged};
pub use policy::{Check, Limits, Policy, ReadAhead, Share, WritePolicy};
pub use read::{Cached, ReadCache, ReadCounters};
pub use runtime::Runtime;
pub use volume::{CacheShard, PolicedVolume, VolumeCounters};
pub use write::{WriteBack, WriteCounters, WriteMemory};
