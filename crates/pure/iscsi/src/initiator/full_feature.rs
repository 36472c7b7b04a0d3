//! Full feature phase of an initiator: what may be sent, and where each PDU goes.

use super::Event;
use super::connection::Link;
use super::task::{Task, tag_of};
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

/// A logged-in connection of an initiator.
#[derive(Debug)]
pub(crate) struct FullFeature {
    pub(crate) negotiated: Negotiated,
    pub(crate) tasks: Slab<Task>,
    /// Requests that wait for the command window, in the order of submission.
    pub(crate) waiting: VecDeque<TaskId>,
    /// The number of the next request.
    pub(crate) cmd_sn: CmdSn,
    pub(crate) max_cmd_sn: CmdSn,
    pub(crate) exp_cmd_sn: CmdSn,
    /// The number of the next status.
    pub(crate) exp_stat_sn: StatSn,
}

/// Where the payload of a PDU goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placement {
    /// Into the data-in of a command.
    Command { task: TaskId, offset: usize },
    /// Nowhere; the command learns that it has come.
    Skip(TaskId),
    /// To [`FullFeature::handle_whole`], in one piece.
    Whole,
}

impl FullFeature {
    pub(crate) fn new(negotiated: Negotiated, max_cmd_sn: CmdSn, exp_stat_sn: StatSn) -> Self {
        let cmd_sn = negotiated.identity.cmd_sn;
        let (tasks, waiting) = (Slab::new(), VecDeque::new());
        Self { negotiated, tasks, waiting, cmd_sn, max_cmd_sn, exp_cmd_sn: cmd_sn, exp_stat_sn }
    }

    /// The request is sent when its turn comes.
    pub(crate) fn submit(&mut self, link: &mut Link, task: Task) -> TaskId {
        let id = self.tasks.insert(task);
        self.waiting.push_back(id);
        self.pump(link);
        id
    }

    /// Judges a header and says where its payload goes.
    pub(crate) fn begin(&mut self, head: Head<'_>, data_bytes: usize) -> Result<Placement, Violation> {
        match TargetPdu::parse(head.basic)? {
            TargetPdu::DataIn(data_in) => self.begin_data_in(&data_in, data_bytes),
            _ => Ok(Placement::Whole),
        }
    }

    /// Acts on a PDU that [`FullFeature::begin`] wanted whole.
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
        self.pump(link);
        Ok(())
    }

    /// Sends what waits, as far as the window and the output allow.
    pub(crate) fn pump(&mut self, link: &mut Link) {
        while link.transmit.has_room()
            && !self.max_cmd_sn.precedes(self.cmd_sn)
            && let Some(id) = self.waiting.pop_front()
        {
            let cmd_sn = self.cmd_sn;
            // What was given up meanwhile takes no number.
            if let Some(task) = self.tasks.find_mut(id) {
                if let Task::Command(command) = task {
                    command.cmd_sn = Some(cmd_sn);
                }
                self.cmd_sn = cmd_sn.next();
                self.send(link, id, cmd_sn, false);
            }
        }
    }

    /// True while something waits for the window.
    pub(crate) fn is_held(&self) -> bool {
        !self.waiting.is_empty() && self.max_cmd_sn.precedes(self.cmd_sn)
    }

    /// The window is what the target said last; what comes late does not close it again.
    ///
    /// Source: RFC 7143 §4.2.2.1.
    pub(crate) fn handle_window(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        if max_cmd_sn.next().precedes(exp_cmd_sn) {
            return;
        }
        if self.exp_cmd_sn.precedes(exp_cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
        }
        if self.max_cmd_sn.precedes(max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    /// The next status has come, and no other.
    pub(crate) fn handle_status(&mut self, stat_sn: StatSn) -> Result<(), Violation> {
        if stat_sn != self.exp_stat_sn {
            return Err(Violation::StatSnWrong);
        }
        self.exp_stat_sn = stat_sn.next();
        Ok(())
    }

    /// The task that a tag names.
    pub(crate) fn by_tag(&self, tag: InitiatorTaskTag) -> Result<TaskId, Violation> {
        let id = self.tasks.id_at(tag.0 & 0xffff).filter(|&id| tag_of(id) == tag);
        id.ok_or(Violation::TaskTagUnknown)
    }

    fn handle_nop_in(&mut self, link: &mut Link, nop_in: &NopIn, data: &[u8]) -> Result<(), Violation> {
        self.handle_window(nop_in.exp_cmd_sn, nop_in.max_cmd_sn);
        if nop_in.initiator_task_tag.is_reserved() {
            if !nop_in.target_transfer_tag.is_reserved() {
                self.answer_ping(link, nop_in);
            }
            return Ok(());
        }
        self.handle_status(nop_in.stat_sn)?;
        let task = self.by_tag(nop_in.initiator_task_tag)?;
        match self.tasks.find(task) {
            // Our own question whether the target is there: that the answer came is enough.
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
            (Some(Task::Logout), _) => link.close(CloseReason::Dropped),
            _ => return Err(Violation::TaskTagUnknown),
        }
        Ok(())
    }

    fn handle_async(&mut self, link: &mut Link, message: &AsyncMessage, data: &[u8]) -> Result<(), Violation> {
        self.handle_window(message.exp_cmd_sn, message.max_cmd_sn);
        self.handle_status(message.stat_sn)?;
        link.events.push_back(Event::Async { lun: message.lun, event: message.event, sense: sense_in(data) });
        Ok(())
    }

    fn handle_reject(&mut self, link: &mut Link, reject: &Reject, data: &[u8]) -> Result<(), Violation> {
        self.handle_window(reject.exp_cmd_sn, reject.max_cmd_sn);
        self.handle_status(reject.stat_sn)?;
        // The data is the header that was rejected; its tag stands where every request has it.
        let tag = data.get(16..20).and_then(|tag| tag.try_into().ok()).map(u32::from_be_bytes);
        let task = tag.and_then(|tag| self.by_tag(InitiatorTaskTag(tag)).ok());
        if let Some(task) = task {
            self.tasks.remove(task);
        }
        link.events.push_back(Event::Rejected { task, reason: reject.reason });
        Ok(())
    }
}

/// The sense data of a response, behind its length.
pub(crate) fn sense_in(data: &[u8]) -> super::Sense {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return SmallVec::new() };
    let length = usize::from(u16::from_be_bytes(*length));
    SmallVec::from_slice(rest.get(..length).unwrap_or(rest))
}
