//! The array as one document: what it is, what would change if it were another, and the change, whole or not at all.
//!
//! ```text
//! export   what there is → Document
//! plan     Document → the state as it would be → steps, with what each does to those who are logged in
//! apply    make what is missing → commit who sees what, as one → set and grow
//! ```
//!
//! Who sees what (hosts, groups, targets, presentations, portals' settings) is one commit of the state, so no host ever sees half
//! of it. Disks, pools, volumes and portals are made before it and taken back when it is refused. Data is never destroyed
//! by a document: what is not in it stays, unless it is pruned, and disks, pools and volumes stay always.

mod access;
mod apply;
mod back;
mod document;
mod export;
mod makes;
mod plan;
mod steps;

pub use apply::{Applied, ApplyConfig, PastConfig};
pub use document::{
    AuthEntry, ChapEntry, DiscoveryEntry, DiskEntry, Document, GroupEntry, HostEntry, PoolEntry, PortalEntry,
    PortalGroupEntry, PresentEntry, SpareEntry, TargetEntry, VolumeEntry,
};
pub use plan::{Plan, Step, StepKind};

#[cfg(test)]
mod tests;
