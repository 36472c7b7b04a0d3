//! The SCSI device server: SPC-4, SBC-4 and SAM-5 of a disk, over any [`block::BlockDevice`].
//!
//! A [`LogicalUnit`] takes [`Command`]s and gives [`Outcome`]s; [`judge`] says before the data comes
//! what a command moves, or that it is refused; [`absent`] answers for units that do not exist. One
//! table, `operation.rs`, says what there is to be asked.
//!
//! The modules stand in the order in which they use each other: a module imports from its own group and from those above it, and
//! no two import each other in a circle.

// Bytes and names.
mod cdb;
mod designator;
mod identity;
mod lun;
mod reply;
mod sense;
mod sensed;

// A command: what is asked, what conflicts with what, and how it ends.
mod command;
mod conflict;
mod failure;
mod operation;
mod request;
mod shape;

// State of a unit that needs no blocks.
mod keeper;
mod log;
mod nexus;
mod task_set;
mod threshold;
mod token;

// The parts of a unit that carry out commands.
mod alua;
mod copy;
mod medium;
mod mode;
mod readiness;
mod reservation;
mod sanitize;

// What is said of a unit, and before a command reaches one.
pub mod absent;
mod defects;
mod inquiry;
mod judge;
mod kept;
mod report;

// The composition.
mod unit;

#[cfg(test)]
mod rig;

pub use alua::{AccessState, PortGroup};
pub use cdb::Cdb;
pub use command::{
    Command, CommandRef, DataNeed, ManagementOutcome, NexusId, Outcome, Status, TaskAttribute, TaskManagement, TaskTag,
};
pub use conflict::ReservationType;
pub use copy::{CopyAsker, CopyUnit, Copying, Neighbour, Neighbours};
pub use identity::{Identity, Options, Provisioning, TargetPort};
pub use judge::{data_out_bytes_max, judge};
pub use keeper::{Keeper, Keeping, NotKept, NotUnderstood};
pub use kept::Kept;
pub use log::Statistics;
pub use lun::Lun;
pub use nexus::{Incoming, InitiatorPort, Waiting};
pub use readiness::Absence;
pub use reservation::{RegistrationStatus, ReservationStatus};
pub use sanitize::{Replacing, Sanitizer};
pub use sense::{AdditionalSense, FieldPointer, Sense, SenseBytes, SenseKey};
pub use sensed::Sensed;
pub use shape::Shape;
pub use task_set::TaskStanding;
pub use unit::LogicalUnit;
