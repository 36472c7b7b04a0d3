//! The numbers of a session's commands, which its connections have in common.

use crate::pdu::CmdSn;
use std::cell::Cell;
use std::rc::Rc;

/// Where a session stands in its commands.
///
/// *Source*: RFC 7143 §4.2.2.1: CmdSN counts the commands of a session, whichever of its connections carries them.
#[derive(Debug)]
pub(crate) struct Order {
    /// The number of the next request.
    pub(crate) cmd_sn: Cell<CmdSn>,
    pub(crate) max_cmd_sn: Cell<CmdSn>,
    pub(crate) exp_cmd_sn: Cell<CmdSn>,
}

/// What a connection has of the session that it joins.
#[derive(Clone, Debug)]
pub(crate) struct Joins {
    pub(crate) order: Rc<Order>,
    /// Task tags are of the session: those of this connection begin here.
    pub(crate) tags_from: u32,
}

impl Order {
    /// A session that has sent nothing yet.
    pub(crate) fn new(cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> Self {
        Self { cmd_sn: Cell::new(cmd_sn), max_cmd_sn: Cell::new(max_cmd_sn), exp_cmd_sn: Cell::new(cmd_sn) }
    }

    /// The window is what the target said last; what comes late does not close it again.
    ///
    /// *Source*: RFC 7143 §4.2.2.1.
    pub(crate) fn handle_window(&self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
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

    /// True when the window takes one more command.
    pub(crate) fn is_open(&self) -> bool {
        !self.max_cmd_sn.get().precedes(self.cmd_sn.get())
    }
}
