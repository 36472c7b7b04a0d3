//! What a target's connection tells its driver, and what the driver tells back.

use crate::Negotiated;
use crate::login::LoginQuestion;
use crate::pdu::{Lun, TaskAttribute, TaskFunction};
use crate::session::TaskId;
use crate::target::CloseReason;
use block::{Rope, View};
use shard::Time;
use smallvec::SmallVec;
use std::any::Any;

/// The bytes of a command descriptor block: 16, or more when an additional header carries the rest.
pub type Cdb = SmallVec<[u8; 16]>;

/// Something that the driver acts on. Events come in the order in which their causes did.
#[derive(Debug)]
pub enum Event {
    /// Somebody asks to log in; answered with [`Connection::grant`](crate::target::Connection::grant) or
    /// [`Connection::refuse`](crate::target::Connection::refuse). Nothing else happens before.
    Login(LoginQuestion),
    /// Who asked has proven what it had to; answered with [`Connection::place`](crate::target::Connection::place).
    Proven,
    /// The login succeeded. Another connection with the same initiator name, ISID, target name and portal
    /// group is reinstated by this one: the driver closes it (RFC 7143 §6.3.5).
    FullFeature(Box<Negotiated>),
    /// A command to carry out, with all its data; answered with
    /// [`Connection::respond`](crate::target::Connection::respond).
    Command(Command),
    /// A task management function to carry out; answered with
    /// [`Connection::respond_task_management`](crate::target::Connection::respond_task_management).
    TaskManagement(TaskManagement),
    /// A connection of the session is gone for good, and with it commands for the unit that were not answered.
    /// The next command that comes for the unit, on any connection, is told (RFC 7143 §7.6).
    CommandsLost(Lun),
    /// A question for targets and their portals; answered with
    /// [`Connection::respond_targets`](crate::target::Connection::respond_targets).
    SendTargets {
        /// Names the question.
        task: TaskId,
        /// Which targets are asked for.
        which: SendTargets,
    },
    /// The connection is over: all its tasks are forgotten, and whoever carries them out may stop. Output
    /// may still be waiting (a logout's answer, a Reject): the driver sends it until
    /// [`Connection::is_closed`](crate::target::Connection::is_closed). The last event.
    Closed(CloseReason),
}

/// A SCSI command with all of its data-out.
#[derive(Debug)]
pub struct Command {
    /// Names the command in the answer.
    pub task: TaskId,
    /// The logical unit, as on the wire.
    pub lun: Lun,
    /// The command descriptor block.
    pub cdb: Cdb,
    /// How it is ordered among others. Commands are handed out in CmdSN order as far as ORDERED ones ask for
    /// it: a SIMPLE command whose data has come passes one that still waits for data.
    pub attribute: TaskAttribute,
    /// True when it was delivered outside the order of CmdSN.
    pub immediate: bool,
    /// What came: `expected_data_out_bytes`, or what the [`Gate`] or [`Config::data_out_bytes_max`](crate::target::Config)
    /// takes of it when that is less.
    pub data_out: View,
    /// How many bytes the initiator expects to send. The CDB may say otherwise.
    pub expected_data_out_bytes: u32,
    /// How many bytes the initiator expects to get. The CDB may say otherwise.
    pub expected_data_in_bytes: u32,
    /// What the gate gave it to wait with.
    pub enrolment: Option<Enrolment>,
    /// True when [`Gate::answer`] was asked a moment ago, and had no answer.
    pub declined: bool,
}

/// A task management function to carry out.
///
/// Commands that were not handed out yet are dropped already. Those that were and are `affected` may be
/// answered until the function is; what comes after it is not sent.
#[derive(Debug)]
pub struct TaskManagement {
    /// Names the request in the answer.
    pub task: TaskId,
    /// What is asked.
    pub function: TaskFunction,
    /// The logical unit, for functions that have one.
    pub lun: Lun,
    /// The command that ABORT TASK and QUERY TASK are about, when the driver has it.
    pub referenced: Option<TaskId>,
}

/// Which targets a SendTargets asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendTargets {
    /// All that this initiator may log in to. Discovery sessions only.
    All,
    /// The one of this name; in a normal session only its own.
    Named(String),
}

/// One target in the answer to SendTargets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// The target's iSCSI name.
    pub name: String,
    /// Where it can be reached, `HOST:PORT`, each with its portal group tag.
    pub portals: Vec<(String, u16)>,
}

/// How a command ended.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The SCSI status.
    pub status: u8,
    /// Sense data; empty unless the status is CHECK CONDITION.
    pub sense: Sense,
    /// Data for the initiator. What passes the expected length is cut, and counts as overflow.
    pub data_in: Rope,
    /// How many bytes the CDB by itself would move, where that is not what was given: for a read the
    /// length of `data_in`, for a write the expected length. Residuals are counted from it.
    pub transfer_bytes: Option<u64>,
}

/// Sense data. Most answers have none, which takes no memory.
pub type Sense = Vec<u8>;

/// The most sense data that a response carries.
pub const SENSE_BYTES_MAX: usize = 96;

impl Response {
    /// GOOD, with `data_in`.
    #[must_use]
    pub fn good(data_in: Rope) -> Self {
        Self { data_in, ..Self::default() }
    }

    /// A status without data and without sense.
    #[must_use]
    pub fn status(status: u8) -> Self {
        Self { status, ..Self::default() }
    }

    /// CHECK CONDITION with `sense`, and no data moved.
    ///
    /// *Panics*: when there is more sense than [`SENSE_BYTES_MAX`].
    #[must_use]
    pub fn check_condition(sense: &[u8]) -> Self {
        assert!(sense.len() <= SENSE_BYTES_MAX, "sense data has at most {SENSE_BYTES_MAX} bytes");
        Self { status: 0x02, sense: sense.to_vec(), transfer_bytes: Some(0), ..Self::default() }
    }
}

/// Judges a command by its header, before any data is solicited and before memory is taken for it.
pub trait Gate {
    /// Says whether the command may bring its data.
    fn judge(&mut self, lun: Lun, cdb: &[u8], expected_data_out_bytes: u32, expected_data_in_bytes: u32) -> Verdict;

    /// A command that was taken waits for data from now on. What this returns lives as long as it waits, and is handed out with it.
    fn enrol(&mut self, lun: Lun) -> Option<Enrolment> {
        let _ = lun;
        None
    }

    /// What time it is, for who asks later how long a command has been here. A driver that tells nobody needs none.
    fn now(&self) -> Time {
        Time::default()
    }

    /// Carries out a command that is all here and has nobody before it, where that needs no waiting. With `None` nothing
    /// was done, and it is judged and handed out as any other.
    fn answer(&mut self, command: &CommandAtOnce<'_>) -> Option<Response> {
        let _ = command;
        None
    }
}

/// A SIMPLE command whose turn has come, with all of its data.
#[derive(Clone, Copy, Debug)]
pub struct CommandAtOnce<'a> {
    /// The logical unit, as on the wire.
    pub lun: Lun,
    /// The command descriptor block.
    pub cdb: &'a [u8; 16],
    /// What the initiator sends: as much as it said.
    pub data_out: &'a [u8],
    /// How many bytes the initiator expects to get.
    pub expected_data_in_bytes: u32,
}

/// Something of the driver's own, see [`Gate::enrol`].
pub type Enrolment = Box<dyn Any>;

/// What a [`Gate`] says.
#[derive(Debug)]
pub enum Verdict {
    /// The data may come, and the command is handed out behind it.
    Take {
        /// So much of it is asked for; a surplus that comes unasked is thrown away.
        bytes_max: u32,
    },
    /// The command is handed out without data, and none is asked for. Data that is on its way already is thrown away.
    Forgo,
    /// The command is answered like this and never handed out. Data that is on its way already is thrown away.
    Refuse(Response),
}

impl Verdict {
    /// All data may come.
    pub const TAKE_ALL: Self = Self::Take { bytes_max: u32::MAX };
}

/// A gate that takes everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn judge(&mut self, _: Lun, _: &[u8], _: u32, _: u32) -> Verdict {
        Verdict::TAKE_ALL
    }
}
