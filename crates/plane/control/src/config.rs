//! Configuration as a document: export of the present one, plan of a change, and its application, all or
//! nothing.
//!
//! ```text
//! export   present configuration → Document
//! plan     Document → desired state → steps, each with its effect on sessions
//! apply    create what is missing → commit the access rules at once → set and grow
//! ```
//!
//! The access rules (hosts, groups, targets, presentations, settings of portals) are one commit of the state,
//! so no host ever sees half of a change. Disks, pools, volumes and portals are created before it, and removed
//! again when it is refused. A document never destroys data: objects that it does not name stay, unless it
//! prunes them, and disks, pools and volumes always stay.
//!
//! Users and alert receivers are kept by the front ends, above this crate. They take part as [`ExternalSections`]:
//! planned with the rest, changed before the access rules, and rolled back with them.

pub(crate) mod access;
mod apply;
mod document;
pub(crate) mod export;
mod external;
mod plan;
mod relogin;
mod resources;
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
pub use apply::{Applied, ApplyConfig, PastConfig, RestoreConfig};
pub use document::{
    AuthEntry, ChapEntry, DOCUMENT_BYTES_MAX, DiscoveryEntry, DiskEntry, Document, FormerLunEntry, GroupEntry,
    HostEntry, PoolEntry, PortalEntry, PortalGroupEntry, PresentEntry, SpareEntry, TargetEntry, VolumeEntry,
};
pub use external::{ExternalPlan, ExternalSections, ProvisionalChange, ReceiverEntry, UserEntry};
pub use plan::{Plan, Step, StepKind, changes};
pub use setup::SetupReport;
use std::sync::Arc;

/// Configuration document: plan, apply, export, restore.
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
    /// Serializes the application of documents.
    pub(crate) applying: tokio::sync::Mutex<()>,
}

#[cfg(test)]
pub mod tests;
