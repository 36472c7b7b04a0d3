//! Pool ownership: all decisions about claims, leases, fencing and takeover, as pure functions of what was read
//! and of the time.
//!
//! A node with an open pool writes its [`Claim`] to every member disk, every [`HEARTBEAT`]. It stops writing
//! data when its last heartbeat is older than its [`LEASE`]; another node may take the pool when the claim has
//! not moved for [`WATCH`]. `pure/volume` reads and writes the claims and asks here what they mean;
//! `plane/engine` holds back writes by the [`Lease`]. Nothing here may read a disk or a clock. Rules:
//! `docs/on-disk.md`, *Owner's mark*; guarantees: `docs/promises.md`.
//!
//! | question | asked by | function |
//! |---|---|---|
//! | may this node open the pool? | import, start | [`decide_takeover`] |
//! | does another node use a disk that is to be overwritten? | pool create, replace | [`Claim::moved_since`] |
//! | was the claim contested while it was written? | new claim | [`contested_before`], [`contested_after`] |
//! | was the pool lost to another owner? | each heartbeat and commit | [`Claim::has_taken_over`] |
//! | is the owner's own mark still present? | each heartbeat | [`last_mark`] |
//! | may a write go to a disk? | each write | [`Lease::admits`] |

mod claim;
mod contention;
mod lease;
mod takeover;

pub use claim::{Claim, DiskClaim, Node, newest};
pub use contention::{LastMark, contested_after, contested_before, last_mark};
pub use lease::{Admission, HEARTBEAT, LEASE, LEASE_WAIT_MAX, Lease, WATCH};
pub use takeover::{Takeover, decide_takeover, must_be_watched};
