//! RAID arrays: several member devices combined into one [`BlockDevice`](block::BlockDevice) that survives the loss
//! of some of them.
//!
//! From the bottom up: `geometry` and [`plan`] are arithmetic; `on_disk` is the byte layout of a protected array;
//! `members` are the devices, `locks` the row locks of stripes; `checksums` and `redo` make an array *protected*;
//! `stripes` reads and plans with redundancy. On these stand the three ways to serve commands, `plain`, `protected`
//! and `reshaping`, behind one `path`, and beside the commands `maintenance` and `recovery`. [`Array`] is the public
//! interface. Each module knows only those before it.
//!
//! The pool of the engine creates, opens and maintains arrays, and records durably which members are current
//! ([`FailureLog`], [`RebuildOwner`]). An array must never acknowledge a write or a flush before the failure of every
//! member that missed it is recorded, and a protected array must never return a block that does not match its
//! checksum.
//!
//! docs/raid.md draws the layouts and says what a crash can leave.

mod array;
mod bounds;
pub mod bug_injection;
mod checksums;
pub mod deadlines;
mod error;
mod finding;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod geometry;
mod level;
mod locks;
mod maintenance;
mod members;
mod on_disk;
mod open;
mod path;
mod plain;
pub mod plan;
mod protected;
mod recovery;
mod redo;
mod reshaping;
mod shape;
mod status;
mod stripes;

pub use array::Array;
pub use bounds::{BLOCK_BYTES, CHUNK_BYTES, MEMBERS_MAX};
pub use error::{
    ArrayError, CopyError, FailError, GrowError, OpenError, Opened, RebuildError, Rejected, RejoinError, ReplaceError,
};
pub use finding::{Finding, FindingKind, Outcome};
pub use geometry::{Layout, capacity};
pub use level::{Level, UnknownLevel};
pub use maintenance::{RebuildOwner, Rebuilt, Repair, Scrubbed};
pub use members::{FailureLog, MemberState, MemberStatus};
pub use on_disk::area::{Area, ring_blocks};
pub use shape::{Options, Shape};
pub use status::{Counters, PlanCount, Progress, ProtectionStatus, Status, Verified};
