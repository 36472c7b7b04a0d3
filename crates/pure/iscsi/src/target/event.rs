//! Events from a target session to its driver, and the driver's answers.

use crate::Negotiated;
use crate::login::LoginIdentity;
use crate::pdu::{Lun, TaskAttribute, TaskFunction};
use crate::session::TaskId;
use crate::target::CloseReason;
use block::{Rope, View};
use shard::Time;
use smallvec::SmallVec;
use std::any::Any;

/// Command descriptor block: 16 bytes, or more when an additional header segment carries the rest.
pub type Cdb = SmallVec<[u8; 16]>;

/// Event for the driver, in the order of the causes.
#[derive(Debug)]
pub enum Event {
    /// Login request; answered with [`Session::grant`](crate::target::Session::grant) or
    /// [`Session::refuse`](crate::target::Session::refuse). No other event precedes the answer.
    Login(LoginIdentity),
    /// The initiator has authenticated; answered with
    /// [`Session::assign_session`](crate::target::Session::assign_session).
    Authenticated,
    /// The login succeeded. It reinstates a session with the same initiator name, ISID, target name and portal group,
    /// which the driver must close (RFC 7143 §6.3.5).
    FullFeature(Box<Negotiated>),
    /// Command to execute, with its data; answered with [`Session::respond`](crate::target::Session::respond).
    Command(Command),
    /// Task management function to execute; answered with
    /// [`Session::respond_task_management`](crate::target::Session::respond_task_management).
    TaskManagement(TaskManagement),
    /// A connection of the session was lost, and unanswered commands for this unit with it. The next command for the
    /// unit, on any connection, must report a unit attention (RFC 7143 §7.6).
    CommandsLost(Lun),
    /// Query for targets and their portals; answered with
    /// [`Session::respond_targets`](crate::target::Session::respond_targets).
    SendTargets {
        /// Identifier for the answer.
        task: TaskId,
        /// Scope of the query.
        which: SendTargets,
    },
    /// The connection has ended: its tasks are removed, and their execution may stop. Output may remain (Logout
    /// Response, Reject): the driver sends it until [`Session::is_closed`](crate::target::Session::is_closed).
    /// This is the last event.
    Closed(CloseReason),
}

/// SCSI command with all of its data-out.
#[derive(Debug)]
pub struct Command {
    /// Identifier for the response.
    pub task: TaskId,
    /// Logical unit number as on the wire.
    pub lun: Lun,
    /// Command descriptor block.
    pub cdb: Cdb,
    /// Task attribute. Commands are delivered in CmdSN order as far as ORDERED ones require it: a SIMPLE command with
    /// complete data passes one that still awaits data.
    pub attribute: TaskAttribute,
    /// True when it was delivered outside CmdSN order.
    pub immediate: bool,
    /// Data received: `expected_data_out_bytes`, or less where the [`Gate`] or
    /// [`Config::data_out_bytes_max`](crate::target::Config) limits it.
    pub data_out: View,
    /// Bytes that the initiator announced to send. The CDB may contradict it.
    pub expected_data_out_bytes: u32,
    /// Bytes that the initiator expects to receive. The CDB may contradict it.
    pub expected_data_in_bytes: u32,
    /// Object that the gate attached while the command awaited data.
    pub wait_guard: Option<WaitGuard>,
    /// True when [`Gate::answer`] was called for this command and declined.
    pub declined: bool,
}

/// Task management function to execute.
///
/// Commands that have not been delivered are removed already. Delivered ones that are `affected` may be answered until
/// the function is; later responses are not sent.
#[derive(Debug)]
pub struct TaskManagement {
    /// Identifier for the response.
    pub task: TaskId,
    /// Requested function.
    pub function: TaskFunction,
    /// Logical unit number, for functions that address one.
    pub lun: Lun,
    /// Command that ABORT TASK and QUERY TASK refer to, when the driver has it.
    pub referenced: Option<TaskId>,
}

/// Scope of a SendTargets query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendTargets {
    /// All targets that the initiator may log in to. Discovery sessions only.
    All,
    /// The target with this name; in a normal session only its own.
    Named(String),
}

/// Target record of a SendTargets response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// iSCSI name of the target.
    pub name: String,
    /// Portals as `HOST:PORT`, each with its portal group tag.
    pub portals: Vec<(String, u16)>,
}

/// Completion of a command.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// SCSI status code.
    pub status: u8,
    /// Sense data; empty unless the status is CHECK CONDITION.
    pub sense: Sense,
    /// Data-in. Bytes beyond the expected length are cut and count as overflow.
    pub data_in: Rope,
    /// Bytes that the CDB itself would transfer, the base of the residual count. `None` stands for the length of
    /// `data_in` on a read, and for the expected length on a write.
    pub transfer_bytes: Option<u64>,
}

/// Sense data. Empty in most responses, which allocates nothing.
pub type Sense = Vec<u8>;

/// Maximum length of sense data in a response, in bytes.
pub const SENSE_BYTES_MAX: usize = 96;

impl Response {
    /// Completes with GOOD and `data_in`.
    #[must_use]
    pub fn good(data_in: Rope) -> Self {
        Self { data_in, ..Self::default() }
    }

    /// Completes with a status without data and sense.
    #[must_use]
    pub fn status(status: u8) -> Self {
        Self { status, ..Self::default() }
    }

    /// Completes with CHECK CONDITION and `sense`, with no data transferred.
    ///
    /// *Panics*: when there is more sense data than [`SENSE_BYTES_MAX`].
    #[must_use]
    pub fn check_condition(sense: &[u8]) -> Self {
        assert!(sense.len() <= SENSE_BYTES_MAX, "sense data has at most {SENSE_BYTES_MAX} bytes");
        // No transfer took place, so the whole expected length is reported as residual.
        Self { status: 0x02, sense: sense.to_vec(), transfer_bytes: Some(0), ..Self::default() }
    }
}

/// SCSI side of a session: judges a command by its header, before data is solicited and memory is allocated for it.
/// Implemented by the driver.
pub trait Gate {
    /// Decides whether the command may bring its data.
    fn judge(&mut self, lun: Lun, cdb: &[u8], expected_data_out_bytes: u32, expected_data_in_bytes: u32) -> Verdict;

    /// Called when an accepted command starts to await data. The returned object lives as long as the command waits,
    /// and is delivered with it.
    fn begin_wait(&mut self, lun: Lun) -> Option<WaitGuard> {
        let _ = lun;
        None
    }

    /// Returns the current time, for later queries of the age of a command. Drivers without such queries need not
    /// implement it.
    fn now(&self) -> Time {
        Time::default()
    }

    /// Executes a complete command that is next in order, if that is possible without waiting. Returns `None` when
    /// nothing was done; the command is then judged and delivered as usual.
    fn answer(&mut self, command: &CompleteCommand<'_>) -> Option<Response> {
        let _ = command;
        None
    }
}

/// SIMPLE command that is next in order, with all of its data.
#[derive(Clone, Copy, Debug)]
pub struct CompleteCommand<'a> {
    /// Logical unit number as on the wire.
    pub lun: Lun,
    /// Command descriptor block.
    pub cdb: &'a [u8; 16],
    /// Data-out, of exactly the announced length.
    pub data_out: &'a [u8],
    /// Bytes that the initiator expects to receive.
    pub expected_data_in_bytes: u32,
}

/// Object of the driver, see [`Gate::begin_wait`].
pub type WaitGuard = Box<dyn Any>;

/// Decision of a [`Gate`].
#[derive(Debug)]
pub enum Verdict {
    /// Accept the data, and deliver the command behind it.
    Take {
        /// Maximum length to solicit; unsolicited data beyond it is discarded.
        bytes_max: u32,
    },
    /// Deliver the command without data, and solicit none. Data already in flight is discarded.
    ExecuteWithoutData,
    /// Send this response and never deliver the command. Data already in flight is discarded.
    Refuse(Response),
}

impl Verdict {
    /// Accepts all data.
    pub const TAKE_ALL: Self = Self::Take { bytes_max: u32::MAX };
}

/// Gate that accepts everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn judge(&mut self, _: Lun, _: &[u8], _: u32, _: u32) -> Verdict {
        Verdict::TAKE_ALL
    }
}
