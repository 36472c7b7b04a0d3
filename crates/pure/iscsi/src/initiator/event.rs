//! What an initiator's driver asks for, and what it is told.

use crate::pdu::{AsyncEvent, Lun, RejectReason, Residual, ServiceResponse, TaskAttribute, TaskFunctionOutcome};
use crate::session::TaskId;
use crate::{CloseReason, Negotiated};
use block::{Buf, Rope};
use smallvec::SmallVec;

/// Sense data. Usual lengths lie in the completion itself.
pub type Sense = SmallVec<[u8; 24]>;

/// A SCSI command to send.
#[derive(Debug)]
pub struct Command {
    /// The logical unit.
    pub lun: Lun,
    /// The command descriptor block; more than 16 bytes go into an additional header.
    pub cdb: SmallVec<[u8; 16]>,
    /// How it is ordered among others.
    pub attribute: TaskAttribute,
    /// What is written; its length is the expected data transfer length.
    pub data_out: Option<Rope>,
    /// What is read.
    pub data_in: DataIn,
}

/// Where the data of a read goes.
#[derive(Debug, Default)]
pub enum DataIn {
    /// Nothing is read.
    #[default]
    None,
    /// Into this memory: its length is the expected data transfer length.
    Into(Buf),
    /// So many bytes are expected, counted and thrown away.
    Discard(u32),
}

/// Something that the driver acts on.
#[derive(Debug)]
pub enum Event {
    /// The login succeeded.
    FullFeature(Box<Negotiated>),
    /// A command has ended.
    Completed(Completion),
    /// A task management function was answered.
    TaskManagement {
        /// The request.
        task: TaskId,
        /// The answer.
        outcome: TaskFunctionOutcome,
    },
    /// A ping was answered.
    Pong {
        /// The request.
        task: TaskId,
        /// What came back: the data of the ping, perhaps cut.
        data: Vec<u8>,
    },
    /// SendTargets was answered.
    Targets {
        /// The request.
        task: TaskId,
        /// The targets; none when the question was refused.
        targets: Vec<Target>,
    },
    /// The target sent something that nobody asked for.
    Async {
        /// The logical unit, for events that have one.
        lun: Lun,
        /// What happened.
        event: AsyncEvent,
        /// The sense data of a SCSI event.
        sense: Sense,
    },
    /// The target rejected a PDU.
    Rejected {
        /// The task that the PDU belonged to, which has ended by this.
        task: Option<TaskId>,
        /// Why.
        reason: RejectReason,
    },
    /// The target is at another portal: `address:port`, perhaps with a portal group tag. The connection closes.
    Moved(String),
    /// The connection is over, and every task that has not ended is forgotten. The last event.
    Closed(CloseReason),
}

/// How a command ended.
#[derive(Debug)]
pub struct Completion {
    /// The command.
    pub task: TaskId,
    /// Whether the target carried it out at all.
    pub response: ServiceResponse,
    /// The SCSI status.
    pub status: u8,
    /// The sense data that came with it.
    pub sense: Sense,
    /// What was read, cut to what came; empty unless it was asked into memory.
    pub data_in: Option<Buf>,
    /// How many bytes came.
    pub data_in_bytes: u32,
    /// What was not moved.
    pub residual: Residual,
    /// What was not read, of a command that moves data both ways.
    pub read_residual: Residual,
}

/// A target as SendTargets names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// Its addresses as they came: `address:port,portal group tag`.
    pub addresses: Vec<String>,
}
