//! Task of an initiator, from its submission to its end.

use super::event::Command;
use crate::pdu::{CmdSn, TaskManagementRequest};
use block::Buf;

/// Request that lives until it has been answered.
#[derive(Debug)]
pub(crate) enum Task {
    Command(CommandTask),
    Management(TaskManagementRequest),
    Ping {
        data: Vec<u8>,
    },
    /// Text exchange with the response received so far.
    Text {
        request: Vec<u8>,
        answer: Vec<u8>,
    },
    Logout,
}

/// SCSI command.
#[derive(Debug)]
pub(crate) struct CommandTask {
    pub(crate) command: Command,
    /// CmdSN, once the command has been sent.
    pub(crate) cmd_sn: Option<CmdSn>,
    /// Buffer of `command.data_in` while no payload is received into it.
    pub(crate) buf: Option<Buf>,
    pub(crate) expected_in_bytes: u32,
    pub(crate) received_bytes: u32,
    /// DataSN of the next Data-In, and R2TSN of the next R2T.
    pub(crate) data_sn: u32,
    pub(crate) r2t_sn: u32,
    /// Status carried by the Data-In whose payload is being placed.
    pub(crate) status: Option<crate::pdu::DataInStatus>,
}
