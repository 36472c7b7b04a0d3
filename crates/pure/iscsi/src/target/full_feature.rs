//! Full feature phase: where each PDU goes, and in which order requests have their turn.

use super::data_out::Limits;
use super::link::Link;
use super::ping::Ping;
use super::task::{Kind, Responding, Task};
use super::{CloseReason, Gate};
use crate::Violation;
use crate::pdu::{
    Bhs, CmdSn, DataSn, InitiatorPdu, LogoutRequest, Opcode, Reject, SegmentLengths, TaskManagementRequest,
};
use crate::receive::Head;
use crate::session::{Session, TaskId};
use crate::{Negotiated, SessionType};
use std::collections::VecDeque;

/// A logged-in connection of a target.
#[derive(Debug)]
pub(crate) struct FullFeature {
    pub(crate) negotiated: Negotiated,
    pub(crate) data_out_limits: Limits,
    pub(crate) session: Session<Turn, Task>,
    /// Commands whose turn has come and whose data or predecessors have not, in CmdSN order.
    pub(crate) waiting: VecDeque<TaskId>,
    /// Answers in the order of sending.
    pub(crate) responding: VecDeque<Responding>,
    /// Memory that data-out of all tasks takes.
    pub(crate) held_bytes: usize,
    pub(crate) ping: Ping,
    /// The text exchange under way; there is one at a time.
    pub(crate) text: Option<TaskId>,
    pub(crate) next_text_tag: u32,
}

/// What happens when the turn of a CmdSN comes.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Nothing: the request was dealt with, or is considered received.
    Pass,
    Command(TaskId),
    TaskManagement(TaskId, TaskManagementRequest),
    Logout(LogoutRequest),
}

/// Where the payload of a PDU goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placement {
    /// Into the data-out of a command.
    Command { task: TaskId, offset: usize },
    /// Nowhere; the command, if there is one, learns that it has come.
    Skip(Option<TaskId>),
    /// To [`FullFeature::handle_whole`], in one piece.
    Whole,
}

impl FullFeature {
    pub(crate) fn new(link: &Link, negotiated: Negotiated) -> Self {
        let first = negotiated.identity.cmd_sn;
        let data_out_limits = Limits {
            first_burst_bytes_max: negotiated.first_burst_bytes_max,
            burst_bytes_max: negotiated.burst_bytes_max,
            outstanding_r2t_max: u32::from(negotiated.outstanding_r2t_max),
        };
        Self {
            negotiated,
            data_out_limits,
            session: Session::new(first, link.config.commands_max, link.config.immediate_max),
            waiting: VecDeque::new(),
            responding: VecDeque::new(),
            held_bytes: 0,
            ping: Ping::default(),
            text: None,
            next_text_tag: 0,
        }
    }

    /// Judges a header and says where its payload of `data_bytes` goes.
    pub(crate) fn begin(
        &mut self,
        link: &mut Link,
        head: Head<'_>,
        data_bytes: usize,
        gate: &mut impl Gate,
    ) -> Result<Placement, Violation> {
        match InitiatorPdu::parse(head.basic)? {
            InitiatorPdu::ScsiCommand(command) => self.begin_command(link, &command, head.additional, data_bytes, gate),
            InitiatorPdu::DataOut(data_out) => self.begin_data_out(&data_out, data_bytes),
            _ => Ok(Placement::Whole),
        }
    }

    /// Acts on a PDU that [`FullFeature::begin`] wanted whole.
    pub(crate) fn handle_whole(&mut self, link: &mut Link, header: &Bhs, data: &[u8]) -> Result<(), Violation> {
        match InitiatorPdu::parse(header)? {
            InitiatorPdu::NopOut(nop_out) => self.handle_nop_out(link, &nop_out, data),
            InitiatorPdu::Text(request) => self.handle_text(link, &request, data),
            InitiatorPdu::TaskManagement(request) => self.handle_task_management(link, request),
            InitiatorPdu::Logout(request) => {
                if self.in_window(request.immediate, request.cmd_sn) {
                    self.take_turn(link, request.immediate, request.cmd_sn, Turn::Logout(request));
                }
                Ok(())
            }
            InitiatorPdu::Snack(_) => Err(Violation::SnackWithoutRecovery),
            InitiatorPdu::Login(_) => Err(Violation::LoginInFullFeature),
            InitiatorPdu::ScsiCommand(_) | InitiatorPdu::DataOut(_) => {
                unreachable!("their payload is never wanted whole")
            }
        }
    }

    /// Answers a broken rule: with a Reject, and with the end of the connection unless the rule leaves it whole.
    ///
    /// Source: RFC 7143 §7.3, §7.7, §7.13.
    pub(crate) fn handle_violation(&mut self, link: &mut Link, violation: Violation, header: Option<&Bhs>) {
        if violation.ends_connection() {
            link.close(CloseReason::Violation(violation));
        }
        let Some(header) = header else { return };
        if !violation.ends_connection() {
            self.pass_over(link, header);
        }
        let mut answer = [0; 48];
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let reject = Reject {
            reason: violation.reject_reason(),
            stat_sn: link.take_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            data_sn: DataSn(0),
        };
        reject.emit(SegmentLengths::data(header.len()), &mut answer);
        link.transmit.push(&answer, header);
    }

    /// ExpCmdSN and MaxCmdSN as they are now.
    pub(crate) fn cmd_sns(&self) -> (CmdSn, CmdSn) {
        (self.session.window.expected(), self.session.window.maximum())
    }

    /// True in a session that is there to name targets only.
    pub(crate) fn is_discovery(&self) -> bool {
        self.negotiated.session_type == SessionType::Discovery
    }

    /// False for requests that are ignored in silence: their CmdSN is outside the window, or came already.
    pub(crate) fn in_window(&self, immediate: bool, cmd_sn: CmdSn) -> bool {
        immediate || self.session.window.is_open_for(cmd_sn)
    }

    /// Does what the request asks when its turn comes: now, or once the CmdSNs before it have come.
    pub(crate) fn take_turn(&mut self, link: &mut Link, immediate: bool, cmd_sn: CmdSn, turn: Turn) {
        if immediate {
            return self.run(link, turn);
        }
        if cmd_sn != self.session.window.expected() {
            return self.session.window.hold(cmd_sn, turn);
        }
        self.session.window.advance();
        self.session.open();
        self.run(link, turn);
        while let Some(turn) = self.session.window.take_held() {
            self.session.open();
            self.run(link, turn);
        }
    }

    /// Forgets a task and what it holds.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.session.remove(id)?;
        if let Kind::Command(command) = &task.kind {
            self.held_bytes -= command.held_bytes;
        }
        Some(task)
    }

    /// Forgets a task that the driver gave up.
    pub(crate) fn abort(&mut self, link: &mut Link, id: TaskId) {
        let closed = self.session.window.is_closed();
        if self.remove(id).is_some() && closed {
            // No answer will tell the initiator that it may go on.
            self.send_window(link);
        }
    }

    fn run(&mut self, link: &mut Link, turn: Turn) {
        match turn {
            Turn::Pass => {}
            Turn::Command(id) => self.handle_turn(link, id),
            Turn::TaskManagement(id, request) => self.start_task_management(link, id, &request),
            Turn::Logout(request) => self.handle_logout(link, &request),
        }
    }

    /// A request that is rejected and leaves the connection whole counts as received (RFC 7143 §7.3).
    fn pass_over(&mut self, link: &mut Link, header: &Bhs) {
        const IMMEDIATE: u8 = 0x40;
        let numbered = !matches!(Opcode::of(header), Ok(Opcode::DataOut | Opcode::SnackRequest));
        let [.., a, b, c, d] = *header.first_chunk::<28>().expect("a header has 48 bytes");
        let cmd_sn = CmdSn(u32::from_be_bytes([a, b, c, d]));
        if numbered && header[0] & IMMEDIATE == 0 && self.in_window(false, cmd_sn) {
            self.take_turn(link, false, cmd_sn, Turn::Pass);
        }
    }
}
