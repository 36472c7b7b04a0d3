//! Full feature phase of an initiator: command window, and dispatch of PDUs.

use super::Event;
use super::connection::Link;
use super::numbering::{CommandNumbering, JoinState};
use super::task::Task;
use crate::Violation;
use crate::pdu::{
    AsyncMessage, Bhs, CmdSn, InitiatorTaskTag, LogoutOutcome, LogoutResponse, NopIn, Reject, StatSn, TargetPdu,
    TaskManagementResponse,
};
use crate::receive::Head;
use crate::session::TaskId;
use crate::session::slab::Slab;
use crate::{CloseReason, Negotiated};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::rc::Rc;

/// State of an initiator connection in full feature phase.
#[derive(Debug)]
pub(crate) struct FullFeaturePhase {
    pub(crate) negotiated: Negotiated,
    pub(crate) tasks: Slab<Task>,
    /// Requests that await the command window, in order of submission.
    pub(crate) waiting: VecDeque<TaskId>,
    pub(crate) numbering: Rc<CommandNumbering>,
    tags_from: u32,
    /// StatSN of the next status.
    pub(crate) exp_stat_sn: StatSn,
}

/// Destination of the payload of a PDU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placement {
    /// Data-in of a command.
    Command { task: TaskId, offset: usize },
    /// Discarded; the command is notified when it is complete.
    Skip(TaskId),
    /// Passed to [`FullFeaturePhase::handle_whole`] in one piece.
    Whole,
}

impl FullFeaturePhase {
    pub(crate) fn new(negotiated: Negotiated, max_cmd_sn: CmdSn, exp_stat_sn: StatSn) -> Self {
        let order = Rc::new(CommandNumbering::new(negotiated.identity.cmd_sn, max_cmd_sn));
        Self::joining(JoinState { numbering: order, tags_from: 0 }, negotiated, exp_stat_sn)
    }

    /// Creates the state of a connection that joins a session with other connections.
    pub(crate) fn joining(joins: JoinState, negotiated: Negotiated, exp_stat_sn: StatSn) -> Self {
        // The numbering of commands is shared by all connections of the session.
        let (tasks, waiting, JoinState { numbering: order, tags_from }) = (Slab::new(), VecDeque::new(), joins);
        Self { negotiated, tasks, waiting, numbering: order, tags_from, exp_stat_sn }
    }

    /// Queues a request, which is sent when its turn comes.
    pub(crate) fn submit(&mut self, link: &mut Link, task: Task) -> TaskId {
        let id = self.tasks.insert(task);
        // Behind all earlier requests, because CmdSNs follow the order of submission.
        self.waiting.push_back(id);
        self.pump(link);
        id
    }

    /// Checks a header and determines the destination of its payload.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn begin(&mut self, head: Head<'_>, data_bytes: usize) -> Result<Placement, Violation> {
        match TargetPdu::parse(head.basic)? {
            TargetPdu::DataIn(data_in) => self.begin_data_in(&data_in, data_bytes),
            // All other PDUs have short payloads.
            _ => Ok(Placement::Whole),
        }
    }

    /// Handles a PDU that [`FullFeaturePhase::begin`] requested in one piece.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn handle_whole(&mut self, link: &mut Link, header: &Bhs, data: &[u8]) -> Result<(), Violation> {
        match TargetPdu::parse(header)? {
            TargetPdu::ScsiResponse(response) => self.handle_scsi_response(link, &response, data)?,
            TargetPdu::R2t(r2t) => self.handle_r2t(link, &r2t)?,
            TargetPdu::NopIn(nop_in) => self.handle_nop_in(link, &nop_in, data)?,
            TargetPdu::TaskManagement(response) => self.handle_task_management(link, &response)?,
            TargetPdu::Text(response) => self.handle_text(link, &response, data)?,
            TargetPdu::Logout(response) => self.handle_logout(link, &response)?,
            TargetPdu::Async(message) => self.handle_async(link, &message, data)?,
            TargetPdu::Reject(reject) => self.handle_reject(link, &reject, data)?,
            TargetPdu::Login(_) => return Err(Violation::LoginInFullFeature),
            TargetPdu::DataIn(_) => unreachable!("its payload is never wanted whole"),
        }
        // Every PDU may have opened the window.
        self.pump(link);
        Ok(())
    }

    /// Sends waiting requests as far as the window and the output permit.
    pub(crate) fn pump(&mut self, link: &mut Link) {
        // Popped last, so that a request keeps its turn while the output or the window is closed.
        while link.transmit.has_room()
            && self.numbering.is_open()
            && let Some(id) = self.waiting.pop_front()
        {
            let cmd_sn = self.numbering.cmd_sn.get();
            // A request that was abandoned meanwhile takes no CmdSN.
            if let Some(task) = self.tasks.find_mut(id) {
                if let Task::Command(command) = task {
                    // Kept for ABORT TASK, which names the CmdSN of its task (RFC 7143 §11.5.5).
                    command.cmd_sn = Some(cmd_sn);
                }
                self.numbering.cmd_sn.set(cmd_sn.next());
                self.send(link, id, cmd_sn, false);
            }
        }
    }

    /// True while a request awaits the window.
    pub(crate) fn is_held(&self) -> bool {
        !self.waiting.is_empty() && !self.numbering.is_open()
    }

    /// Updates the window of the session from a PDU of the target.
    pub(crate) fn handle_window(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        self.numbering.handle_window(exp_cmd_sn, max_cmd_sn);
    }

    /// Accepts the next status.
    ///
    /// *Errors*: for any other StatSN; at level 0 a gap cannot be repaired.
    pub(crate) fn handle_status(&mut self, stat_sn: StatSn) -> Result<(), Violation> {
        if stat_sn != self.exp_stat_sn {
            return Err(Violation::StatSnWrong);
        }
        self.exp_stat_sn = stat_sn.next();
        Ok(())
    }

    /// Returns the task of a tag.
    ///
    /// *Errors*: for a tag without a task.
    pub(crate) fn by_tag(&self, tag: InitiatorTaskTag) -> Result<TaskId, Violation> {
        // The upper half of a tag is the generation of the place, so that a stale tag is rejected.
        // A place below the range of this connection belongs to another one of the session.
        let place = (tag.0 & 0xffff).checked_sub(self.tags_from);
        let id = place.and_then(|place| self.tasks.id_at(place)).filter(|&id| self.tag_of(id) == tag);
        id.ok_or(Violation::TaskTagUnknown)
    }

    /// Returns the tag of a task, which contains its place, so that a response finds it without a search.
    pub(crate) fn tag_of(&self, id: TaskId) -> InitiatorTaskTag {
        // Places are fewer than 2^16 - 1, so the reserved tag cannot result.
        InitiatorTaskTag(id.generation << 16 | (id.index + self.tags_from))
    }

    fn handle_nop_in(&mut self, link: &mut Link, nop_in: &NopIn, data: &[u8]) -> Result<(), Violation> {
        self.handle_window(nop_in.exp_cmd_sn, nop_in.max_cmd_sn);
        // A NOP-In with the reserved task tag is a ping of the target or a mere window update.
        if nop_in.initiator_task_tag.is_reserved() {
            if !nop_in.target_transfer_tag.is_reserved() {
                self.answer_ping(link, nop_in);
            }
            return Ok(());
        }
        self.handle_status(nop_in.stat_sn)?;
        let task = self.by_tag(nop_in.initiator_task_tag)?;
        match self.tasks.find(task) {
            // Answer to a keep-alive ping: its arrival is enough.
            Some(Task::Ping { data: asked }) if asked.is_empty() && data.is_empty() => {}
            Some(Task::Ping { .. }) => link.events.push_back(Event::Pong { task, data: data.to_vec() }),
            _ => return Err(Violation::TaskTagUnknown),
        }
        self.tasks.remove(task);
        Ok(())
    }

    fn handle_task_management(&mut self, link: &mut Link, response: &TaskManagementResponse) -> Result<(), Violation> {
        self.handle_window(response.exp_cmd_sn, response.max_cmd_sn);
        self.handle_status(response.stat_sn)?;
        let task = self.by_tag(response.initiator_task_tag)?;
        let Some(Task::Management(request)) = self.tasks.find(task) else { return Err(Violation::TaskTagUnknown) };
        let request = *request;
        self.tasks.remove(task);
        if response.outcome == crate::pdu::TaskFunctionOutcome::Complete {
            // Removed before the event is reported, so that the driver finds the function's effect in place.
            self.forget_aborted(&request);
        }
        link.events.push_back(Event::TaskManagement { task, outcome: response.outcome });
        Ok(())
    }

    fn handle_logout(&mut self, link: &mut Link, response: &LogoutResponse) -> Result<(), Violation> {
        self.handle_window(response.exp_cmd_sn, response.max_cmd_sn);
        self.handle_status(response.stat_sn)?;
        let task = self.by_tag(response.initiator_task_tag)?;
        match (self.tasks.find(task), response.outcome) {
            (Some(Task::Logout), LogoutOutcome::Closed) => link.close(CloseReason::LoggedOut),
            // The driver awaits the end of the connection, which a refused logout must not prevent.
            (Some(Task::Logout), _) => link.close(CloseReason::Dropped),
            _ => return Err(Violation::TaskTagUnknown),
        }
        Ok(())
    }

    fn handle_async(&mut self, link: &mut Link, message: &AsyncMessage, data: &[u8]) -> Result<(), Violation> {
        self.handle_window(message.exp_cmd_sn, message.max_cmd_sn);
        self.handle_status(message.stat_sn)?;
        // The driver decides, also about a request to log out: it knows the commands of its callers.
        link.events.push_back(Event::Async { lun: message.lun, event: message.event, sense: sense_in(data) });
        Ok(())
    }

    fn handle_reject(&mut self, link: &mut Link, reject: &Reject, data: &[u8]) -> Result<(), Violation> {
        self.handle_window(reject.exp_cmd_sn, reject.max_cmd_sn);
        self.handle_status(reject.stat_sn)?;
        // The data segment is the rejected header, which has the tag at its usual offset.
        let tag = data.get(16..20).and_then(|tag| tag.try_into().ok()).map(u32::from_be_bytes);
        let task = tag.and_then(|tag| self.by_tag(InitiatorTaskTag(tag)).ok());
        if let Some(task) = task {
            self.tasks.remove(task);
        }
        link.events.push_back(Event::Rejected { task, reason: reject.reason });
        Ok(())
    }
}

/// Extracts the sense data of a response, which follows its length.
pub(crate) fn sense_in(data: &[u8]) -> super::Sense {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return SmallVec::new() };
    // A length beyond the segment is an error of the target; the bytes that came are used.
    let length = usize::from(u16::from_be_bytes(*length));
    SmallVec::from_slice(rest.get(..length).unwrap_or(rest))
}
