//! The data plane: portals, connections, LUN maps and shards; where the protocol and the storage meet.
//!
//! Generic over [`shard::World`], so it runs the same on Linux and in the simulator. The path of a
//! command: [`portal`] accepts and deals, `connection` receives and lets the machine of RFC 7143 parse,
//! [`session`] says which unit a LUN is, [`unit`] is the SCSI device server over what holds the data.
//! The [`conductor`] answers control's orders.

pub mod access;
mod array;
mod balance;
pub mod conductor;
mod connection;
mod counted;
mod events;
mod fence;
pub mod guesses;
mod hidden;
mod inspect;
mod joiner;
mod latency;
mod limits;
mod links;
mod locate;
mod logins;
pub mod nexus;
mod overlay;
mod pool;
mod portal;
mod reach;
mod recording;
pub mod registry;
mod remote;
mod repeats;
mod replaced;
pub mod seat;
mod session;
mod turns;
mod unit;

pub use conductor::{Facts, conduct};
pub use limits::{Budget, Limits};
pub use links::{Links, NoLink};
pub use seat::{Seat, Ticket, tickets};
pub use volume::{STATE_COPIES_AT, STATE_COPIES_BYTES, state_copies};
