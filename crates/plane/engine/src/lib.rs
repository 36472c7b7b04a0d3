//! The storage engine: shards, pools, units, their back ends, and the orders of control. It knows no host protocol.
//!
//! Generic over [`shard::World`], so it runs the same on Linux and in the simulator. A front end serves the [`unit`]s to
//! hosts; what the engine asks of it is in [`front`]. The [`conductor`] answers control's orders.

// The layers below a volume are futures within futures, and their layouts are queries within queries.
#![recursion_limit = "256"]

mod array;
mod backends;
pub mod conductor;
mod counted;
mod events;
mod fence;
pub mod front;
mod guarded;
mod homes;
mod inspect;
mod latency;
mod limits;
mod locate;
mod memberships;
mod overlay;
pub mod peers;
mod pool;
mod remote;
mod shard_context;
pub mod unit;
mod unlanded;

pub use events::Events;
pub use homes::{VolumeHome, VolumeHomes, home_of};
pub use latency::Latencies;
pub use limits::{Budget, Limits};
pub use shard_context::{FrontShard, ShardContext, Ticket, Withdrawn, tickets};
pub use volume::{STATE_COPIES_AT, STATE_COPIES_BYTES, state_copies};
