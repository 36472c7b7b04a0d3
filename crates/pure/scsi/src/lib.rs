//! SCSI device server of a direct-access block device (SPC-4, SBC-4, SAM-5) over any [`block::BlockDevice`].
//!
//! The front end of a transport calls it; the crate itself knows no transport, does no I/O of its own and reads no
//! clock. A [`LogicalUnit`] executes [`Command`]s and returns [`Outcome`]s. [`judge`] computes the data transfer of a
//! command, or its refusal, before any data is solicited. [`no_unit`] answers for LUNs without a logical unit. One
//! table, `operation.rs`, lists the supported operations.
//!
//! Modules are listed in dependency order: a module imports only from its own group and from the groups above it, and
//! no two modules import each other in a circle.

// Byte formats and names.
mod cdb;
mod designator;
mod identity;
mod lun;
mod parsed_sense;
mod reply;
mod sense;

// A command: operation, reservation conflicts, and completion.
mod command;
mod conflict;
mod failure;
mod operation;
mod request;
mod shape;

// State of a unit that does not touch blocks.
mod log;
mod nexus;
mod persistence;
mod task_set;
mod threshold;
mod token;

// Components of a unit that execute commands.
mod alua;
mod copy;
mod medium;
mod mode;
mod readiness;
mod reservation;
mod sanitize;

// Data that a unit reports about itself, and checks that run before a command reaches a unit.
mod defects;
mod inquiry;
mod judge;
pub mod no_unit;
mod persistent_state;
mod report;

// The composition of the components into one logical unit.
mod unit;

#[cfg(test)]
mod rig;

pub use alua::{AccessState, PortGroup};
pub use cdb::Cdb;
pub use command::{
    Command, CommandRef, DataNeed, ManagementOutcome, NexusId, Outcome, Status, TaskAttribute, TaskManagement, TaskTag,
};
pub use conflict::ReservationType;
pub use copy::{CopyEnvironment, CopyFuture, CopyPrincipal, CopyUnit, MappedUnit};
pub use identity::{Identity, Options, Provisioning, TargetPort};
pub use judge::{data_out_bytes_max, judge};
pub use log::Statistics;
pub use lun::Lun;
pub use nexus::{InitiatorPort, PendingDataCounter, PendingDataGuard};
pub use parsed_sense::ParsedSense;
pub use persistence::{ParseError, StateStore, StoreError, StoreFuture};
pub use persistent_state::PersistentState;
pub use readiness::Absence;
pub use reservation::{RegistrationStatus, ReservationStatus};
pub use sanitize::{ReplaceKeyFuture, Sanitizer};
pub use sense::{AdditionalSense, FieldPointer, Sense, SenseBytes, SenseKey};
pub use shape::Shape;
pub use task_set::TaskSnapshot;
pub use unit::LogicalUnit;
