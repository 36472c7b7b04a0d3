//! A task of the initiator, from its submission to its end.

use super::event::Command;
use crate::pdu::{CmdSn, TaskManagementRequest};
use block::Buf;

/// A request that lives until it is answered.
#[derive(Debug)]
pub(crate) enum Task {
    Command(CommandTask),
    Management(TaskManagementRequest),
    Ping {
        data: Vec<u8>,
    },
    /// A text exchange, and the answer so far.
    Text {
        request: Vec<u8>,
        answer: Vec<u8>,
    },
    Logout,
}

/// A SCSI command.
#[derive(Debug)]
pub(crate) struct CommandTask {
    pub(crate) command: Command,
    /// Its place in the session, once it was sent.
    pub(crate) cmd_sn: Option<CmdSn>,
    /// The memory of `command.data_in` while no payload is received into it.
    pub(crate) buf: Option<Buf>,
    pub(crate) expected_in_bytes: u32,
    pub(crate) received_bytes: u32,
    /// DataSN of the next Data-In. R2TSN of the next R2T.
    pub(crate) data_sn: u32,
    pub(crate) r2t_sn: u32,
    /// What the data that is being placed said about the end of the task.
    pub(crate) status: Option<crate::pdu::DataInStatus>,
}
