//! Maintenance while hosts are served: rebuild, scrub, resync, growth and reshape, and the return of a member.
//!
//! Every file adds its command to [`Array`](crate::Array) and does it beside the commands of hosts, a few stripes at a time under
//! their locks. Nothing of the write path knows of it.

mod copy;
mod grow;
mod join;
mod rebuild;
mod rebuild_pages;
mod rejoin;
mod reshape;
mod resync;
mod scrub;
mod scrub_checksums;

pub use rebuild::{RebuildOwner, Rebuilt};
pub(crate) use scrub::scrub_step;
pub use scrub::{Repair, Scrubbed};
