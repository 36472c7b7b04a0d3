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
//!
//! Users and receivers of alerts are kept by the doors, above this crate. They take part as an [`Annex`]: planned with the rest, changed
//! before who sees what, and taken back with it.

pub(crate) mod access;
mod annex;
mod apply;
mod back;
mod document;
pub(crate) mod export;
mod makes;
mod plan;
mod setup;
mod steps;

use crate::access::Access;
use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::change::portals::Portals;
use crate::change::presentations::Presentations;
use crate::change::spares::Spares;
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::isns::IsnsRegistration;
use crate::sessions::Sessions;
pub use annex::{Annex, AnnexPlan, Pending, ReceiverEntry, UserEntry};
pub use apply::{Applied, ApplyConfig, PastConfig, RestoreConfig};
pub use document::{
    AuthEntry, ChapEntry, DOCUMENT_BYTES_MAX, DiscoveryEntry, DiskEntry, Document, FormerLunEntry, GroupEntry,
    HostEntry, PoolEntry, PortalEntry, PortalGroupEntry, PresentEntry, SpareEntry, TargetEntry, VolumeEntry,
};
pub use plan::{Plan, Step, StepKind, changes};
pub use setup::SetupReport;
use std::sync::Arc;

/// The configuration as a document: planned, applied, exported, restored.
pub struct Configuration {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) spares: Arc<Spares>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) portals: Arc<Portals>,
    pub(crate) presentations: Arc<Presentations>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) isns: Arc<IsnsRegistration>,
    /// One document is applied at a time.
    pub(crate) applying: tokio::sync::Mutex<()>,
}

#[cfg(test)]
pub mod tests;
