//! The SCSI device server: SPC-4, SBC-4 and SAM-5 of a disk, over any [`block::BlockDevice`].
//!
//! A [`LogicalUnit`] takes [`Command`]s and gives [`Outcome`]s; [`judge`] says before the data comes
//! what a command moves, or that it is refused; [`absent`] answers for units that do not exist. One
//! table, `operation.rs`, says what there is to be asked.

pub mod absent;
mod alua;
mod attention;
mod capacity;
mod cdb;
mod command;
mod compare;
mod conflict;
mod copy;
mod defects;
mod designator;
mod diagnostic;
mod failure;
mod identity;
mod incoming;
mod inquiry;
mod judge;
mod keeper;
mod kept;
mod lba_status;
mod log;
mod lun;
mod medium;
mod mode;
mod nexus;
mod operation;
mod readiness;
mod reply;
mod report;
mod request;
mod reservation;
#[cfg(test)]
mod rig;
mod sanitize;
mod sense;
mod sensed;
mod shape;
mod task_set;
mod threshold;
mod token;
mod unit;
mod unmap;
mod verify;
mod write_same;

pub use alua::{AccessState, PortGroup};
pub use cdb::Cdb;
pub use command::{
    Command, CommandRef, DataNeed, ManagementOutcome, NexusId, Outcome, Status, TaskAttribute, TaskManagement, TaskTag,
};
pub use conflict::ReservationType;
pub use copy::{CopyAsker, CopyUnit, Copying, Neighbour, Neighbours};
pub use identity::{Identity, Options, Provisioning, TargetPort};
pub use incoming::{Incoming, Waiting};
pub use judge::{data_out_bytes_max, judge};
pub use keeper::{Keeper, Keeping, NotKept, NotUnderstood};
pub use kept::Kept;
pub use log::Statistics;
pub use lun::Lun;
pub use nexus::InitiatorPort;
pub use reservation::{RegistrationStatus, ReservationStatus};
pub use sanitize::{Replacing, Sanitizer};
pub use sense::{AdditionalSense, FieldPointer, Sense, SenseBytes, SenseKey};
pub use sensed::Sensed;
pub use shape::Shape;
pub use task_set::TaskStanding;
pub use unit::LogicalUnit;
