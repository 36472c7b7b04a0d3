//! What the array should be, who asks for it, and how it comes back after a crash.
//!
//! [`Control`] is a list of parts, one for each noun or watcher: `control.pools.create(…)`. A part reaches the parts that its fields name and no
//! others; all of them stand on [`Core`].
//!
//! One task at a time changes the [`State`]; it is kept in a folder of small files by [`Store`]; the data plane
//! is told by `model::Order` and answers with `model::Report`. Who asks comes through the crate `api`.
//!
//! # What a crash leaves
//!
//! Each change has one instant at which it becomes true, and everything before it can be undone:
//!
//! | what | who knows it | the instant |
//! |---|---|---|
//! | disk added, removed; host, target, presentation; volume without a pool | our store | the store's commit |
//! | pool made | the disks | the store's commit that records it; until then a *pending* record names the disks to wipe |
//! | pool destroyed | the disks | the commit of a *pending* record; what is left of the labels is wiped at the next start |
//! | volume in a pool made, grown, deleted; disk failed, replaced | the pool itself | the pool's own commit |
//!
//! The store only remembers where to look for a disk. What the disk is, its label says.

mod absences;
mod access;
mod boot;
mod change;
mod coming_spares;
pub mod config;
mod control;
mod core;
mod descriptors;
mod devices;
mod engine;
mod event_log;
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
mod medium;
mod memberships;
pub mod memory;
mod notices;
mod operations;
mod privileged;
mod recording;
mod refused;
pub mod request;
mod room;
mod search;
pub mod secret_hex;
mod sessions;
mod settings;
mod standing;
mod state;
mod steward;
mod store;
mod system;
mod trace;
mod unknown;
mod verdict;
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
pub use event_log::{EVENTS_KEPT, Wanted};
pub use health::Health;
pub use live::Live;
pub use memory::Memory;
pub use notices::Notices;
pub use operations::Operations;
pub use privileged::{Confinement, Privileged, Program, Ran};
pub use recording::{Recording, Summary};
pub use refused::RefusedLogins;
pub use request::{from_hex, to_hex};
pub use room::Room;
pub use sessions::Sessions;
pub use settings::Settings;
pub use standing::{stands, waits_for_operator};
pub use state::State;
pub use steward::Steward;
pub use store::{AuditHead, Opening, StateReport, Store, recover};
pub use system::{now, random};
pub use trace::Traces;
pub use verdict::{Condition, Conditions, Status};
pub use view::{AuthReport, FormerLun, HostGroupReport, HostReport, PresentationReport, ProofReport, TargetReport};

#[cfg(test)]
mod tests;
