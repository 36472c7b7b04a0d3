//! Operations of an administrator: one part per noun, one or more files per part.
//!
//! Every change takes the change lock, checks what only the control plane knows, sends orders to the data plane
//! where disks are concerned, commits the state, and then answers.

pub(crate) mod auth;
pub(crate) mod batch;
pub(crate) mod copies;
pub(crate) mod disks;
pub(crate) mod explain;
pub(crate) mod host_groups;
pub(crate) mod hosts;
mod log;
mod luns;
mod maintenance;
mod members;
mod multi_target;
pub(crate) mod pool_recovery;
pub(crate) mod pools;
pub(crate) mod portal_groups;
pub(crate) mod portals;
pub(crate) mod presentations;
pub(crate) mod remote;
pub(crate) mod scrubs;
pub(crate) mod snapshots;
pub(crate) mod spares;
pub(crate) mod targets;
pub(crate) mod volumes;
