//! Translation of errors of pools and arrays into refusals for the operator.

use super::OpenPool;
use model::{Code, Refusal, code};
use raid::{ArrayError, GrowError, OpenError};
use shard::World;
use volume::{PoolError, PoolRefusal};

/// Refusal for an error of an open pool; names the pool.
pub(super) fn refusal<W: World>(error: &PoolError, pool: &OpenPool<W>) -> Refusal {
    let mut refusal = plain(error);
    refusal.message = format!("pool {}: {}", pool.name, refusal.message);
    refusal
}

/// Refusal for an error of a pool that is not open.
pub(super) fn plain(error: &PoolError) -> Refusal {
    // The messages of the `volume` crate already say what to do.
    Refusal::new(code_of(error), error.to_string(), "")
}

fn code_of(error: &PoolError) -> Code {
    match error {
        PoolError::DiskTooSmall { .. } | PoolError::ReplacementTooSmall { .. } => code::DISK_TOO_SMALL,
        PoolError::DiskOfPool { .. } => code::DISK_IN_USE,
        PoolError::DiskForeign { .. } => code::DISK_FOREIGN,
        PoolError::DiskFails { .. } => code::DISK_UNREADABLE,
        PoolError::GroupFails { .. } | PoolError::CatalogLost => code::POOL_FAILED,
        PoolError::BlockSize { .. } => code::DISK_WRONG_KIND,
        PoolError::Plan(_) => code::LAYOUT_INVALID,
        PoolError::Refused(refused) => code_of_refused(refused),
        PoolError::NameInvalid(_) => code::NAME_INVALID,
        PoolError::NameTaken(_) | PoolError::IdTaken(_) | PoolError::SnapshotNameTaken(_) => code::NAME_TAKEN,
        PoolError::VolumeUnknown(_) => code::VOLUME_UNKNOWN,
        PoolError::SnapshotUnknown(_) => code::SNAPSHOT_UNKNOWN,
        PoolError::VolumeSize { .. } | PoolError::StripeUnit(_) => code::VOLUME_SIZE,
        PoolError::VolumeTooLarge { .. } => code::VOLUME_TOO_LARGE,
        PoolError::VolumeShrink { .. } => code::VOLUME_SHRINK,
        PoolError::VolumeBlockSize(_) => code::BLOCK_SIZE_INVALID,
        PoolError::Full { .. } | PoolError::NoRoom => code::POOL_FULL,
        PoolError::TooManyVolumes | PoolError::CatalogFull => code::LIMIT_REACHED,
        PoolError::TooManySnapshots | PoolError::TooDeep | PoolError::TooManyRollBacks => code::LIMIT_REACHED,
        PoolError::Granule(_) => code::GRANULE_INVALID,
        PoolError::NotEncrypted => code::VOLUME_NOT_ENCRYPTED,
        PoolError::Key(_) | PoolError::NoPoolKey | PoolError::SecondKey { .. } => code::POOL_KEY_WRONG,
        PoolError::KeyShared(_) => code::VOLUME_HAS_SNAPSHOTS,
        PoolError::MapDamaged { .. } => code::POOL_FAILED,
        PoolError::MemberUnknown(_) => code::DISK_NOT_MEMBER,
        PoolError::MemberState { .. } => code::DISK_HEALTHY,
        PoolError::DiskKnown(_) => code::DISK_KNOWN,
        // Numbers of groups come from the engine itself, so an unknown one is a fault of ours.
        PoolError::GroupUnknown(_) => code::INTERNAL,
        PoolError::HasVolumes(_) => code::POOL_IN_USE,
        PoolError::SnapshotLocked { .. } => code::SNAPSHOT_LOCKED,
        PoolError::SnapshotCloned { .. } | PoolError::CloneDeleting(_) => code::SNAPSHOT_IN_USE,
        PoolError::HasSnapshots(_) => code::VOLUME_HAS_SNAPSHOTS,
        PoolError::MembershipChanging => code::POOL_BUSY,
        PoolError::NotReached(_) => code::DISK_UNREADABLE,
        PoolError::LogKnown => code::LOG_KNOWN,
        PoolError::LogUnknown => code::LOG_UNKNOWN,
        PoolError::LogInUse(_) => code::LOG_IN_USE,
        PoolError::NotClaimed => code::POOL_FAILED,
        PoolError::Contested { .. } => code::POOL_OWNED,
        PoolError::Fenced { .. } => code::POOL_FENCED,
    }
}

fn code_of_refused(refused: &PoolRefusal) -> Code {
    match refused {
        PoolRefusal::Incomplete { .. } | PoolRefusal::Newer(_) => code::POOL_INCOMPLETE,
        PoolRefusal::Unfinished(_) | PoolRefusal::Destroyed(_) => code::POOL_UNKNOWN,
        PoolRefusal::Owned { .. } => code::POOL_OWNED,
        PoolRefusal::NotReleased { .. } => code::POOL_NOT_RELEASED,
        PoolRefusal::DuplicateDisk(_) => code::DISK_IN_USE,
        PoolRefusal::Split { .. } => code::POOL_SPLIT,
    }
}

/// Refusal for an array that cannot be created.
pub(super) fn array_refusal(error: &ArrayError) -> Refusal {
    let code = match error {
        ArrayError::TooFewMembers { .. } | ArrayError::OddMembers { .. } => code::TOO_FEW_MEMBERS,
        ArrayError::TooManyMembers { .. } => code::TOO_MANY_MEMBERS,
        ArrayError::ChunkSize { .. } => code::CHUNK_INVALID,
        ArrayError::BlockSize { .. } => code::DISK_WRONG_KIND,
        ArrayError::TooSmall { .. } | ArrayError::MemberTooSmall { .. } => code::DISK_TOO_SMALL,
        // The devices are counted by the engine, so a wrong number is a fault of ours.
        ArrayError::MemberCount { .. } => code::INTERNAL,
        ArrayError::TooManyMissing { .. } => code::POOL_INCOMPLETE,
    };
    Refusal::new(code, error.to_string(), "")
}

/// Refusal for a group that cannot grow.
pub(super) fn grow_refusal<W: World>(error: &GrowError, pool: &OpenPool<W>, group: usize) -> Refusal {
    let refuse = |code, why: String, hint: &str| {
        Refusal::new(code, format!("group {group} of pool {} cannot be expanded: {why}", pool.name), hint)
    };
    let add_group = "add a group with blockyard pool add-group";
    match error {
        GrowError::NotInService(member) => {
            let why = format!("disk {} is not in sync", pool.disk_name(group, *member));
            refuse(code::POOL_BUSY, why, "replace it and wait for the rebuild")
        }
        GrowError::Busy => {
            refuse(code::POOL_BUSY, "it is already being expanded".to_owned(), "wait until that has finished")
        }
        GrowError::NotProtected | GrowError::TooOften | GrowError::Level(_) => {
            refuse(code::GROUP_FIXED, error.to_string(), add_group)
        }
        GrowError::NotLarger { .. } => refuse(code::GROUP_FULL_SIZE, error.to_string(), "use larger disks"),
        GrowError::Unfit(error) => array_refusal(error),
        GrowError::NewMemberFailed => refuse(code::DISK_UNREADABLE, error.to_string(), "use another disk"),
        GrowError::Stopped(_) => refuse(code::POOL_FAILED, error.to_string(), "check the disks and cables"),
    }
}

/// Refusal for a protected array that cannot be created or opened; `disk_name` gives the names of members.
pub(super) fn open_refusal(error: &OpenError, disk_name: impl Fn(u16) -> String) -> Refusal {
    match error {
        OpenError::Unfit(error) => array_refusal(error),
        OpenError::Rejected(rejected) => {
            let each = rejected.iter().map(|(member, why)| format!("disk {}: {why}", disk_name(*member)));
            let message =
                format!("too many disks are missing, outdated or failed: {}", each.collect::<Vec<_>>().join("; "));
            Refusal::new(code::POOL_INCOMPLETE, message, "attach the most recently used disks")
        }
        OpenError::LogDamaged(_) => Refusal::new(
            code::REDO_LOG_DAMAGED,
            format!("a group cannot be opened: {error}. Nothing was written"),
            "attach the most recently used disks, if one is absent; otherwise open the pool with blockyard pool \
             import --accept-log-loss and check the volumes: blocks may be older than acknowledged",
        ),
        OpenError::Io(error) => {
            let disk = error.member.map(|member| format!(" (disk {})", disk_name(member))).unwrap_or_default();
            Refusal::new(
                code::POOL_FAILED,
                format!("too many disks failed: {error}{disk}"),
                "check the disks and cables",
            )
        }
    }
}
