//! Errors for the operator: an array cannot be created, opened or grown, or a member cannot be failed, replaced or
//! rebuilt.
//!
//! Each text says what is wrong and what would be right.

use crate::bounds::{BLOCK_BYTES, CHUNK_BYTES, GROWTHS_MAX, MEMBERS_MAX};
use crate::level::Level;
use block::{IoError, in_units};
use std::ops::Range;

/// Invalid shape or members of an array. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// Too few members for the level.
    #[error("{level} needs at least {} members, not {members}", level.members_min())]
    TooFewMembers {
        /// Level requested.
        level: Level,
        /// Number of members given.
        members: usize,
    },
    /// More members than any array may have.
    #[error("an array has at most {MEMBERS_MAX} members, not {members}")]
    TooManyMembers {
        /// Number of members given.
        members: usize,
    },
    /// Odd number of members; RAID-10 is made of pairs.
    #[error("RAID-10 needs an even number of members, not {members}")]
    OddMembers {
        /// Number of members given.
        members: usize,
    },
    /// Chunk size out of range, or not a power of two.
    #[error("a chunk is a power of two from {} to {}, not {}", of(*CHUNK_BYTES.start()), of(*CHUNK_BYTES.end()), of(*chunk_bytes))]
    ChunkSize {
        /// Chunk size requested, in bytes.
        chunk_bytes: u32,
    },
    /// Block size of a member differs from the array's.
    #[error("member {member} has blocks of {block_bytes} bytes; an array needs members with blocks of {BLOCK_BYTES}")]
    BlockSize {
        /// Number of the member.
        member: u16,
        /// Size of its blocks, in bytes.
        block_bytes: u32,
    },
    /// Members too small for a single chunk.
    #[error("the smallest member has {}; it must hold at least one chunk of {}", of_blocks(*blocks, false), of_blocks(*chunk_blocks, true))]
    TooSmall {
        /// Blocks of the smallest member.
        blocks: u64,
        /// Blocks of a chunk.
        chunk_blocks: u64,
    },
    /// Member smaller than the array was laid out for.
    #[error("member {member} has {}; this array needs members of at least {}", of_blocks(*blocks, false), of_blocks(*needed, true))]
    MemberTooSmall {
        /// Number of the member.
        member: u16,
        /// Blocks of the member.
        blocks: u64,
        /// Blocks that the layout needs.
        needed: u64,
    },
    /// Number of places differs from that of the layout.
    #[error("the layout has {expected} members, not {members}")]
    MemberCount {
        /// Places of the layout.
        expected: u16,
        /// Places given.
        members: usize,
    },
    /// Too many members missing to serve every block.
    #[error("{missing} members are missing; {level} cannot serve its data without them")]
    TooManyMissing {
        /// Level of the array.
        level: Level,
        /// Number of missing members.
        missing: usize,
    },
}

/// Reason why a member was not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailError {
    /// No such member.
    #[error("the array has no member {0}")]
    NoSuchMember(u16),
    /// The member has failed or is missing already.
    #[error("member {0} is not in service")]
    NotInService(u16),
    /// The array could not serve its data without the member.
    #[error("the array cannot serve its data without member {0}")]
    Needed(u16),
    /// The failure could not be recorded durably, or the array has stopped.
    #[error("the failure was not recorded: {0}")]
    NotRecorded(IoError),
}

/// Reason why a member was not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// No such member.
    #[error("the array has no member {0}")]
    NoSuchMember(u16),
    /// The place has a working member.
    #[error("member {0} is in service or being rebuilt; fail it before it is replaced")]
    InUse(u16),
    /// A reshape is in progress; members are replaced after it.
    #[error("the array is being reshaped; a member is replaced after that")]
    Reshaping,
    /// The device does not fit the array.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
}

/// Reason why a rebuild failed. The member is not in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// No such member.
    #[error("the array has no member {0}")]
    NoSuchMember(u16),
    /// The place has no replacement, or its rebuild is running already.
    #[error("member {0} does not wait for a rebuild")]
    NotWaiting(u16),
    /// The replacement failed, or was removed, during the rebuild.
    #[error("the replacement of member {0} failed during the rebuild")]
    ReplacementLost(u16),
    /// The array has stopped, or the owner could not commit.
    #[error("the rebuild stopped: {0}")]
    Stopped(IoError),
}

/// Reason why a member was not copied. It serves as before, unless it failed itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The member is not in service, or is being copied already.
    #[error("member {0} is not in service, or is being copied already")]
    NotInService(u16),
    /// A reshape is in progress; members are copied after it.
    #[error("the array is being reshaped; a member is copied after that")]
    Reshaping,
    /// The device does not fit the array.
    #[error(transparent)]
    Unfit(ArrayError),
    /// The device copied to has failed.
    #[error("the new disk failed: {0}")]
    CopyLost(IoError),
    /// The member failed during the copy.
    #[error("the member failed while it was copied: {0}")]
    MemberLost(IoError),
    /// The array has stopped, or the owner could not commit.
    #[error("the copy stopped: {0}")]
    Stopped(IoError),
}

/// Reason why an array did not grow. It serves as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    /// The array keeps no checksums.
    #[error("only protected arrays grow")]
    NotProtected,
    /// Another change of the shape is in progress; only one is allowed at a time.
    #[error("the array is growing or being reshaped already")]
    Busy,
    /// A member is out of service: blocks are not moved with redundancy missing from the start.
    #[error("member {0} is not in service; replace and rebuild it first")]
    NotInService(u16),
    /// The new member size is not larger than the one in use.
    #[error("the array uses {used} blocks of each member already; {blocks} are not more")]
    NotLarger {
        /// Blocks of each member requested.
        blocks: u64,
        /// Blocks of each member in use.
        used: u64,
    },
    /// The list of growths is full.
    #[error("the array has grown {GROWTHS_MAX} times; it cannot grow by larger members again")]
    TooOften,
    /// The level cannot be reshaped: striped levels without parity are not.
    #[error("{0} cannot be given another member; RAID-1, RAID-5 and RAID-6 can")]
    Level(Level),
    /// The devices are not sufficient.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// The new member failed before the array relied on it.
    #[error("the new member failed before it was part of the array")]
    NewMemberFailed,
    /// The array has stopped. A change that had started continues when it is opened again.
    #[error("the array has stopped: {0}")]
    Stopped(#[from] IoError),
}

/// Result of opening a protected array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Members whose devices were given but rejected, with the reason. Nothing was written to them; the array serves
    /// without them.
    pub rejected: Vec<(u16, Rejected)>,
    /// Log batches that were replayed.
    pub batches: u64,
    /// Blocks that were written again from the log.
    pub images: u64,
    /// Blocks whose copies were compared because their last write may not have finished.
    pub resolved_blocks: u64,
    /// Numbers of log batches that cannot be read and whose loss the owner has accepted
    /// ([`Options::accept_log_loss`]): blocks that they had changed may be older than what was acknowledged.
    pub lost_batches: Vec<Range<u64>>,
    /// True where the device of the last place had not joined when the array was last used, and is not used;
    /// [`Array::add_member`] adds it.
    pub not_joined: bool,
}

/// Reason why a device is not the member that it was given as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The device has no protected array on it.
    #[error("it bears no array")]
    Blank,
    /// The device belongs to another array, or to one of another shape.
    #[error("it belongs to another array")]
    OtherArray,
    /// The device is another member of this array.
    #[error("it is member {0} of the array")]
    OtherMember(u16),
    /// The array was written without this device.
    #[error("it is older than the others")]
    Stale,
    /// The anchors of the device cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(IoError),
}

/// Reason why a protected array was not formatted or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The shape is invalid, or too many members are missing.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// Too many devices were rejected for the rest to serve. Nothing was written.
    #[error("{} devices are not the members that they were given as", .0.len())]
    Rejected(Vec<(u16, Rejected)>),
    /// No copy of the headers of these log batches can be read, and later batches exist: it is not known which blocks
    /// they had changed, so none may be served. Nothing was written.
    #[error(
        "{} batches of the redo log cannot be read on any member (the first is number {}), and which blocks they changed is \
         not known", .0.iter().map(|hole| hole.end - hole.start).sum::<u64>(), .0.first().map_or(0, |hole| hole.start)
    )]
    LogDamaged(Vec<Range<u64>>),
    /// Members failed while the array was formatted or its log replayed.
    #[error("the array cannot be brought into service: {0}")]
    Io(#[from] IoError),
}

/// Reason why a device could not return to its place. Nothing was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejoinError {
    /// No such member, or the array keeps no checksums.
    #[error("the array has no member {0} that could rejoin")]
    NoSuchMember(u16),
    /// The place has a working member.
    #[error("member {0} is in service or being rebuilt")]
    InUse(u16),
    /// The device does not fit the array.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// A reshape is in progress; members return after it.
    #[error("the array is being reshaped; a member returns after that")]
    Reshaping,
    /// The device is not the one that left, or not as it left: only [`Array::replace`] accepts it.
    #[error("the device is not the one that left: {0}")]
    NotTheOne(Rejected),
}

fn of(bytes: u32) -> String {
    in_units(bytes.into(), true)
}

fn of_blocks(blocks: u64, up: bool) -> String {
    // Saturates, because the sizes in an error may be those of any device.
    in_units(blocks.saturating_mul(BLOCK_BYTES.into()), up)
}
