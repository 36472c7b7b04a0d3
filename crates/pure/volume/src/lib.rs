//! Pools and volumes: the on-disk format of member disks, pool discovery and ownership, and volumes allocated
//! from slabs of the pool's disk groups.
//!
//! Opening a pool: [`probe`] every disk, [`assemble`] the results, build one array per group over [`Window`]s
//! of the members' data areas, then [`Pool::open`]. The engine calls this crate; it knows disks and groups only
//! as [`block::BlockDevice`]s with blocks of 4096 bytes and keeps everything that a pool must remember in its
//! [`Catalog`], a copy of which is on every member disk. It must never do I/O of its own, read a clock or write
//! to a pool that it does not own.

mod assembly;
pub mod bug_injection;
pub mod catalog;
mod crypt;
mod error;
mod family;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod label;
pub mod layout;
mod map;
mod maplog;
pub mod owner;
mod pool;
mod probe;
mod sectors;
mod signature;
pub mod slot;
mod space;
mod state_copy;
mod store;
mod thin;
mod tree;
mod usage;
mod volume;
mod window;

pub use assembly::{
    AssembledGroup, AssembledPool, Assembly, Damage, DiskRefusal, DiskState, OVERTAKE_MAX, PoolRefusal, Position,
    SplitPart, Structure, UnreadablePool, assemble,
};
pub use catalog::{
    Catalog, CopyRecord, GroupRecord, GroupRole, LogRecord, LogState, LostRecord, MemberRecord, MemberState, PoolPhase,
    SOURCE_BYTES_MAX, ScrubPhase, ScrubPosition, ScrubRecord, VolumeRecord,
};
pub use crypt::{KeyError, KeyId, NewKey, PoolKey, WrappedKey};
pub use error::PoolError;
pub use family::check::{CheckReport, Finding, FindingKind};
pub use family::plan::{
    ClonePlan, FamilyStatus, GcProgress, Lock, MaintenanceResult, MapRepair, MappedRun, Provisioning, SnapshotPlan,
    SnapshotStatus, SpaceEvent, ThinPlan, ThinStatus, Thresholds,
};
pub use label::Label;
pub use layout::{BLOCK_BYTES, DISK_BYTES_MIN, data_area, member_area};
pub use owner::FenceReason;
pub use pool::{
    BlockUse, BlockUser, BlockUses, CreatePool, DamagedMetadata, GroupPlan, GroupStatus, LabelParams, Members, NewDisk,
    Ownership, Pool, PoolSpace, PoolStatus, VolumePlan, VolumeStatus, WriteLog,
};
pub use probe::{Contents, Member, Probe, probe, wipe};
pub use sectors::{Emulated512, blocks_of_sectors};
pub use state_copy::{STATE_COPIES_AT, STATE_COPIES_BYTES, STATE_COPY_BYTES_MAX, StateCopy, state_copies};
pub use thin::{CopyProgress, ThinVolume};
pub use uuid::Uuid;
pub use volume::Volume;
pub use window::Window;

#[cfg(test)]
mod tests;
