//! Arrays: several member devices that are one [`BlockDevice`](block::BlockDevice), and survive the loss of some.
//!
//! [`Array`] serves and repairs; [`Layout`] says where every block lies; [`plan`] chooses the cheapest way
//! to write part of a stripe. What a member's failure means is decided in `failure`, and nowhere else.
//! docs/raid.md draws the layouts and says what a crash can leave.

mod array;
mod background;
mod commit;
mod error;
mod failure;
mod flush;
pub mod geometry;
mod level;
mod member;
pub mod plan;
mod read;
mod rebuild;
mod restore;
mod status;
mod verify;
mod write;

pub use array::Array;
pub use error::{ArrayError, FailError, RebuildError, ReplaceError};
pub use failure::FailureLog;
pub use geometry::{BLOCK_BYTES, CHUNK_BYTES, CHUNK_BYTES_DEFAULT, Layout, MEMBERS_MAX, capacity};
pub use level::{Level, UnknownLevel};
pub use member::MemberState;
pub use rebuild::{RebuildOwner, Rebuilt};
pub use status::{Counters, MemberStatus, PlanCount, Status};
pub use verify::{Progress, Verified};
