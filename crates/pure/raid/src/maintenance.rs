//! Maintenance during host I/O: rebuild, scrub, resync, growth, reshape, copying, and the return of a member.
//!
//! Each file adds its command to [`Array`](crate::Array) and runs it beside host commands, a few stripes at a time
//! under their locks. The pool calls them; the write path knows nothing of them.

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
