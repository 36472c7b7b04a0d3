//! What the array should be, who asks for it, and how it comes back after a crash.
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

mod access;
mod boot;
mod change;
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
pub mod memory;
mod noticed;
mod operations;
mod parts;
mod privileged;
mod recording;
mod refused;
pub mod request;
mod room;
mod search;
pub mod secret_hex;
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
mod watching;

pub use self::core::Core;
pub use self::isns::RENAME_TARGET;
pub use access::Access;
pub use change::explain::{Explanation, Point};
pub use control::{Control, confined};
pub use engine::Engine;
pub use event_log::{EVENTS_KEPT, Wanted};
pub use privileged::{Confinement, Privileged, Program, Ran};
pub use recording::{Recording, Summary};
pub use request::{from_hex, to_hex};
pub use settings::Settings;
pub use standing::{stands, waits_for_operator};
pub use state::State;
pub use store::{AuditHead, Opening, StateReport, Store, recover};
pub use system::{now, random};
pub use verdict::{Condition, Conditions};
pub use view::{AuthReport, FormerLun, HostGroupReport, HostReport, PresentationReport, ProofReport, TargetReport};

#[cfg(test)]
mod tests;
