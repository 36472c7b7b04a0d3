//! iSCSI front end: portals, connections, sessions, access control, and the SCSI logical units on top of the engine's
//! units.
//!
//! Path of a command: `portal` accepts a connection and assigns it to a shard, `connection` receives and passes the
//! bytes to the RFC 7143 state machine, `session` maps the LUN to a unit, `scsi_unit` is the SCSI device server on top
//! of the engine's unit. [`conduct`] starts the engine's conductor together with this front end.
//!
//! The front end never touches a volume outside its home shard: a command for a unit of another shard is sent there as
//! a message.

// The layers below a volume are nested futures, and their layouts are nested compiler queries.
#![recursion_limit = "256"]

pub mod access;
mod balance;
mod coalesced_events;
mod connection;
mod front_end;
mod iscsi_shard;
mod joining_connection;
mod links;
mod logins;
pub mod nexus;
mod portal;
mod recording;
pub mod registry;
mod replaced_luns;
mod scheduling;
mod scsi_unit;
mod session;
mod start;
mod unit_factory;
mod unit_route;
mod unmapped_lun;

pub use front_end::{Facts, conduct};
pub use iscsi_shard::IscsiShard;
pub use links::{Links, NoLink};
pub use start::{ShardSeed, shard_seeds, target_config};
