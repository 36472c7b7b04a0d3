//! Full feature phase of an initiator: what may be sent, and where each PDU goes.

use super::Event;
use super::connection::Link;
use super::order::{Joins, Order};
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

/// A logged-in connection of an initiator.
#[derive(Debug)]
pub(crate) struct FullFeaturePhase {
    pub(crate) negotiated: Negotiated,
    pub(crate) tasks: Slab<Task>,
    /// Requests that wait for the command window, in the order of submission.
    pub(crate) waiting: VecDeque<TaskId>,
    pub(crate) order: Rc<Order>,
    tags_from: u32,
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
    /// To [`FullFeaturePhase::handle_whole`], in one piece.
    Whole,
}

impl FullFeaturePhase {
    pub(crate) fn new(negotiated: Negotiated, max_cmd_sn: CmdSn, exp_stat_sn: StatSn) -> Self {
        let order = Rc::new(Order::new(negotiated.identity.cmd_sn, max_cmd_sn));
        Self::joining(Joins { order, tags_from: 0 }, negotiated, exp_stat_sn)
    }

    /// As [`FullFeaturePhase::new`], of a connection to a session that has others.
    pub(crate) fn joining(joins: Joins, negotiated: Negotiated, exp_stat_sn: StatSn) -> Self {
        let (tasks, waiting, Joins { order, tags_from }) = (Slab::new(), VecDeque::new(), joins);
        Self { negotiated, tasks, waiting, order, tags_from, exp_stat_sn }
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

    /// Acts on a PDU that [`FullFeaturePhase::begin`] wanted whole.
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
            && self.order.is_open()
            && let Some(id) = self.waiting.pop_front()
        {
            let cmd_sn = self.order.cmd_sn.get();
            // What was given up meanwhile takes no number.
            if let Some(task) = self.tasks.find_mut(id) {
                if let Task::Command(command) = task {
                    command.cmd_sn = Some(cmd_sn);
                }
                self.order.cmd_sn.set(cmd_sn.next());
                self.send(link, id, cmd_sn, false);
            }
        }
    }

    /// True while something waits for the window.
    pub(crate) fn is_held(&self) -> bool {
        !self.waiting.is_empty() && !self.order.is_open()
    }

    /// The window of the session is what the target said last.
    pub(crate) fn handle_window(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        self.order.handle_window(exp_cmd_sn, max_cmd_sn);
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
        let place = (tag.0 & 0xffff).checked_sub(self.tags_from);
        let id = place.and_then(|place| self.tasks.id_at(place)).filter(|&id| self.tag_of(id) == tag);
        id.ok_or(Violation::TaskTagUnknown)
    }

    /// The tag of a task says where it is, so that an answer finds it without searching.
    pub(crate) fn tag_of(&self, id: TaskId) -> InitiatorTaskTag {
        // Places are fewer than 2^16 - 1, so the reserved tag never comes out.
        InitiatorTaskTag(id.generation << 16 | (id.index + self.tags_from))
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
