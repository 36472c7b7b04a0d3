//! The iSCSI front end: portals, connections, sessions, who may see what, and the SCSI units over the engine's units.
//!
//! The path of a command: `portal` accepts and deals, `connection` receives and lets the machine of RFC 7143 parse,
//! `session` says which unit a LUN is, `scsi_unit` is the SCSI device server over what holds the data. [`conduct`] starts
//! the engine's conductor with this front end beside it.

// The layers below a volume are futures within futures, and their layouts are queries within queries.
#![recursion_limit = "256"]

pub mod access;
mod balance;
mod connection;
mod faces;
mod front_end;
mod hidden;
mod iscsi_shard;
mod joiner;
mod links;
mod logins;
pub mod nexus;
mod portal;
mod reach;
mod recording;
pub mod registry;
mod repeats;
mod replaced;
mod scsi_unit;
mod session;
mod start;
mod turns;

pub use front_end::{Facts, conduct};
pub use iscsi_shard::IscsiShard;
pub use links::{Links, NoLink};
pub use start::{Ticket, target_config, tickets};
