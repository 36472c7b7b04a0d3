//! What an operator can get wrong about a pool, each a sentence.

use crate::assembly::PoolRefusal;
use crate::crypt::KeyError;
use crate::layout::DISK_BYTES_MIN;
use crate::owner::Loss;
use block::{IoError, in_units};
use uuid::Uuid;

/// Why an operation on a pool was refused or failed. Unless it says otherwise, nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// A disk is smaller than the least that can be a member.
    #[error("the disk has {}, but a member needs at least {}", in_units(*bytes, false), in_units(DISK_BYTES_MIN, true))]
    DiskTooSmall {
        /// Which, by the identity that it was to get.
        disk: Uuid,
        /// Its size.
        bytes: u64,
    },
    /// A replacement offers less than the other members of its group use.
    #[error("the disk has room for {} of data, but its group needs {} of each member", in_units(*bytes, false), in_units(*needed_bytes, true))]
    ReplacementTooSmall {
        /// What it offers.
        bytes: u64,
        /// What the group uses of each member.
        needed_bytes: u64,
    },
    /// A disk belongs to a pool that may be in use.
    #[error("the disk belongs to pool \"{pool_name}\" ({pool}); destroy that pool, or force it")]
    DiskOfPool {
        /// Which disk, by the identity that it was to get.
        disk: Uuid,
        /// Whose it is.
        pool: Uuid,
        /// What that pool is called.
        pool_name: String,
    },
    /// A disk holds something that is not ours.
    #[error("the disk holds {what}; erase it, or force it")]
    DiskForeign {
        /// Which disk, by the identity that it was to get.
        disk: Uuid,
        /// What was found, in words.
        what: String,
    },
    /// A disk could not be read or written while it was being made a member.
    #[error("the disk cannot be used: {error}")]
    DiskFails {
        /// Which disk, by the identity that it was to get.
        disk: Uuid,
        /// What it answered.
        error: IoError,
    },
    /// A group of the pool could not be read or written.
    #[error("group {group} of the pool fails: {error}")]
    GroupFails {
        /// Which group, by its place.
        group: u16,
        /// What it answered.
        error: IoError,
    },
    /// The blocks of a device are not of 4096 bytes.
    #[error("the device has blocks of {block_bytes} bytes; pools are made of devices with blocks of 4096 bytes")]
    BlockSize {
        /// What it has.
        block_bytes: u32,
    },
    /// The plan of a pool contradicts itself or a limit.
    #[error("the pool cannot be made: {0}")]
    Plan(&'static str),
    /// The pool was found, but cannot be opened as it is.
    #[error(transparent)]
    Refused(#[from] PoolRefusal),
    /// A name is empty, too long or has control characters.
    #[error("\"{0}\" is not a name: use 1 to 63 bytes without control characters")]
    NameInvalid(String),
    /// Another volume has the name.
    #[error("the pool has a volume \"{0}\" already")]
    NameTaken(String),
    /// Another volume has the identity.
    #[error("the pool has a volume with identity {0} already")]
    IdTaken(Uuid),
    /// No volume has the identity.
    #[error("the pool has no volume {0}")]
    VolumeUnknown(Uuid),
    /// The size is zero or no multiple of the volume's block size.
    #[error("{bytes} bytes is no size for a volume: it must be a positive multiple of {block_bytes} bytes")]
    VolumeSize {
        /// What was asked for.
        bytes: u64,
        /// The volume's block size.
        block_bytes: u32,
    },
    /// The volume would be larger than any can be.
    #[error("{} is too large: a volume has at most 64 TiB", in_units(*bytes, true))]
    VolumeTooLarge {
        /// What was asked for.
        bytes: u64,
    },
    /// A volume was asked to become smaller.
    #[error("the volume has {} and cannot shrink to {}: volumes only grow", in_units(*bytes, true), in_units(*asked_bytes, false))]
    VolumeShrink {
        /// Its size.
        bytes: u64,
        /// What was asked for.
        asked_bytes: u64,
    },
    /// A block size that hosts do not know.
    #[error("{0} is no block size for a volume: use 512 or 4096")]
    VolumeBlockSize(u32),
    /// A stripe unit that does not fit the pool.
    #[error("{0} bytes is no stripe unit here: use a multiple of 4096 bytes that is no longer than a slab")]
    StripeUnit(u32),
    /// The pool has too little free space.
    #[error("the pool has {} free, but {} are needed", in_units(*free_bytes, false), in_units(*needed_bytes, true))]
    Full {
        /// What is free, in bytes that volumes can use.
        free_bytes: u64,
        /// What was needed.
        needed_bytes: u64,
    },
    /// The pool has nothing free for what a volume has to keep, and nobody has asked for a certain amount.
    #[error("the pool has no space left for the map of a volume")]
    NoRoom,
    /// The pool has as many volumes as it can.
    #[error("the pool has 1024 volumes, and cannot have more")]
    TooManyVolumes,
    /// The catalog has no room for what was asked.
    #[error("the catalog of the pool is full: its volumes lie in too many pieces; delete a volume, or make fewer")]
    CatalogFull,
    /// A granule of another size.
    #[error("{0} bytes is no granule: use a power of two from 16384 to 1048576 that is no longer than a slab")]
    Granule(u32),
    /// No volume of the pool has the snapshot.
    #[error("the pool has no snapshot {0}")]
    SnapshotUnknown(Uuid),
    /// Another snapshot of the volume has the name.
    #[error("the volume has a snapshot \"{0}\" already")]
    SnapshotNameTaken(String),
    /// The pool has as many snapshots as it can.
    #[error("the pool has 16384 snapshots, and cannot have more")]
    TooManySnapshots,
    /// The snapshot is locked.
    #[error("the snapshot \"{name}\" is locked {}", if *until == u64::MAX { "for ever".to_owned() } else { format!("until {until} seconds after 1970") })]
    SnapshotLocked {
        /// What it is called.
        name: String,
        /// When the lock ends, in seconds since 1970.
        until: u64,
    },
    /// The snapshot is what a clone is made of.
    #[error("the snapshot \"{snapshot}\" is the origin of volume \"{clone}\"; delete that first")]
    SnapshotCloned {
        /// What the snapshot is called.
        snapshot: String,
        /// What the clone is called.
        clone: String,
    },
    /// The snapshot is what a clone was made of that is not yet gone whole.
    #[error("the snapshot \"{0}\" is the origin of a volume that is being deleted; wait until that has ended")]
    CloneGoing(String),
    /// A volume with snapshots was to be deleted.
    #[error("the volume has {0} snapshots; delete them first")]
    HasSnapshots(usize),
    /// A clone of a clone of a clone, too often.
    #[error("clones of clones can be 16 deep, and this would be one more; copy the volume instead")]
    TooDeep,
    /// Roll-backs whose cleaning waits for snapshots.
    #[error("the volume was rolled back 64 times between snapshots that it still has; delete some of them first")]
    TooManyRollBacks,
    /// The map of a family cannot be read.
    #[error("the map of the family of volume {family} is damaged: {what}; its volumes cannot be used, the others can")]
    MapDamaged {
        /// Which family.
        family: Uuid,
        /// What is wrong with it.
        what: String,
    },
    /// The key of an encrypted volume cannot be had.
    #[error("the volume cannot be read: {0}")]
    Key(#[from] KeyError),
    /// An encrypted volume was to be made without a pool key.
    #[error("there is no pool key here, so no volume can be encrypted")]
    NoPoolKey,
    /// An encrypted volume was to be made under another key than those that are there.
    #[error(
        "encrypted volumes of the pool need pool key {wanted}, and this node has {own}; import the pool with the key file of {wanted} first"
    )]
    SecondKey {
        /// The key that volumes of the pool are wrapped with.
        wanted: crate::crypt::KeyId,
        /// The node's key of the pool.
        own: crate::crypt::KeyId,
    },
    /// The key of a volume was to be replaced that has none.
    #[error("the volume is not encrypted")]
    NotEncrypted,
    /// The key of a volume was to be replaced that shares it.
    #[error("the volume shares its key with {0} other volumes and snapshots, which would be lost")]
    KeyShared(usize),
    /// No member of the pool is this disk.
    #[error("no member of the pool is disk {0}")]
    MemberUnknown(Uuid),
    /// A disk that serves was to be replaced, or brought into a state that does not follow from its present one.
    #[error("disk {disk} is {is}, so it cannot become {asked}")]
    MemberState {
        /// Which disk.
        disk: Uuid,
        /// How it is.
        is: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
    /// The identity of a new member is taken.
    #[error("the pool has a disk {0} already")]
    DiskKnown(Uuid),
    /// A group was named that is not there.
    #[error("the pool has no group {0}")]
    GroupUnknown(u16),
    /// No disk takes the catalog any more: what was asked may be done or not done, and nothing can be asked again.
    #[error(
        "the catalog could not be written to any disk of the pool; it takes no more changes until it is opened again"
    )]
    CatalogLost,
    /// A pool with volumes was to be destroyed.
    #[error("the pool has {0} volumes; delete them first")]
    HasVolumes(usize),
    /// Another group is being added or removed.
    #[error("another group of the pool is being added or removed; try again when that is done")]
    Regrouping,
    /// A disk of a new group could not be brought to what the pool's others hold.
    #[error("disk {0} could not be written, so its group was not added")]
    NotReached(Uuid),
    /// The pool has a group for a write log.
    #[error("the pool has a log already; remove that first")]
    LogKnown,
    /// The pool has no group for a write log, or another log lies there.
    #[error("the pool has no such log")]
    LogUnknown,
    /// Volumes need the write log.
    #[error("{0} volumes have data in the log of the pool; change their write policy first")]
    LogInUse(usize),
    /// The members did not take the mark that says whose the pool is.
    #[error("the pool could not be claimed: a group has no disk that can be written")]
    NotClaimed,
    /// Somebody else claimed the pool at the same time, or had only seemed to be silent.
    #[error("node {node} uses the pool, or wants it at the same time; nobody has it now if it stopped, so try again")]
    Contested {
        /// Who it is.
        node: String,
    },
    /// The pool is not this node's any more.
    #[error("{0}; this node has stopped using the pool")]
    Fenced(Loss),
}
