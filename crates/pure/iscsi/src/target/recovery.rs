//! Error recovery above level 0: detection of lost PDUs, retransmission, and reassignment of tasks.
//!
//! Level 1 requests lost data with another R2T, and answers SNACKs from the retained PDUs ([`super::sent`]). Level 2
//! retains the tasks of a lost connection until they are reassigned or their time expires.

use super::full_feature::FullFeature;
use super::link::Link;
use super::sent::{STATUSES_MAX, SentContent};
use super::task::{Progress, Responding, Task};
use crate::Violation;
use crate::pdu::{
    Bhs, CmdSn, InitiatorPdu, InitiatorTaskTag, Snack, SnackType, StatSn, TaskFunctionOutcome, TaskManagementRequest,
};
use crate::session::TaskId;
use block::Buf;

impl FullFeature {
    /// True at ErrorRecoveryLevel 2, where lost connections leave their tasks for reassignment.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.negotiated.error_recovery_level == 2
    }

    /// Handles a PDU with a wrong data digest: rejects it, and marks lost data as due for an R2T.
    ///
    /// Source: RFC 7143 §7.8. The CmdSN of a request counts as not received: the initiator sends it again.
    pub(crate) fn handle_damaged(&mut self, link: &mut Link, header: &Bhs) {
        // The Reject tells the initiator which PDU was damaged; a request is then retried by the initiator itself.
        link.reject(self.cmd_sns(), Violation::DataDigestWrong, header);
        let Ok(InitiatorPdu::DataOut(data_out)) = InitiatorPdu::parse(header) else { return };
        let Some(id) = self.session.by_tag(data_out.initiator_task_tag) else { return };
        let Some(task) = self.session.find_mut(id).filter(|task| task.slot == Some(link.slot)) else { return };
        let Some(command) = task.command_mut() else { return };
        let solicited = !data_out.target_transfer_tag.is_reserved();
        let answers = super::command::transfer_tag(id, command.data_out.answering());
        // Only data of the current sequence matters: an answer to an older R2T has been replaced.
        if command.data_out.runs(solicited) && (!solicited || data_out.target_transfer_tag == answers) {
            command.data_out.miss(solicited, data_out.is_final);
            self.finish_skipped(link, Some(id));
        }
    }

    /// Handles a wrong data digest of a payload that was received into its destination.
    pub(crate) fn handle_damaged_payload(&mut self, link: &mut Link, id: TaskId, buf: Option<Buf>, header: &Bhs) {
        // A command with damaged immediate data is not rejected: its data is requested again with an R2T.
        if matches!(InitiatorPdu::parse(header), Ok(InitiatorPdu::DataOut(_))) {
            link.reject(self.cmd_sns(), Violation::DataDigestWrong, header);
        }
        // The range counts as not received, and is requested again.
        self.give_back(id, buf);
        self.finish_skipped(link, Some(id));
    }

    /// Returns the data buffer to its command after an incomplete or damaged payload.
    pub(crate) fn give_back(&mut self, id: TaskId, buf: Option<Buf>) {
        let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) else { return };
        if buf.is_some() {
            command.buf = buf;
        }
        if let Some(placing) = command.placing.take() {
            command.data_out.lose(placing.offset, placing.last);
        }
    }

    /// Takes the commands whose solicited data has made no progress since the last call: it must be requested again.
    pub(crate) fn take_overdue(&mut self) -> Vec<(TaskId, usize)> {
        let owed =
            // Commands of a lost connection are recovered by reassignment, not by an R2T.
            |task: &Task| task.slot.is_some() && task.command().is_some_and(|command| command.data_out.is_owed());
        let mut stale = Vec::new();
        for id in self.session.matching(owed) {
            let Some(task) = self.session.find_mut(id) else { continue };
            let slot = task.slot;
            let Some(command) = task.command_mut() else { continue };
            // The mark is set in one round and found in the next, so data is requested again after one to two
            // intervals.
            if command.placing.is_none() && std::mem::replace(&mut command.stale, true) {
                stale.extend(slot.map(|slot| (id, slot)));
            }
        }
        stale
    }

    /// Requests all missing data of a command again.
    pub(crate) fn request_missing_data(&mut self, link: &mut Link, id: TaskId) {
        if let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) {
            // All open R2Ts are abandoned; late answers to them are recognized by their transfer tag and discarded.
            command.data_out.restart();
            self.finish_skipped(link, Some(id));
        }
    }

    /// Answers a SNACK.
    ///
    /// *Errors*: the violated rule. Source: RFC 7143 §11.16.
    pub(crate) fn handle_snack(&mut self, link: &mut Link, snack: &Snack) -> Result<(), Violation> {
        if !link.recovers {
            return Err(Violation::SnackWithoutRecovery);
        }
        match snack.kind {
            SnackType::DataOrR2t => self.send_data_again(link, snack),
            SnackType::Status => self.send_statuses_again(link, StatSn(snack.beg_run), snack.run_length),
            // The target never sets the A bit, so no acknowledgement of data can be expected.
            SnackType::DataAck => Err(Violation::DataAckUnasked),
            SnackType::RData => self.send_all_again(link, snack),
        }
    }

    fn send_data_again(&mut self, link: &mut Link, snack: &Snack) -> Result<(), Violation> {
        // A command that still awaits data: R2Ts are repeated.
        let tag = snack.initiator_task_tag;
        if let Some(id) = self.session.by_tag(tag)
            && let Some(command) =
                self.session.find(id).filter(|task| task.slot == Some(link.slot)).and_then(Task::command)
            && command.progress != Progress::Responding
        {
            let last = command.data_out.solicitations();
            let asked: Vec<_> = run(snack, last).filter_map(|r2t_sn| command.data_out.open_r2t(r2t_sn)).collect();
            // An R2T that has been answered meanwhile is not repeated.
            asked.into_iter().for_each(|solicitation| self.push_r2t(link, id, solicitation));
            // Nothing with such a number was sent, so the Reject tells the initiator not to wait for it.
            return if snack.beg_run < last { Ok(()) } else { Err(Violation::SnackOfNothing) };
        }
        // A response in progress: Data-In PDUs that were sent are repeated.
        if let Some(at) = link.responding.iter().position(|answer| answer.tag == tag) {
            // Taken out and put back in its place, because sending borrows the link.
            let mut answer = link.responding.remove(at).expect("it was found there");
            let sent = answer.data_in_pdus;
            answer.send_pdus_again(link, self.cmd_sns(), run(snack, sent));
            link.responding.insert(at, answer);
            return if snack.beg_run < sent { Ok(()) } else { Err(Violation::SnackOfNothing) };
        }
        // A completed response: Data-In is repeated from the retained copy.
        let stat_sn = link.sent.stat_sn_of(tag).ok_or(Violation::SnackOfNothing)?;
        let Some((at, mut status)) = link.sent.take(stat_sn) else { return Err(Violation::SnackOfNothing) };
        let mut sent = 0;
        if let SentContent::Answer(answer) = &mut status.content {
            sent = answer.data_in_pdus_in_all();
            answer.send_pdus_again(link, self.cmd_sns(), run(snack, answer.data_in_pdus));
            // The last PDU of a response carries the status, so it is built separately.
            if run(snack, sent).last() == Some(answer.data_in_pdus) {
                answer.send_status(link, self.cmd_sns(), stat_sn);
            }
        }
        link.sent.put(at, status);
        if snack.beg_run < sent { Ok(()) } else { Err(Violation::SnackOfNothing) }
    }

    fn send_statuses_again(&mut self, link: &mut Link, from: StatSn, count: u32) -> Result<(), Violation> {
        // RunLength zero requests everything from BegRun on (RFC 7143 §11.16.7).
        let count = if count == 0 { link.stat_sn.since(from) } else { count };
        // More than the retained statuses cannot be available from the first one on.
        if count as usize > STATUSES_MAX || !from.precedes(link.stat_sn) {
            return Err(Violation::SnackOfNothing);
        }
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        for stat_sn in (0..count).map(|n| from.plus(n)) {
            // Taken out and put back, because sending borrows the connection.
            let (at, status) = link.sent.take(stat_sn).ok_or(Violation::SnackOfNothing)?;
            match &status.content {
                SentContent::Pdu(header, data) => link.transmit.push(&renewed(header, exp_cmd_sn, max_cmd_sn), data),
                SentContent::Answer(answer) => answer.send_status(link, self.cmd_sns(), stat_sn),
            }
            link.sent.put(at, status);
        }
        Ok(())
    }

    /// R-Data SNACK: sends all Data-In of a command again, cut to the current MaxRecvDataSegmentLength, with a separate
    /// status.
    fn send_all_again(&mut self, link: &mut Link, snack: &Snack) -> Result<(), Violation> {
        let (tag, segment_bytes_max) = (snack.initiator_task_tag, link.peer_data_segment_bytes_max);
        let begin = |answer: &mut Responding| {
            // A status within a Data-In would not match the new numbering of PDUs, so it is sent separately.
            (answer.data_in_bytes, answer.data_in_pdus, answer.apart) = (0, 0, true);
            // The SNACK tag is returned in the SCSI Response, which tells old and new responses apart (RFC 7143
            // §11.16.5).
            (answer.snack_tag, answer.segment_bytes_max) = (snack.target_transfer_tag.0, segment_bytes_max);
        };
        if let Some(answer) = link.responding.iter_mut().find(|answer| answer.tag == tag) {
            // The response starts over, and the pump sends it in its turn.
            begin(answer);
            return Ok(());
        }
        let stat_sn = link.sent.stat_sn_of(tag).ok_or(Violation::SnackOfNothing)?;
        let Some((at, mut status)) = link.sent.take(stat_sn) else { return Err(Violation::SnackOfNothing) };
        if let SentContent::Answer(answer) = &mut status.content {
            begin(answer);
            answer.send_left(link, self.cmd_sns());
            answer.send_status(link, self.cmd_sns(), stat_sn);
        }
        link.sent.put(at, status);
        Ok(())
    }

    /// Reassigns a task of the lost connection `lost` to `link`.
    ///
    /// Source: RFC 7143 §7.2.2, §11.5.6.
    pub(crate) fn reassign(&mut self, link: &mut Link, lost: &mut Link, request: &TaskManagementRequest) {
        assert_ne!(link.slot, lost.slot, "a task moves to another connection");
        // ExpDataSN of the request: the initiator has received all Data-In before it (RFC 7143 §11.5.6).
        let (tag, data_sn) = (request.referenced_task_tag, request.exp_data_sn.0);
        // The status was sent on the lost connection and not acknowledged: the retained response is sent again.
        let Some(id) = self.session.by_tag(tag) else {
            if let Some(answer) = lost.sent.take_answer(tag) {
                self.send_on_new_connection(link, answer, data_sn);
            }
            return;
        };
        let Some(task) = self.session.find_mut(id) else { return };
        // The task belongs to the new connection from here on, so the loss of that one finds it, too.
        task.slot = Some(link.slot);
        match task.command().map(|command| command.progress) {
            // Data received by the old connection is kept; only the missing rest is requested.
            Some(Progress::Receiving | Progress::Refused) => self.request_missing_data(link, id),
            Some(Progress::Responding) => {
                if let Some(at) = lost.responding.iter().position(|answer| answer.task == id) {
                    let mut answer = lost.responding.remove(at).expect("it was found there");
                    // ExpDataSN of the initiator cannot exceed the PDUs sent.
                    let data_sn = data_sn.min(answer.data_in_pdus);
                    answer.go_back(link, data_sn);
                    link.responding.push_back(answer);
                    self.pump(link);
                }
            }
            // The driver is executing it; its response will use the new connection.
            Some(Progress::Running) | None => {}
        }
    }

    /// Returns the reason why a task cannot be reassigned.
    pub(crate) fn not_reassigned(&self, tag: InitiatorTaskTag) -> TaskFunctionOutcome {
        match self.session.by_tag(tag) {
            // The task exists on a live connection.
            Some(_) => TaskFunctionOutcome::TaskStillAllegiant,
            None => TaskFunctionOutcome::TaskDoesNotExist,
        }
    }

    /// Sends a response, whose status was sent on a lost connection, again from `data_sn` on, with a new status of this
    /// connection.
    fn send_on_new_connection(&mut self, link: &mut Link, mut answer: Responding, data_sn: u32) {
        let data_sn = data_sn.min(answer.data_in_pdus_in_all());
        answer.go_back(link, data_sn);
        answer.send_left(link, self.cmd_sns());
        let stat_sn = link.take_stat_sn();
        answer.send_status(link, self.cmd_sns(), stat_sn);
        link.keep_answer(stat_sn, answer);
    }
}

/// Returns the range of numbers that a SNACK requests, of the `sent` ones that exist. RunLength zero means all
/// following.
fn run(snack: &Snack, sent: u32) -> std::ops::Range<u32> {
    // BegRun and RunLength come from the initiator, and their sum may exceed 32 bits.
    let end = if snack.run_length == 0 { sent } else { snack.beg_run.saturating_add(snack.run_length).min(sent) };
    // An empty range, when the run starts behind everything that was sent.
    snack.beg_run..end.max(snack.beg_run)
}

/// Returns a header for retransmission with current ExpCmdSN and MaxCmdSN; it is otherwise unchanged (RFC 7143 §11.16).
fn renewed(header: &Bhs, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> Bhs {
    let mut renewed = *header;
    renewed[28..32].copy_from_slice(&exp_cmd_sn.0.to_be_bytes());
    renewed[32..36].copy_from_slice(&max_cmd_sn.0.to_be_bytes());
    renewed
}
