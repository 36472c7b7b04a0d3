//! Errors of pool operations, as sentences for the operator.

use crate::assembly::PoolRefusal;
use crate::crypt::KeyError;
use crate::layout::DISK_BYTES_MIN;
use crate::owner::FenceReason;
use block::{IoError, in_units};
use uuid::Uuid;

/// Reason why a pool operation was refused or failed. Nothing has changed unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Disk smaller than the minimum for a member.
    #[error("the disk has {}, but a member needs at least {}", in_units(*bytes, false), in_units(DISK_BYTES_MIN, true))]
    DiskTooSmall {
        /// UUID that the disk was to get.
        disk: Uuid,
        /// Size of the disk in bytes.
        bytes: u64,
    },
    /// Replacement disk with less data space than its group uses.
    #[error("the disk has room for {} of data, but its group needs {} of each member", in_units(*bytes, false), in_units(*needed_bytes, true))]
    ReplacementTooSmall {
        /// Data space of the disk in bytes.
        bytes: u64,
        /// Data space that the group uses of each member, in bytes.
        needed_bytes: u64,
    },
    /// Disk that belongs to another pool, which may be in use.
    #[error("the disk belongs to pool \"{pool_name}\" ({pool}); destroy that pool, or force it")]
    DiskOfPool {
        /// UUID that the disk was to get.
        disk: Uuid,
        /// UUID of that pool.
        pool: Uuid,
        /// Name of that pool.
        pool_name: String,
    },
    /// Disk with data of another system.
    #[error("the disk holds {what}; erase it, or force it")]
    DiskForeign {
        /// UUID that the disk was to get.
        disk: Uuid,
        /// Description of the content.
        what: String,
    },
    /// I/O error of a disk while it was made a member.
    #[error("the disk cannot be used: {error}")]
    DiskFails {
        /// UUID that the disk was to get.
        disk: Uuid,
        /// Error of the disk.
        error: IoError,
    },
    /// I/O error of a group.
    #[error("group {group} of the pool fails: {error}")]
    GroupFails {
        /// Index of the group.
        group: u16,
        /// Error of the group.
        error: IoError,
    },
    /// Device whose blocks are not of 4096 bytes.
    #[error("the device has blocks of {block_bytes} bytes; pools are made of devices with blocks of 4096 bytes")]
    BlockSize {
        /// Block size of the device in bytes.
        block_bytes: u32,
    },
    /// Plan of a pool that contradicts itself or exceeds a limit.
    #[error("the pool cannot be made: {0}")]
    Plan(&'static str),
    /// Pool that was found but cannot be opened as it is.
    #[error(transparent)]
    Refused(#[from] PoolRefusal),
    /// Name that is empty, too long or has control characters.
    #[error("\"{0}\" is not a name: use 1 to 63 bytes without control characters")]
    NameInvalid(String),
    /// Name that another volume has.
    #[error("the pool has a volume \"{0}\" already")]
    NameTaken(String),
    /// UUID that another volume has.
    #[error("the pool has a volume with identity {0} already")]
    IdTaken(Uuid),
    /// Unknown volume.
    #[error("the pool has no volume {0}")]
    VolumeUnknown(Uuid),
    /// Volume size that is zero or no multiple of the block size.
    #[error("{bytes} bytes is no size for a volume: it must be a positive multiple of {block_bytes} bytes")]
    VolumeSize {
        /// Requested size in bytes.
        bytes: u64,
        /// Block size of the volume in bytes.
        block_bytes: u32,
    },
    /// Volume size above the maximum.
    #[error("{} is too large: a volume has at most 64 TiB", in_units(*bytes, true))]
    VolumeTooLarge {
        /// Requested size in bytes.
        bytes: u64,
    },
    /// Attempt to shrink a volume.
    #[error("the volume has {} and cannot shrink to {}: volumes only grow", in_units(*bytes, true), in_units(*asked_bytes, false))]
    VolumeShrink {
        /// Current size in bytes.
        bytes: u64,
        /// Requested size in bytes.
        asked_bytes: u64,
    },
    /// Unsupported logical block size.
    #[error("{0} is no block size for a volume: use 512 or 4096")]
    VolumeBlockSize(u32),
    /// Stripe unit that does not fit the pool.
    #[error("{0} bytes is no stripe unit here: use a multiple of 4096 bytes that is no longer than a slab")]
    StripeUnit(u32),
    /// Pool with too little free space.
    #[error("the pool has {} free, but {} are needed", in_units(*free_bytes, false), in_units(*needed_bytes, true))]
    Full {
        /// Free space for volumes in bytes.
        free_bytes: u64,
        /// Required space in bytes.
        needed_bytes: u64,
    },
    /// Pool without space for what a volume must reserve; no certain amount was requested.
    #[error("the pool has no space left for the map of a volume")]
    NoRoom,
    /// Maximum number of volumes reached.
    #[error("the pool has 1024 volumes, and cannot have more")]
    TooManyVolumes,
    /// Catalog without room for the request.
    #[error("the catalog of the pool is full: its volumes lie in too many pieces; delete a volume, or make fewer")]
    CatalogFull,
    /// Unsupported granule size.
    #[error("{0} bytes is no granule: use a power of two from 16384 to 1048576 that is no longer than a slab")]
    Granule(u32),
    /// Unknown snapshot.
    #[error("the pool has no snapshot {0}")]
    SnapshotUnknown(Uuid),
    /// Name that another snapshot of the volume has.
    #[error("the volume has a snapshot \"{0}\" already")]
    SnapshotNameTaken(String),
    /// Maximum number of snapshots reached.
    #[error("the pool has 16384 snapshots, and cannot have more")]
    TooManySnapshots,
    /// Locked snapshot.
    #[error("the snapshot \"{name}\" is locked {}", if *until == u64::MAX { "permanently".to_owned() } else { format!("until {until} seconds after 1970") })]
    SnapshotLocked {
        /// Name of the snapshot.
        name: String,
        /// End of the lock in seconds since 1970.
        until: u64,
    },
    /// Snapshot that a clone depends on.
    #[error("the snapshot \"{snapshot}\" is the origin of volume \"{clone}\"; delete that first")]
    SnapshotCloned {
        /// Name of the snapshot.
        snapshot: String,
        /// Name of the clone.
        clone: String,
    },
    /// Snapshot whose clone is not completely deleted yet.
    #[error("the snapshot \"{0}\" is the origin of a volume that is being deleted; wait until that has ended")]
    CloneDeleting(String),
    /// Deletion of a volume with snapshots.
    #[error("the volume has {0} snapshots; delete them first")]
    HasSnapshots(usize),
    /// Clone chain of the maximum depth.
    #[error("clones of clones can be 16 deep, and this would be one more; copy the volume instead")]
    TooDeep,
    /// Roll-backs whose cleanup waits for snapshots.
    #[error("the volume was rolled back 64 times between snapshots that it still has; delete some of them first")]
    TooManyRollBacks,
    /// Unreadable map of a family.
    #[error("the map of the family of volume {family} is damaged: {what}; its volumes cannot be used, the others can")]
    MapDamaged {
        /// UUID of the family.
        family: Uuid,
        /// Description of the damage.
        what: String,
    },
    /// Key of an encrypted volume not available.
    #[error("the volume cannot be read: {0}")]
    Key(#[from] KeyError),
    /// Creation of an encrypted volume without a pool key.
    #[error("there is no pool key here, so no volume can be encrypted")]
    NoPoolKey,
    /// Creation of an encrypted volume under a pool key other than that of existing volumes.
    #[error(
        "encrypted volumes of the pool need pool key {wanted}, and this node has {own}; import the pool with the key file of {wanted} first"
    )]
    SecondKey {
        /// Pool key that wraps the keys of the pool's volumes.
        wanted: crate::crypt::KeyId,
        /// Pool key of this node.
        own: crate::crypt::KeyId,
    },
    /// Key replacement of a volume that is not encrypted.
    #[error("the volume is not encrypted")]
    NotEncrypted,
    /// Key replacement of a volume that shares its key.
    #[error("the volume shares its key with {0} other volumes and snapshots, which would be lost")]
    KeyShared(usize),
    /// Disk that is no member of the pool.
    #[error("no member of the pool is disk {0}")]
    MemberUnknown(Uuid),
    /// Member state that does not permit the operation.
    #[error("disk {disk} is {is}, so it cannot become {asked}")]
    MemberState {
        /// UUID of the disk.
        disk: Uuid,
        /// Current state.
        is: &'static str,
        /// Requested state.
        asked: &'static str,
    },
    /// UUID that a member of the pool has.
    #[error("the pool has a disk {0} already")]
    DiskKnown(Uuid),
    /// Unknown group.
    #[error("the pool has no group {0}")]
    GroupUnknown(u16),
    /// Catalog that no disk takes any more: the request may or may not have taken effect, and later ones are
    /// refused.
    #[error(
        "the catalog could not be written to any disk of the pool; it takes no more changes until it is opened again"
    )]
    CatalogLost,
    /// Destruction of a pool with volumes.
    #[error("the pool has {0} volumes; delete them first")]
    HasVolumes(usize),
    /// Another group being added or removed.
    #[error("another group of the pool is being added or removed; try again when that is done")]
    MembershipChanging,
    /// Disk of a new group that did not take a commit.
    #[error("disk {0} could not be written, so its group was not added")]
    NotReached(Uuid),
    /// Pool that already has a log group.
    #[error("the pool has a log already; remove that first")]
    LogKnown,
    /// Pool without a log group, or with another log.
    #[error("the pool has no such log")]
    LogUnknown,
    /// Log that volumes depend on.
    #[error("{0} volumes have data in the log of the pool; change their write policy first")]
    LogInUse(usize),
    /// Group without a member that took the owner mark.
    #[error("the pool could not be claimed: a group has no disk that can be written")]
    NotClaimed,
    /// Another owner that claimed the pool at the same time, or that had only seemed to be silent.
    #[error("node {node} uses the pool, or wants it at the same time; nobody has it now if it stopped, so try again")]
    Contested {
        /// Name of its node.
        node: String,
    },
    /// Pool lost to another owner.
    #[error("{0}; this node has stopped using the pool")]
    Fenced(FenceReason),
}
