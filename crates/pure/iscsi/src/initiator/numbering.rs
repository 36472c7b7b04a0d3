//! Command numbering of a session, shared by its connections.

use crate::pdu::CmdSn;
use std::cell::Cell;
use std::rc::Rc;

/// CmdSN and window of a session.
///
/// *Source*: RFC 7143 §4.2.2.1: CmdSN counts the commands of a session, regardless of the connection.
#[derive(Debug)]
pub(crate) struct CommandNumbering {
    /// CmdSN of the next request.
    pub(crate) cmd_sn: Cell<CmdSn>,
    pub(crate) max_cmd_sn: Cell<CmdSn>,
    pub(crate) exp_cmd_sn: Cell<CmdSn>,
}

/// Session state that a joining connection takes over.
#[derive(Clone, Debug)]
pub(crate) struct JoinState {
    pub(crate) numbering: Rc<CommandNumbering>,
    /// First task tag of this connection; tags are unique within the session.
    pub(crate) tags_from: u32,
}

impl CommandNumbering {
    /// Creates the numbering of a session that has sent nothing yet.
    pub(crate) fn new(cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> Self {
        Self { cmd_sn: Cell::new(cmd_sn), max_cmd_sn: Cell::new(max_cmd_sn), exp_cmd_sn: Cell::new(cmd_sn) }
    }

    /// Updates the window from a PDU of the target. A PDU that arrives late must not narrow it again.
    ///
    /// *Source*: RFC 7143 §4.2.2.1.
    pub(crate) fn handle_window(&self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        // RFC 7143 §4.2.2.1: both values are ignored if MaxCmdSN is below ExpCmdSN - 1.
        if max_cmd_sn.next().precedes(exp_cmd_sn) {
            return;
        }
        if self.exp_cmd_sn.get().precedes(exp_cmd_sn) {
            self.exp_cmd_sn.set(exp_cmd_sn);
        }
        if self.max_cmd_sn.get().precedes(max_cmd_sn) {
            self.max_cmd_sn.set(max_cmd_sn);
        }
    }

    /// True when the window accepts one more command.
    pub(crate) fn is_open(&self) -> bool {
        // A closed window has MaxCmdSN = CmdSN - 1; the comparison holds across the wrap.
        !self.max_cmd_sn.get().precedes(self.cmd_sn.get())
    }
}
