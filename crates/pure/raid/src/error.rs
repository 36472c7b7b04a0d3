//! What an operator is told when an array cannot be made, or a member cannot be failed, replaced or rebuilt.

use crate::bounds::{BLOCK_BYTES, CHUNK_BYTES, GROWTHS_MAX, MEMBERS_MAX};
use crate::level::Level;
use block::{IoError, in_units};
use std::ops::Range;

/// Why there can be no such array. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// The level needs more members.
    #[error("{level} needs at least {} members, not {members}", level.members_min())]
    TooFewMembers {
        /// The level that was asked for.
        level: Level,
        /// How many members there were.
        members: usize,
    },
    /// No array has that many members.
    #[error("an array has at most {MEMBERS_MAX} members, not {members}")]
    TooManyMembers {
        /// How many members there were.
        members: usize,
    },
    /// RAID-10 is made of pairs.
    #[error("RAID-10 needs an even number of members, not {members}")]
    OddMembers {
        /// How many members there were.
        members: usize,
    },
    /// The chunk size cannot be used.
    #[error("a chunk is a power of two from {} to {}, not {}", of(*CHUNK_BYTES.start()), of(*CHUNK_BYTES.end()), of(*chunk_bytes))]
    ChunkSize {
        /// The chunk size that was asked for.
        chunk_bytes: u32,
    },
    /// A member is addressed in other blocks than the array.
    #[error("member {member} has blocks of {block_bytes} bytes; an array needs members with blocks of {BLOCK_BYTES}")]
    BlockSize {
        /// Which member.
        member: u16,
        /// The size of its blocks.
        block_bytes: u32,
    },
    /// Not one chunk fits on a member.
    #[error("the smallest member has {}; it must hold at least one chunk of {}", of_blocks(*blocks, false), of_blocks(*chunk_blocks, true))]
    TooSmall {
        /// Blocks of the smallest member.
        blocks: u64,
        /// Blocks of a chunk.
        chunk_blocks: u64,
    },
    /// A member is smaller than the array was laid out for.
    #[error("member {member} has {}; this array needs members of at least {}", of_blocks(*blocks, false), of_blocks(*needed, true))]
    MemberTooSmall {
        /// Which member.
        member: u16,
        /// Its blocks.
        blocks: u64,
        /// What the layout needs.
        needed: u64,
    },
    /// There is another number of places than the layout has.
    #[error("the layout has {expected} members, not {members}")]
    MemberCount {
        /// How many places the layout has.
        expected: u16,
        /// How many were given.
        members: usize,
    },
    /// What is there does not suffice to serve every block.
    #[error("{missing} members are missing; {level} cannot serve its data without them")]
    TooManyMissing {
        /// The level of the array.
        level: Level,
        /// How many are missing.
        missing: usize,
    },
}

/// Why a member was not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailError {
    /// The array has no such member.
    #[error("the array has no member {0}")]
    NoSuchMember(u16),
    /// It is failed or missing already.
    #[error("member {0} is not in service")]
    NotInService(u16),
    /// The array could not serve its data without it.
    #[error("the array cannot serve its data without member {0}")]
    Needed(u16),
    /// The failure could not be made durable, or the array has stopped.
    #[error("the failure was not recorded: {0}")]
    NotRecorded(IoError),
}

/// Why a member was not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// The array has no such member.
    #[error("the array has no member {0}")]
    NoSuchMember(u16),
    /// Its place is taken by a member that works.
    #[error("member {0} is in service or being rebuilt; fail it before it is replaced")]
    InUse(u16),
    /// Members are replaced once the array is reshaped.
    #[error("the array is being reshaped; a member is replaced after that")]
    Reshaping,
    /// The device does not fit into the array.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
}

/// Why a rebuild ended before its end. The member is not in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// The array has no such member.
    #[error("the array has no member {0}")]
    NoSuchMember(u16),
    /// Nothing was put in its place, or the rebuild is running already.
    #[error("member {0} does not wait for a rebuild")]
    NotWaiting(u16),
    /// The replacement failed, or was taken out, while it was rebuilt.
    #[error("the replacement of member {0} failed during the rebuild")]
    ReplacementLost(u16),
    /// The array does not serve any more, or the owner could not commit.
    #[error("the rebuild stopped: {0}")]
    Stopped(IoError),
}

/// Why a member was not copied. It serves as before, unless it failed itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// There is no such member in service, or it is being copied already.
    #[error("member {0} is not in service, or is being copied already")]
    NotInService(u16),
    /// Members are copied once the array is reshaped.
    #[error("the array is being reshaped; a member is copied after that")]
    Reshaping,
    /// The device does not fit into the array.
    #[error(transparent)]
    Unfit(ArrayError),
    /// The device that was copied to failed.
    #[error("the new disk failed: {0}")]
    CopyLost(IoError),
    /// The member failed while it was copied.
    #[error("the member failed while it was copied: {0}")]
    MemberLost(IoError),
    /// The array does not serve any more, or the owner could not commit.
    #[error("the copy stopped: {0}")]
    Stopped(IoError),
}

/// Why an array did not become larger. It serves as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    /// The array keeps no sums.
    #[error("only protected arrays grow")]
    NotProtected,
    /// One change of shape at a time.
    #[error("the array is growing or being reshaped already")]
    Busy,
    /// Blocks are not moved while redundancy is missing from the beginning.
    #[error("member {0} is not in service; replace and rebuild it first")]
    NotInService(u16),
    /// The members' new size is not more than the old one.
    #[error("the array uses {used} blocks of each member already; {blocks} are not more")]
    NotLarger {
        /// What was asked for.
        blocks: u64,
        /// What is used.
        used: u64,
    },
    /// The list of growths is full.
    #[error("the array has grown {GROWTHS_MAX} times; it cannot grow by larger members again")]
    TooOften,
    /// Striped levels without parity are not laid out anew.
    #[error("{0} cannot be given another member; RAID-1, RAID-5 and RAID-6 can")]
    Level(Level),
    /// The devices do not suffice.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// The new member failed before the array relied on it.
    #[error("the new member failed before it was part of the array")]
    NewMemberFailed,
    /// The array does not serve any more. What had begun goes on when it is opened again.
    #[error("the array has stopped: {0}")]
    Stopped(#[from] IoError),
}

/// What opening a protected array has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Members whose devices were given and not used, for they are not what they should be. Nothing was
    /// written to them; the array serves without.
    pub left_out: Vec<(u16, LeftOut)>,
    /// Batches of the log that were replayed.
    pub batches: u64,
    /// Blocks that were written again from the log.
    pub images: u64,
    /// Blocks whose copies were compared to find out whether their last write had happened.
    pub judged: u64,
    /// Batches of the log that cannot be read, by their numbers, which the owner has accepted to lose
    /// ([`Options::accept_log_loss`]): what they had changed may be older than what was acknowledged.
    pub holes: Vec<Range<u64>>,
    /// The last place was not taken: its device had not joined when the array was used last. [`Array::add_member`]
    /// takes it.
    pub not_joined: bool,
}

/// Why a device is not the member that it was given as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// There is nothing of a protected array on it.
    #[error("it bears no array")]
    Blank,
    /// It belongs to another array, or to one of another shape.
    #[error("it belongs to another array")]
    OtherArray,
    /// It is another member of this array.
    #[error("it is member {0} of the array")]
    OtherMember(u16),
    /// The array went on without it.
    #[error("it is older than the others")]
    Stale,
    /// Its beginning cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(IoError),
}

/// Why a protected array was not made or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There can be no such array, or too much of it is missing.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// So many devices are not what they should be that the rest cannot serve. Nothing was written.
    #[error("{} devices are not the members that they were given as", .0.len())]
    LeftOut(Vec<(u16, LeftOut)>),
    /// No copy of the headers of these batches of the log can be read, and later ones are there: nobody knows which blocks
    /// they had changed, so none may be served. Nothing was written.
    #[error(
        "{} batches of the redo log cannot be read on any member (the first is number {}), and which blocks they changed is \
         not known", .0.iter().map(|hole| hole.end - hole.start).sum::<u64>(), .0.first().map_or(0, |hole| hole.start)
    )]
    LogDamaged(Vec<Range<u64>>),
    /// Members failed while the array was made or its log replayed.
    #[error("the array cannot be brought into service: {0}")]
    Io(#[from] IoError),
}

/// Why a device did not return to its place. Nothing was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejoinError {
    /// The array has no such member, or keeps no sums.
    #[error("the array has no member {0} that could rejoin")]
    NoSuchMember(u16),
    /// Its place is taken by a member that works.
    #[error("member {0} is in service or being rebuilt")]
    InUse(u16),
    /// The device does not fit into the array.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// Members return once the array is reshaped.
    #[error("the array is being reshaped; a member returns after that")]
    Reshaping,
    /// It is not the device that left, or not as it left: only [`Array::replace`] takes it.
    #[error("the device is not the one that left: {0}")]
    NotTheOne(LeftOut),
}

fn of(bytes: u32) -> String {
    in_units(bytes.into(), true)
}

fn of_blocks(blocks: u64, up: bool) -> String {
    in_units(blocks.saturating_mul(BLOCK_BYTES.into()), up)
}
