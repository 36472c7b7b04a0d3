//! The storage engine: shards, pools, units, their back ends, and the orders of the control plane.
//!
//! Generic over [`shard::World`], so the same code runs on Linux and in the simulator. The daemon builds one
//! [`ShardContext`] for each shard; front ends serve the [`unit`]s to hosts over the traits in [`front`], and the
//! [`conductor`] carries out the orders of the control plane. The engine must never know a host protocol nor make a
//! system call.

// The device layers below a volume are nested futures; computing their layout exceeds the default recursion limit.
#![recursion_limit = "256"]

mod array;
mod backends;
pub mod conductor;
mod counted;
mod events;
mod fence;
pub mod front;
mod homes;
mod in_flight;
mod inspect;
mod latency;
mod limits;
mod locate;
mod loss_tracking;
mod memberships;
mod overlay;
pub mod peers;
mod pool;
mod remote;
mod shard_context;
pub mod unit;

pub use events::Events;
pub use homes::{VolumeHome, VolumeHomes, home_of};
pub use latency::Latencies;
pub use limits::{Budget, Limits};
pub use shard_context::{FrontShard, ShardContext, ShardSeed, Withdrawn, shard_seeds};
pub use volume::{STATE_COPIES_AT, STATE_COPIES_BYTES, state_copies};
