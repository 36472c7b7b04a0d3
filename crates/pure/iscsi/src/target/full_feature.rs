//! Full feature phase of a session: dispatch of PDUs and ordering of requests.

use super::data_out::Limits;
use super::event::Event;
use super::fast_path::FastPathResult;
use super::link::Link;
use super::task::{Kind, Progress, Task};
use super::{CloseReason, Gate};
use crate::Violation;
use crate::pdu::{
    Bhs, Cid, CmdSn, DataSn, InitiatorPdu, InitiatorTaskTag, LogoutRequest, Lun, Opcode, Reject, SegmentLengths,
    TaskManagementRequest, exp_stat_sn,
};
use crate::receive::Head;
use crate::session::window::CmdSns;
use crate::session::{Session, TaskId};
use crate::{Negotiated, SessionType};
use std::collections::{BTreeSet, VecDeque};

/// State of a session in full feature phase, shared by its connections.
#[derive(Debug)]
pub(crate) struct FullFeature {
    pub(crate) negotiated: Negotiated,
    pub(crate) data_out_limits: Limits,
    pub(crate) session: Session<OrderedAction, Task>,
    /// Commands whose turn has come but whose data or predecessors are incomplete, in CmdSN order.
    pub(crate) waiting: VecDeque<TaskId>,
    /// Memory allocated for data-out of all tasks in bytes.
    pub(crate) held_bytes: usize,
    pub(crate) next_text_tag: u32,
    /// Events that the driver has not polled yet.
    pub(crate) events: VecDeque<Event>,
    pub(crate) connections: ConnectionTable,
    /// True after the target has requested a logout, so that the session moves to another portal.
    pub(crate) asked_to_leave: bool,
    /// Connections to be closed by a request on another one, with the reason.
    pub(crate) ending: Vec<(usize, CloseReason)>,
    pub(crate) cross_connection: CrossConnectionWork,
    /// Commands still executed by the driver although their connection is lost. Until they have ended, no command is
    /// delivered.
    pub(crate) orphaned_commands: u32,
}

/// Action when the turn of a CmdSN comes.
#[derive(Debug)]
pub(crate) enum OrderedAction {
    /// None: the request was answered, or counts as received.
    Pass,
    Command(TaskId),
    TaskManagement(TaskId, TaskManagementRequest),
    Logout(usize, LogoutRequest),
}

/// Destination of the payload of a PDU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placement {
    /// Data-out of a command.
    Command { task: TaskId, offset: usize },
    /// Discarded; the command, if there is one, is notified when it is complete.
    Skip(Option<TaskId>),
    /// Passed to [`FullFeature::handle_whole`] in one piece.
    Whole,
}

/// CIDs of the connections of a session, indexed by slot.
#[derive(Debug)]
pub(crate) struct ConnectionTable(Vec<Option<Cid>>);

impl ConnectionTable {
    /// Returns the slot of the connection with this CID.
    pub(crate) fn slot_of(&self, cid: Cid) -> Option<usize> {
        // A session has few connections, so a scan is cheaper than a map.
        self.0.iter().position(|known| *known == Some(cid))
    }

    /// Registers a connection in `slot`; a previous connection with the same CID loses its entry.
    pub(crate) fn register(&mut self, slot: usize, cid: Cid) {
        // A lost connection keeps its slot while its tasks await reassignment, but its CID now names the new one.
        self.0.iter_mut().filter(|known| **known == Some(cid)).for_each(|known| *known = None);
        self.0.resize(self.0.len().max(slot + 1), None);
        self.0[slot] = Some(cid);
    }

    /// Removes the connection in `slot`.
    fn remove(&mut self, slot: usize) {
        assert!(slot < self.0.len(), "only connections that were there are lost");
        self.0[slot] = None;
    }

    /// Slots of all other connections, including lost ones.
    pub(crate) fn others(&self, slot: usize) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(move |&other| other != slot)
    }

    fn is_several(&self) -> bool {
        // Counting CIDs: slots of lost connections may be empty.
        self.0.iter().flatten().count() > 1
    }
}

/// Work that a PDU caused on connections other than its own.
#[derive(Debug, Default)]
pub(crate) struct CrossConnectionWork {
    /// Tasks to be reassigned to the requesting connection.
    pub(crate) moves: Vec<(TaskId, TaskManagementRequest)>,
    /// Action that is next in order on another connection.
    next_in_order: Option<(usize, OrderedAction)>,
    /// Immediate task management functions that arrived before the commands they affect, which use other connections.
    early: Vec<(TaskId, TaskManagementRequest)>,
}

impl CrossConnectionWork {
    /// True when there is no such work, which is the common case.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.next_in_order.is_none() && self.early.is_empty() && self.moves.is_empty()
    }

    /// Defers a function until the commands before it have arrived.
    pub(crate) fn defer(&mut self, id: TaskId, request: TaskManagementRequest) {
        self.early.push((id, request));
    }

    /// Takes a function whose preceding commands have arrived; `expected` is the next CmdSN.
    fn take_due(&mut self, expected: CmdSn) -> Option<(TaskId, TaskManagementRequest)> {
        // A function is due once every CmdSN before its own has arrived.
        let due = self.early.iter().position(|(_, request)| !expected.precedes(request.cmd_sn))?;
        Some(self.early.remove(due))
    }
}

impl Link {
    /// Queues a Reject with the header of the refused PDU.
    pub(crate) fn reject(&mut self, (exp_cmd_sn, max_cmd_sn): CmdSns, violation: Violation, header: &Bhs) {
        let mut answer = [0; 48];
        let reject = Reject {
            reason: violation.reject_reason(),
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            // DataSN is used only for a Reject of a SNACK (RFC 7143 §11.17.4).
            data_sn: DataSn(0),
        };
        // The Reject carries the complete header of the refused PDU (RFC 7143 §11.17).
        reject.emit(SegmentLengths::data(header.len()), &mut answer);
        self.push_status(&answer, header);
    }
}

impl FullFeature {
    pub(crate) fn new(link: &Link, negotiated: Negotiated) -> Self {
        let first = negotiated.identity.cmd_sn;
        let data_out_limits = Limits {
            first_burst_bytes_max: negotiated.first_burst_bytes_max,
            burst_bytes_max: negotiated.burst_bytes_max,
            // Above level 0 with data in order, only the last R2T can be repeated, so one is outstanding at a time (RFC
            // 7143 §13.19).
            outstanding_r2t_max: match negotiated.error_recovery_level {
                0 => u32::from(negotiated.outstanding_r2t_max),
                _ => 1,
            },
        };
        Self {
            negotiated,
            data_out_limits,
            session: Session::new(first, link.config.commands_max, link.config.immediate_max),
            waiting: VecDeque::new(),
            held_bytes: 0,
            next_text_tag: 0,
            events: VecDeque::new(),
            connections: ConnectionTable(vec![Some(link.cid)]),
            asked_to_leave: false,
            ending: Vec::new(),
            cross_connection: CrossConnectionWork::default(),
            orphaned_commands: 0,
        }
    }

    /// Checks a header and determines the destination of its payload of `data_bytes`.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn begin(
        &mut self,
        link: &mut Link,
        head: Head<'_>,
        data_bytes: usize,
        short: FastPathResult,
        gate: &mut impl Gate,
    ) -> Result<Placement, Violation> {
        let pdu = InitiatorPdu::parse(head.basic)?;
        // Every PDU of an initiator acknowledges statuses, also one that is refused below.
        link.handle_acknowledged(exp_stat_sn(head.basic));
        match pdu {
            InitiatorPdu::ScsiCommand(command) => {
                self.begin_command(link, &command, head.additional, data_bytes, short, gate)
            }
            InitiatorPdu::DataOut(data_out) => self.begin_data_out(link, &data_out, data_bytes),
            _ => Ok(Placement::Whole),
        }
    }

    /// Handles a PDU that [`FullFeature::begin`] requested in one piece.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn handle_whole(&mut self, link: &mut Link, header: &Bhs, data: &[u8]) -> Result<(), Violation> {
        match InitiatorPdu::parse(header)? {
            InitiatorPdu::NopOut(nop_out) => self.handle_nop_out(link, &nop_out, data),
            InitiatorPdu::Text(request) => self.handle_text(link, &request, data),
            InitiatorPdu::TaskManagement(request) => self.handle_task_management(link, request),
            InitiatorPdu::Logout(request) => {
                if self.in_window(request.immediate, request.cmd_sn) {
                    self.run_in_cmdsn_order(
                        link,
                        request.immediate,
                        request.cmd_sn,
                        // The slot goes with the request, because it may be run while another connection is processed.
                        OrderedAction::Logout(link.slot, request),
                    );
                }
                Ok(())
            }
            InitiatorPdu::Snack(snack) => self.handle_snack(link, &snack),
            InitiatorPdu::Login(_) => Err(Violation::LoginInFullFeature),
            InitiatorPdu::ScsiCommand(_) | InitiatorPdu::DataOut(_) => {
                // The dispatch in `begin` places or skips the payloads of these two PDU types.
                unreachable!("their payload is never wanted whole")
            }
        }
    }

    /// Handles a violation: sends a Reject, and ends the connection unless the rule leaves it intact.
    ///
    /// Source: RFC 7143 §7.3, §7.7, §7.13.
    pub(crate) fn handle_violation(&mut self, link: &mut Link, violation: Violation, header: Option<&Bhs>) {
        if violation.ends_connection() {
            link.close(CloseReason::Violation(violation));
        }
        let Some(header) = header else { return };
        // The request counts as received before the Reject reports ExpCmdSN.
        if !violation.ends_connection() {
            self.count_as_received(link, header);
        }
        link.reject(self.cmd_sns(), violation, header);
    }

    /// Returns the current ExpCmdSN and MaxCmdSN.
    pub(crate) fn cmd_sns(&self) -> CmdSns {
        (self.session.window.expected(), self.session.window.maximum())
    }

    /// True in a discovery session.
    pub(crate) fn is_discovery(&self) -> bool {
        self.negotiated.session_type == SessionType::Discovery
    }

    /// False for requests that must be silently ignored: their CmdSN is outside the window, or a duplicate.
    pub(crate) fn in_window(&self, immediate: bool, cmd_sn: CmdSn) -> bool {
        immediate || self.session.window.is_open_for(cmd_sn)
    }

    /// Runs the action of a request in CmdSN order: now, or once the preceding CmdSNs have arrived.
    pub(crate) fn run_in_cmdsn_order(&mut self, link: &mut Link, immediate: bool, cmd_sn: CmdSn, turn: OrderedAction) {
        // An immediate request takes no CmdSN and is executed at once (RFC 7143 §4.2.2.1).
        if immediate {
            return self.run(link, turn);
        }
        // Out of order: a preceding request is on another connection, or was lost. This one waits for the missing
        // CmdSN.
        if cmd_sn != self.session.window.expected() {
            return self.session.window.hold(cmd_sn, turn);
        }
        // The window advances before the action: its response already reports the new ExpCmdSN.
        self.session.window.advance();
        self.session.open();
        self.run(link, turn);
        self.run_held(link);
    }

    /// Runs held actions that are next in order, up to one that another connection must answer.
    pub(crate) fn run_held(&mut self, link: &mut Link) {
        // One action at a time for another connection: the next one may only follow after it.
        while self.cross_connection.next_in_order.is_none()
            && let Some(turn) = self.session.window.take_held()
        {
            self.session.open();
            // An answer uses the connection of its request, and its link is borrowed by the caller only for this one.
            match self.answerer(&turn) {
                Some(slot) if slot != link.slot => self.cross_connection.next_in_order = Some((slot, turn)),
                _ => self.run(link, turn),
            }
        }
    }

    /// Takes the action that is next in order on a connection other than the one that caused it, whether that
    /// connection still exists or not.
    pub(crate) fn take_next_action(&mut self) -> Option<(usize, OrderedAction)> {
        // A request in CmdSN order precedes deferred immediate functions.
        if self.cross_connection.next_in_order.is_some() {
            return self.cross_connection.next_in_order.take();
        }
        let expected = self.session.window.expected();
        // A function whose connection has ended meanwhile is dropped, and the next one is looked at.
        while let Some((id, request)) = self.cross_connection.take_due(expected) {
            if let Some(slot) = self.slot_of(id) {
                return Some((slot, OrderedAction::TaskManagement(id, request)));
            }
        }
        None
    }

    /// Returns the connection that answers the action directly.
    fn answerer(&self, turn: &OrderedAction) -> Option<usize> {
        match turn {
            // Commands are answered through the driver, and their tasks know their connections.
            OrderedAction::Pass | OrderedAction::Command(_) => None,
            OrderedAction::TaskManagement(id, _) => self.slot_of(*id),
            OrderedAction::Logout(slot, _) => Some(*slot),
        }
    }

    /// True for an immediate function that must wait for commands it affects, which use other connections.
    ///
    /// Source: RFC 7143 §4.2.3.3 (b).
    pub(crate) fn is_early(&self, request: &TaskManagementRequest) -> bool {
        // With one connection the order of the bytes guarantees that all preceding commands have arrived.
        self.connections.is_several() && request.immediate && self.session.window.expected().precedes(request.cmd_sn)
    }

    /// Returns the slot of the connection of a task; `None` when that connection is lost.
    pub(crate) fn slot_of(&self, id: TaskId) -> Option<usize> {
        self.session.find(id).and_then(|task| task.slot)
    }

    /// Returns the slot of the connection of the task with this tag.
    pub(crate) fn slot_of_tag(&self, tag: InitiatorTaskTag) -> Option<usize> {
        self.session.by_tag(tag).and_then(|id| self.slot_of(id))
    }

    /// Removes the connection in `slot`. Its tasks end without a response. Commands that the driver is executing become
    /// orphans, which must end before anything new is delivered, so that no old write lands behind a new one. Returns
    /// the units of the affected commands.
    ///
    /// Source: RFC 7143 §7.6.
    pub(crate) fn lose_connection(&mut self, slot: usize) -> BTreeSet<Lun> {
        self.connections.remove(slot);
        let mut bereaved = BTreeSet::new();
        for id in self.session.matching(|task| task.slot == Some(slot)) {
            // The loop removes no task but the one at hand, so all others still exist.
            let task = self.session.find_mut(id).expect("it was there a moment ago");
            bereaved.extend(task.command().map(|_| task.lun));
            if task.command().is_some_and(|command| command.progress == Progress::Running) {
                // The tag is free for the initiator at once, although the driver still executes the command.
                task.slot = None;
                self.session.untag(id);
                self.orphaned_commands += 1;
            } else {
                // A response that the driver still gives to it finds no task and has no effect.
                self.remove(id);
            }
        }
        bereaved
    }

    /// Reports the lost commands of these units to the driver, and resumes delivery.
    pub(crate) fn resume_delivery(&mut self, bereaved: BTreeSet<Lun>) {
        // One event per unit: the SCSI layer establishes one unit attention, regardless of the number of lost commands.
        self.events.extend(bereaved.into_iter().map(Event::CommandsLost));
        self.deliver();
    }

    /// Removes an orphaned command that has ended.
    pub(crate) fn forget(&mut self, id: TaskId) {
        if self.remove(id) {
            self.deliver();
        }
    }

    /// Removes a task and frees its resources. True when it existed.
    pub(crate) fn remove(&mut self, id: TaskId) -> bool {
        let Some(task) = self.session.find(id) else { return false };
        // The data buffer of a command is charged until the task ends, also while the driver uses it.
        if let Kind::Command(command) = &task.kind {
            assert!(command.held_bytes <= self.held_bytes, "the memory of every command is counted");
            self.held_bytes -= command.held_bytes;
        }
        if task.slot.is_none() {
            assert!(self.orphaned_commands > 0, "every command whose connection is lost is counted");
            self.orphaned_commands -= 1;
        }
        self.session.remove(id)
    }

    /// Removes a task that the driver abandoned.
    pub(crate) fn abort(&mut self, link: &mut Link, id: TaskId) {
        // Evaluated before the task is removed, because that opens the window.
        let closed = self.session.window.is_closed();
        if self.remove(id) && closed {
            // No response will report the new MaxCmdSN, so a NOP-In does.
            self.send_window(link);
        }
    }

    /// Runs the action of a request that is next in order.
    pub(crate) fn run(&mut self, link: &mut Link, turn: OrderedAction) {
        match turn {
            OrderedAction::Pass => {}
            OrderedAction::Command(id) => self.handle_in_order(id),
            OrderedAction::TaskManagement(id, request) => self.start_task_management(link, id, &request),
            OrderedAction::Logout(_, request) => self.handle_logout(link, &request),
        }
    }

    /// Counts a rejected request that leaves the connection intact as received (RFC 7143 §7.3).
    fn count_as_received(&mut self, link: &mut Link, header: &Bhs) {
        const IMMEDIATE: u8 = 0x40;
        // Data-Out and SNACK carry no CmdSN.
        let numbered = !matches!(Opcode::of(header), Ok(Opcode::DataOut | Opcode::SnackRequest));
        // CmdSN is in bytes 24 to 27 of all these headers.
        let [.., a, b, c, d] = *header.first_chunk::<28>().expect("a header has 48 bytes");
        let cmd_sn = CmdSn(u32::from_be_bytes([a, b, c, d]));
        if numbered && header[0] & IMMEDIATE == 0 && self.in_window(false, cmd_sn) {
            // The request was refused, but its CmdSN must not leave a gap that blocks those behind it.
            self.run_in_cmdsn_order(link, false, cmd_sn, OrderedAction::Pass);
        }
    }
}
