//! Shared iSCSI initiator: RFC 7143's client side over any [`shard::World`].
//!
//! Four layers, each usable without the ones above it: [`wire`] moves bytes between a protocol machine and a stream;
//! [`login`] brings a connection to full feature phase; [`Session`] lets many callers run commands concurrently;
//! [`RemoteDisk`] is a [`block::BlockDevice`] over one logical unit and one or more paths to it.
//!
//! Callers: the data plane (members of pools that are disks of other arrays), the lab, the simulator, conformance
//! checks. Must never: open files, read a clock or draw random bytes except through the world; acknowledge a write
//! whose state on a lost path is unknown (see [`fence`]).

pub mod cdb;
pub mod disk;
pub mod fence;
pub mod login;
pub mod outcome;
pub mod page;
pub mod session;
pub mod wire;

#[cfg(test)]
mod tests;

pub use disk::{
    BlockBytesError, Closing, DiskConfig, DiskEvent, OpenError, OpenMode, PathReport, PathState, RemoteDisk,
};
pub use fence::FenceError;
pub use login::{LoggedIn, Login, LoginError, log_in};
pub use session::{Session, SessionError};
