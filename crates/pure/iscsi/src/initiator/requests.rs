//! Requests of an initiator other than commands: task management, pings, text and logout.

use super::connection::Link;
use super::event::{Event, Target};
use super::full_feature::FullFeaturePhase;
use super::task::Task;
use crate::Violation;
use crate::pdu::{
    CmdSn, InitiatorTaskTag, LogoutReason, LogoutRequest, Lun, NopIn, NopOut, SegmentLengths, StatSn,
    TargetTransferTag, TaskFunction, TaskManagementRequest, TextRequest, TextResponse,
};
use crate::session::TaskId;
use crate::text::Pairs;

/// Maximum accepted length of a SendTargets response in bytes.
const TEXT_BYTES_MAX: usize = 4 << 20;

impl FullFeaturePhase {
    /// Sends the request with `cmd_sn`.
    pub(crate) fn send(&mut self, link: &mut Link, id: TaskId, cmd_sn: CmdSn, immediate: bool) {
        let initiator_task_tag = self.tag_of(id);
        let exp_stat_sn = self.exp_stat_sn;
        let mut header = [0; 48];
        match self.tasks.find(id) {
            Some(Task::Command(_)) => self.send_command(link, id, cmd_sn, immediate),
            Some(Task::Management(request)) => {
                let request = TaskManagementRequest { immediate, initiator_task_tag, cmd_sn, exp_stat_sn, ..*request };
                request.emit(SegmentLengths::NONE, &mut header);
                link.transmit.push(&header, &[]);
            }
            Some(Task::Ping { data }) => {
                // A reserved target transfer tag: this ping is not an answer to the target's (RFC 7143 §11.18.4).
                let target_transfer_tag = TargetTransferTag::RESERVED;
                let lun = Lun(0);
                let ping = NopOut { immediate, lun, initiator_task_tag, target_transfer_tag, cmd_sn, exp_stat_sn };
                ping.emit(SegmentLengths::data(data.len()), &mut header);
                link.transmit.push(&header, data);
            }
            Some(Task::Text { request, .. }) => {
                let text =
                    text_request(immediate, initiator_task_tag, TargetTransferTag::RESERVED, cmd_sn, exp_stat_sn);
                text.emit(SegmentLengths::data(request.len()), &mut header);
                link.transmit.push(&header, request);
            }
            Some(Task::Logout) => {
                // The session as a whole is closed, with all of its connections.
                let (reason, cid) = (LogoutReason::CloseSession, self.negotiated.identity.cid);
                let logout = LogoutRequest { immediate, reason, initiator_task_tag, cid, cmd_sn, exp_stat_sn };
                logout.emit(SegmentLengths::NONE, &mut header);
                link.transmit.push(&header, &[]);
            }
            None => {}
        }
    }

    /// Sends a task management function at once.
    pub(crate) fn manage(
        &mut self,
        link: &mut Link,
        function: TaskFunction,
        lun: Lun,
        referenced: Option<TaskId>,
    ) -> TaskId {
        // RefCmdSN names the CmdSN of the command to be aborted (RFC 7143 §11.5.5).
        let ref_cmd_sn = referenced.and_then(|id| self.sent_as(id));
        if let Some(id) = referenced.filter(|_| ref_cmd_sn.is_none() && function == TaskFunction::AbortTask) {
            // The command has not been sent and never will be; the target reports that it does not exist.
            self.tasks.remove(id);
        }
        let request = TaskManagementRequest {
            // Immediate, so that the function does not wait for the commands that it is to abort.
            immediate: true,
            function,
            lun,
            // Placeholders: `send` fills in the tag and ExpStatSN.
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            referenced_task_tag: referenced.map_or(InitiatorTaskTag::RESERVED, |id| self.tag_of(id)),
            cmd_sn: self.numbering.cmd_sn.get(),
            exp_stat_sn: StatSn(0),
            // A command without a CmdSN is named by that of the request itself (RFC 7143 §11.5.5).
            ref_cmd_sn: ref_cmd_sn.unwrap_or(self.numbering.cmd_sn.get()),
            exp_data_sn: crate::pdu::DataSn(0),
        };
        assert!(self.tasks.len() < link.config.tags() as usize, "a task has a tag that no other connection uses");
        let id = self.tasks.insert(Task::Management(request));
        self.send(link, id, self.numbering.cmd_sn.get(), true);
        id
    }

    /// Returns the CmdSN of a command that has been sent.
    fn sent_as(&self, id: TaskId) -> Option<CmdSn> {
        match self.tasks.find(id) {
            Some(Task::Command(command)) => command.cmd_sn,
            _ => None,
        }
    }

    /// Removes the tasks that a completed function aborted: no response follows for them.
    pub(crate) fn forget_aborted(&mut self, request: &TaskManagementRequest) {
        use TaskFunction as F;
        if request.function == F::AbortTask {
            if let Ok(id) = self.by_tag(request.referenced_task_tag) {
                self.tasks.remove(id);
            }
            return;
        }
        let everywhere = matches!(request.function, F::TargetWarmReset | F::TargetColdReset);
        let sets = matches!(request.function, F::AbortTaskSet | F::ClearTaskSet | F::LogicalUnitReset);
        // Commands sent behind the function, or still waiting, are not affected (RFC 7143 §4.2.3.3).
        let affected = self.tasks.iter().filter(|(_, task)| match task {
            Task::Command(task) => {
                let is_earlier = task.cmd_sn.is_some_and(|cmd_sn| cmd_sn.precedes(request.cmd_sn));
                (everywhere || sets && task.command.lun == request.lun) && is_earlier
            }
            _ => false,
        });
        // Collected first, because the iterator borrows the tasks.
        for id in affected.map(|(id, _)| id).collect::<Vec<_>>() {
            self.tasks.remove(id);
        }
    }

    /// Answers a ping of the target.
    pub(crate) fn answer_ping(&self, link: &mut Link, nop_in: &NopIn) {
        let answer = NopOut {
            // An answer is immediate and takes no CmdSN.
            immediate: true,
            lun: nop_in.lun,
            // The reserved task tag marks an answer, which the target does not answer in turn (RFC 7143 §11.18.3).
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            target_transfer_tag: nop_in.target_transfer_tag,
            cmd_sn: self.numbering.cmd_sn.get(),
            exp_stat_sn: self.exp_stat_sn,
        };
        let mut header = [0; 48];
        answer.emit(SegmentLengths::NONE, &mut header);
        link.transmit.push(&header, &[]);
    }

    pub(crate) fn handle_text(
        &mut self,
        link: &mut Link,
        response: &TextResponse,
        data: &[u8],
    ) -> Result<(), Violation> {
        self.handle_window(response.exp_cmd_sn, response.max_cmd_sn);
        self.handle_status(response.stat_sn)?;
        let task = self.by_tag(response.initiator_task_tag)?;
        let Some(Task::Text { answer, .. }) = self.tasks.find_mut(task) else { return Err(Violation::TaskTagUnknown) };
        // Bounded, because the target decides on the number of its targets and portals.
        if answer.len() + data.len() > TEXT_BYTES_MAX {
            return Err(Violation::TextTooLong);
        }
        // The text is parsed once complete, because a pair may be split over two PDUs.
        answer.extend_from_slice(data);
        if !response.is_final {
            return self.ask_on(link, task, response);
        }
        let targets = targets_in(answer)?;
        self.tasks.remove(task);
        link.events.push_back(Event::Targets { task, targets });
        Ok(())
    }

    /// Requests the continuation of the text with an empty request.
    fn ask_on(&self, link: &mut Link, task: TaskId, response: &TextResponse) -> Result<(), Violation> {
        // Without a transfer tag the text cannot be continued.
        if response.target_transfer_tag.is_reserved() {
            return Err(Violation::TransferTagUnknown);
        }
        // Immediate, so that the continuation does not wait for the command window.
        let text = TextRequest {
            lun: response.lun,
            ..text_request(
                true,
                self.tag_of(task),
                response.target_transfer_tag,
                self.numbering.cmd_sn.get(),
                self.exp_stat_sn,
            )
        };
        let mut header = [0; 48];
        text.emit(SegmentLengths::NONE, &mut header);
        link.transmit.push(&header, &[]);
        Ok(())
    }
}

fn text_request(
    immediate: bool,
    initiator_task_tag: InitiatorTaskTag,
    target_transfer_tag: TargetTransferTag,
    cmd_sn: CmdSn,
    exp_stat_sn: StatSn,
) -> TextRequest {
    TextRequest {
        immediate,
        is_final: true,
        continues: false,
        lun: Lun(0),
        initiator_task_tag,
        target_transfer_tag,
        cmd_sn,
        exp_stat_sn,
    }
}

fn targets_in(answer: &[u8]) -> Result<Vec<Target>, Violation> {
    let mut targets: Vec<Target> = Vec::new();
    // Parsed pair by pair: a response may have more pairs than the limit on a request.
    for pair in answer.split_inclusive(|&byte| byte == 0).flat_map(Pairs::parse) {
        match (pair?, targets.last_mut()) {
            (("TargetName", name), _) => targets.push(Target { name: name.to_owned(), addresses: Vec::new() }),
            // Addresses follow the name of their target (RFC 7143 Appendix C).
            (("TargetAddress", address), Some(target)) => target.addresses.push(address.to_owned()),
            // All other keys, and an address before the first name, do not describe a target.
            _ => {}
        }
    }
    Ok(targets)
}
