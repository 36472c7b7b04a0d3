//! Full feature phase: where each PDU goes, and in which order requests have their turn.

use super::at_once::Short;
use super::data_out::Limits;
use super::event::Event;
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

/// A logged-in connection of a target.
#[derive(Debug)]
pub(crate) struct FullFeature {
    pub(crate) negotiated: Negotiated,
    pub(crate) data_out_limits: Limits,
    pub(crate) session: Session<Turn, Task>,
    /// Commands whose turn has come and whose data or predecessors have not, in CmdSN order.
    pub(crate) waiting: VecDeque<TaskId>,
    /// Memory that data-out of all tasks takes.
    pub(crate) held_bytes: usize,
    pub(crate) next_text_tag: u32,
    /// What the driver has not heard yet.
    pub(crate) events: VecDeque<Event>,
    pub(crate) roster: Roster,
    /// The target wants the session to come back elsewhere.
    pub(crate) asked_to_leave: bool,
    /// Connections that end by what was asked on another one, and why.
    pub(crate) ending: Vec<(usize, CloseReason)>,
    pub(crate) elsewhere: Elsewhere,
    /// Commands that the driver still has though their connection is lost; until they have ended, nothing new begins.
    pub(crate) orphans: u32,
}

/// What happens when the turn of a CmdSN comes.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Nothing: the request was dealt with, or is considered received.
    Pass,
    Command(TaskId),
    TaskManagement(TaskId, TaskManagementRequest),
    Logout(usize, LogoutRequest),
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

/// What the initiator calls the connections of a session, by their places.
#[derive(Debug)]
pub(crate) struct Roster(Vec<Option<Cid>>);

impl Roster {
    /// The place of the connection that the initiator calls `cid`.
    pub(crate) fn slot_of(&self, cid: Cid) -> Option<usize> {
        self.0.iter().position(|known| *known == Some(cid))
    }

    /// There is a connection in `slot`, and no other is called `cid` from now on.
    pub(crate) fn welcome(&mut self, slot: usize, cid: Cid) {
        self.0.iter_mut().filter(|known| **known == Some(cid)).for_each(|known| *known = None);
        self.0.resize(self.0.len().max(slot + 1), None);
        self.0[slot] = Some(cid);
    }

    /// The connection in `slot` is no more.
    fn lose(&mut self, slot: usize) {
        assert!(slot < self.0.len(), "only connections that were there are lost");
        self.0[slot] = None;
    }

    /// The places of all other connections, of those also that are no more.
    pub(crate) fn others(&self, slot: usize) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(move |&other| other != slot)
    }

    fn is_several(&self) -> bool {
        self.0.iter().flatten().count() > 1
    }
}

/// What other connections have to do than the one that brought it about.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// Tasks that are to be moved to the connection that asks for it.
    pub(crate) moves: Vec<(TaskId, TaskManagementRequest)>,
    /// What has its turn, on another connection than the one that brought it about.
    ripe: Option<(usize, Turn)>,
    /// Immediate functions that came before commands which they are about, on other connections.
    early: Vec<(TaskId, TaskManagementRequest)>,
}

impl Elsewhere {
    /// True when there is nothing. Almost always.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ripe.is_none() && self.early.is_empty() && self.moves.is_empty()
    }

    /// The function has its turn when those commands have come.
    pub(crate) fn defer(&mut self, id: TaskId, request: TaskManagementRequest) {
        self.early.push((id, request));
    }

    /// A function whose commands have come, when `expected` is the next CmdSN.
    fn take_due(&mut self, expected: CmdSn) -> Option<(TaskId, TaskManagementRequest)> {
        let due = self.early.iter().position(|(_, request)| !expected.precedes(request.cmd_sn))?;
        Some(self.early.remove(due))
    }
}

impl Link {
    /// Says that the PDU with this header was not taken, and why.
    pub(crate) fn reject(&mut self, (exp_cmd_sn, max_cmd_sn): CmdSns, violation: Violation, header: &Bhs) {
        let mut answer = [0; 48];
        let reject = Reject {
            reason: violation.reject_reason(),
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            data_sn: DataSn(0),
        };
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
            // Above level 0 with data in order, only the last R2T may be asked again (RFC 7143 §13.19).
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
            roster: Roster(vec![Some(link.cid)]),
            asked_to_leave: false,
            ending: Vec::new(),
            elsewhere: Elsewhere::default(),
            orphans: 0,
        }
    }

    /// Judges a header and says where its payload of `data_bytes` goes.
    pub(crate) fn begin(
        &mut self,
        link: &mut Link,
        head: Head<'_>,
        data_bytes: usize,
        short: Short,
        gate: &mut impl Gate,
    ) -> Result<Placement, Violation> {
        let pdu = InitiatorPdu::parse(head.basic)?;
        link.handle_acknowledged(exp_stat_sn(head.basic));
        match pdu {
            InitiatorPdu::ScsiCommand(command) => {
                self.begin_command(link, &command, head.additional, data_bytes, short, gate)
            }
            InitiatorPdu::DataOut(data_out) => self.begin_data_out(link, &data_out, data_bytes),
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
                    self.take_turn(link, request.immediate, request.cmd_sn, Turn::Logout(link.slot, request));
                }
                Ok(())
            }
            InitiatorPdu::Snack(snack) => self.handle_snack(link, &snack),
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
        link.reject(self.cmd_sns(), violation, header);
    }

    /// ExpCmdSN and MaxCmdSN as they are now.
    pub(crate) fn cmd_sns(&self) -> CmdSns {
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
        self.run_held(link);
    }

    /// Runs what was held and has its turn now, up to what another connection must answer.
    pub(crate) fn run_held(&mut self, link: &mut Link) {
        while self.elsewhere.ripe.is_none()
            && let Some(turn) = self.session.window.take_held()
        {
            self.session.open();
            match self.answerer(&turn) {
                Some(slot) if slot != link.slot => self.elsewhere.ripe = Some((slot, turn)),
                _ => self.run(link, turn),
            }
        }
    }

    /// What has its turn on another connection than the one that brought it about, whether that is still there or not.
    pub(crate) fn take_ripe(&mut self) -> Option<(usize, Turn)> {
        if self.elsewhere.ripe.is_some() {
            return self.elsewhere.ripe.take();
        }
        let expected = self.session.window.expected();
        while let Some((id, request)) = self.elsewhere.take_due(expected) {
            if let Some(slot) = self.slot_of(id) {
                return Some((slot, Turn::TaskManagement(id, request)));
            }
        }
        None
    }

    /// Which connection answers at once when the turn comes.
    fn answerer(&self, turn: &Turn) -> Option<usize> {
        match turn {
            Turn::Pass | Turn::Command(_) => None,
            Turn::TaskManagement(id, _) => self.slot_of(*id),
            Turn::Logout(slot, _) => Some(*slot),
        }
    }

    /// An immediate function waits for the commands that it is about and that come on other connections.
    ///
    /// Source: RFC 7143 §4.2.3.3 (b).
    pub(crate) fn is_early(&self, request: &TaskManagementRequest) -> bool {
        self.roster.is_several() && request.immediate && self.session.window.expected().precedes(request.cmd_sn)
    }

    /// The place of the connection that a task belongs to; none for one whose connection is lost.
    pub(crate) fn slot_of(&self, id: TaskId) -> Option<usize> {
        self.session.find(id).and_then(|task| task.slot)
    }

    /// The place of the connection that the task with this tag belongs to.
    pub(crate) fn slot_of_tag(&self, tag: InitiatorTaskTag) -> Option<usize> {
        self.session.by_tag(tag).and_then(|id| self.slot_of(id))
    }

    /// The connection in `slot` is no more. Its tasks end without an answer; what the driver has of them is waited for
    /// before anything new begins, so that no old write lands behind a new one. Gives the units whose commands they were.
    ///
    /// Source: RFC 7143 §7.6.
    pub(crate) fn lose(&mut self, slot: usize) -> BTreeSet<Lun> {
        self.roster.lose(slot);
        let mut bereaved = BTreeSet::new();
        for id in self.session.matching(|task| task.slot == Some(slot)) {
            let task = self.session.find_mut(id).expect("it was there a moment ago");
            bereaved.extend(task.command().map(|_| task.lun));
            if task.command().is_some_and(|command| command.progress == Progress::Running) {
                task.slot = None;
                self.session.untag(id);
                self.orphans += 1;
            } else {
                self.remove(id);
            }
        }
        bereaved
    }

    /// The session goes on without the connections whose commands were for these units.
    pub(crate) fn go_on(&mut self, bereaved: BTreeSet<Lun>) {
        self.events.extend(bereaved.into_iter().map(Event::CommandsLost));
        self.deliver();
    }

    /// A command whose connection is lost has ended.
    pub(crate) fn forget(&mut self, id: TaskId) {
        if self.remove(id) {
            self.deliver();
        }
    }

    /// Forgets a task and what it holds. True when it lived.
    pub(crate) fn remove(&mut self, id: TaskId) -> bool {
        let Some(task) = self.session.find(id) else { return false };
        if let Kind::Command(command) = &task.kind {
            assert!(command.held_bytes <= self.held_bytes, "the memory of every command is counted");
            self.held_bytes -= command.held_bytes;
        }
        if task.slot.is_none() {
            assert!(self.orphans > 0, "every command whose connection is lost is counted");
            self.orphans -= 1;
        }
        self.session.remove(id)
    }

    /// Forgets a task that the driver gave up.
    pub(crate) fn abort(&mut self, link: &mut Link, id: TaskId) {
        let closed = self.session.window.is_closed();
        if self.remove(id) && closed {
            // No answer will tell the initiator that it may go on.
            self.send_window(link);
        }
    }

    /// The turn of a request has come.
    pub(crate) fn run(&mut self, link: &mut Link, turn: Turn) {
        match turn {
            Turn::Pass => {}
            Turn::Command(id) => self.handle_turn(id),
            Turn::TaskManagement(id, request) => self.start_task_management(link, id, &request),
            Turn::Logout(_, request) => self.handle_logout(link, &request),
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
