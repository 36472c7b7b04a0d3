//! Requests of an initiator's driver, and the events reported to it.

use crate::pdu::{AsyncEvent, Lun, RejectReason, Residual, ServiceResponse, TaskAttribute, TaskFunctionOutcome};
use crate::session::TaskId;
use crate::{CloseReason, Negotiated};
use block::{Buf, Rope};
use smallvec::SmallVec;

/// Sense data. Usual lengths are stored inline.
pub type Sense = SmallVec<[u8; 24]>;

/// SCSI command to send.
#[derive(Debug)]
pub struct Command {
    /// Logical unit number.
    pub lun: Lun,
    /// Command descriptor block; more than 16 bytes use an additional header segment.
    pub cdb: SmallVec<[u8; 16]>,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Data to write; its length is the Expected Data Transfer Length.
    pub data_out: Option<Rope>,
    /// Destination of data to read.
    pub data_in: DataIn,
}

/// Destination of the data of a read.
#[derive(Debug, Default)]
pub enum DataIn {
    /// No data is read.
    #[default]
    None,
    /// Read into this buffer, whose length is the Expected Data Transfer Length.
    Into(Buf),
    /// Expect this number of bytes, count and discard them.
    Discard(u32),
}

/// Event for the driver.
#[derive(Debug)]
pub enum Event {
    /// The login succeeded.
    FullFeature(Box<Negotiated>),
    /// A command completed.
    Completed(Completion),
    /// A task management function was answered.
    TaskManagement {
        /// Task of the request.
        task: TaskId,
        /// Response code.
        outcome: TaskFunctionOutcome,
    },
    /// A ping was answered.
    Pong {
        /// Task of the request.
        task: TaskId,
        /// Data of the ping, possibly truncated.
        data: Vec<u8>,
    },
    /// SendTargets was answered.
    Targets {
        /// Task of the request.
        task: TaskId,
        /// Targets; empty when the query was rejected.
        targets: Vec<Target>,
    },
    /// The target sent an asynchronous message.
    Async {
        /// Logical unit number, for events that have one.
        lun: Lun,
        /// Event of the message.
        event: AsyncEvent,
        /// Sense data of a SCSI event.
        sense: Sense,
    },
    /// The target rejected a PDU.
    Rejected {
        /// Task of the rejected PDU, which has ended by this.
        task: Option<TaskId>,
        /// Reason code.
        reason: RejectReason,
    },
    /// The target redirects to another portal: `address:port`, optionally with a portal group tag. The connection
    /// closes.
    Moved(String),
    /// The connection has ended, and every remaining task is removed. This is the last event.
    Closed(CloseReason),
}

/// Completion of a command.
#[derive(Debug)]
pub struct Completion {
    /// Task of the command.
    pub task: TaskId,
    /// Service response: whether the target executed the command.
    pub response: ServiceResponse,
    /// SCSI status code.
    pub status: u8,
    /// Sense data.
    pub sense: Sense,
    /// Data read, truncated to the received length; `None` unless a buffer was given.
    pub data_in: Option<Buf>,
    /// Number of bytes received.
    pub data_in_bytes: u32,
    /// Residual.
    pub residual: Residual,
    /// Read residual of a bidirectional command.
    pub read_residual: Residual,
}

/// Target record of a SendTargets response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// iSCSI name.
    pub name: String,
    /// Addresses as received: `address:port,portal group tag`.
    pub addresses: Vec<String>,
}
