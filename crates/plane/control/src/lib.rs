//! Control plane: the desired state of the array, every change to it, and recovery after a crash.
//!
//! [`Control`] is a list of parts, one for each noun or monitor: `control.pools.create(…)`. A part reaches the
//! parts that its fields name and no others; all of them stand on [`Core`].
//!
//! One task at a time changes the [`State`]; [`Store`] persists it as a folder of small files; the data plane
//! receives `model::Order` and answers with `model::Report`. Requests come in through the crate `api`. The
//! control plane never reads or writes the data of a volume.
//!
//! # Crash consistency
//! Each change has one commit point, and everything before it can be undone:
//!
//! | change | recorded by | commit point |
//! |---|---|---|
//! | disk added, removed; host, target, presentation; volume without a pool | our store | the store's commit |
//! | pool created | the disks | the store's commit; until then a *pending* record names the disks to wipe |
//! | pool destroyed | the disks | the commit of a *pending* record; remaining labels are wiped at the next start |
//! | volume in a pool created, expanded, deleted; disk failed, replaced | the pool itself | the pool's own commit |
//!
//! The store only remembers the path at which a disk was found last. The label on the disk identifies it.

mod access;
mod backing;
mod boot;
mod change;
mod closed_pools;
pub mod config;
mod control;
mod core;
mod descriptors;
mod devices;
mod engine;
mod event_log;
mod file_space;
mod findings;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod health;
mod impact;
mod isns;
mod listening;
pub mod live;
mod machine;
pub mod machine_id;
mod memberships;
pub mod memory;
mod notices;
mod operations;
mod pending_replacements;
mod privileged;
mod reconciler;
mod recording;
mod refused;
pub mod request;
mod search;
pub mod secret_hex;
mod sessions;
mod settings;
mod standing_conditions;
mod state;
mod status;
mod store;
mod system;
mod trace;
mod unknown;
mod view;

pub use self::core::Core;
pub use self::isns::{IsnsRegistration, RENAME_TARGET};
pub use change::auth::Authentication;
pub use change::copies::Copies;
pub use change::disks::Disks;
pub use change::explain::{Explanation, Point};
pub use change::host_groups::HostGroups;
pub use change::hosts::Hosts;
pub use change::pools::Pools;
pub use change::portal_groups::PortalGroups;
pub use change::portals::Portals;
pub use change::presentations::Presentations;
pub use change::scrubs::Scrubs;
pub use change::snapshots::Snapshots;
pub use change::spares::Spares;
pub use change::targets::Targets;
pub use change::volumes::Volumes;
pub use config::Configuration;
pub use control::{Control, confined};
pub use descriptors::Descriptors;
pub use devices::Devices;
pub use engine::Engine;
pub use event_log::{EVENTS_KEPT, EventFilter};
pub use file_space::FileSpaceMonitor;
pub use health::Health;
pub use live::Live;
pub use memory::Memory;
pub use notices::Notices;
pub use operations::Operations;
pub use privileged::{Confinement, Privileged, Program, ProgramOutput};
pub use reconciler::Reconciler;
pub use recording::{Recording, Summary};
pub use refused::RefusedLogins;
pub use request::{from_hex, to_hex};
pub use sessions::Sessions;
pub use settings::Settings;
pub use standing_conditions::{is_standing, waits_for_operator};
pub use state::State;
pub use status::{Condition, Conditions, Status};
pub use store::{AuditHead, StateReport, Store, StoreOptions, recover};
pub use system::{now, random};
pub use trace::Traces;
pub use view::{AuthReport, FormerLun, HostGroupReport, HostReport, PresentationReport, ProofReport, TargetReport};

#[cfg(test)]
mod tests;
