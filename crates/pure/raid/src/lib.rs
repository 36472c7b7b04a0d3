//! Arrays: several member devices that are one [`BlockDevice`](block::BlockDevice), and survive the loss of some.
//!
//! [`Array`] serves and repairs; [`Layout`] says where every block lies; [`plan`] chooses the cheapest way
//! to write part of a stripe. What a member's failure means is decided in `members/failure`, and nowhere else.
//! docs/raid.md draws the layouts and says what a crash can leave.

mod array;
mod best;
mod bounds;
mod commit;
mod error;
mod finding;
mod flush;
mod fresh;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod geometry;
mod grow;
mod level;
mod locks;
mod logged;
mod members;
mod on_disk;
mod open;
pub mod plan;
mod proof;
mod protect;
mod read;
mod rebuild;
mod recover;
mod redo;
mod rejoin;
mod reshape;
mod restore;
pub mod sabotage;
mod scrub;
mod status;
mod sums;
mod verify;

mod write;

pub use array::Array;
pub use bounds::{BLOCK_BYTES, CHUNK_BYTES, CHUNK_BYTES_DEFAULT, MEMBERS_MAX};
pub use error::{ArrayError, FailError, GrowError, RebuildError, ReplaceError};
pub use finding::{Finding, FindingKind, Outcome};
pub use geometry::{Layout, capacity};
pub use level::{Level, UnknownLevel};
pub use members::{FailureLog, MemberState, MemberStatus};
pub use on_disk::area::{Area, ring_blocks};
pub use open::{LeftOut, OpenError, Opened, RejoinError};
pub use protect::{Options, Shape};
pub use rebuild::{RebuildOwner, Rebuilt};
pub use scrub::{Repair, Scrubbed};
pub use status::{Counters, PlanCount, ProtectionStatus, Status};
pub use verify::{Progress, Verified};
