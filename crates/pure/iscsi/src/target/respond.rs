//! Answers on their way out: Data-In with phase collapse, SCSI Responses with residuals and sense.

use super::event::Response;
use super::full_feature::FullFeature;
use super::link::Link;
use super::task::{CommandTask, Kind, Progress, Task};
use crate::pdu::{
    DataIn, DataInStatus, DataSn, Lun, Residual, ScsiResponse, SegmentLengths, ServiceResponse, TargetTransferTag,
};
use crate::session::TaskId;

const GOOD: u8 = 0;

impl FullFeature {
    /// The driver's answer to a command; without effect when the command was aborted meanwhile.
    pub(crate) fn respond(&mut self, link: &mut Link, id: TaskId, response: Response) {
        let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) else { return };
        if command.progress == Progress::Running {
            command.response = Some(response);
            self.start_response(link, id);
        }
    }

    /// The answer that the command has is sent, when its turn comes.
    pub(crate) fn start_response(&mut self, link: &mut Link, id: TaskId) {
        let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) else { return };
        assert!(command.response.is_some(), "a command responds with an answer");
        command.progress = Progress::Responding;
        self.responding.push_back(id);
        self.pump(link);
    }

    /// Queues PDUs of waiting answers while the output has room.
    pub(crate) fn pump(&mut self, link: &mut Link) {
        while link.transmit.has_room()
            && let Some(&id) = self.responding.front()
        {
            let command = self.session.find(id).and_then(Task::command);
            match command.map(|command| command.data_in_left(self.data_in_len(command))) {
                Some(true) => self.send_data_in(link, id),
                Some(false) => {
                    self.responding.pop_front();
                    self.send_status(link, id);
                }
                // It was aborted.
                None => {
                    self.responding.pop_front();
                }
            }
        }
    }

    /// Bytes of the next Data-In: within the initiator's MaxRecvDataSegmentLength and the running burst.
    fn data_in_len(&self, command: &CommandTask) -> u32 {
        let burst = self.negotiated.burst_bytes_max;
        let burst_left = burst - command.data_in_bytes % burst;
        let left = command.data_in_total() - command.data_in_bytes;
        self.negotiated.peer_data_segment_bytes_max.min(burst_left).min(left)
    }

    /// Queues a Data-In that is not the last PDU of its task.
    fn send_data_in(&mut self, link: &mut Link, id: TaskId) {
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let burst = self.negotiated.burst_bytes_max;
        let Some(task) = self.session.find(id) else { return };
        let Some(len) = task.command().map(|command| self.data_in_len(command)) else { return };
        let initiator_task_tag = task.tag;
        let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) else { return };
        let offset = command.data_in_bytes;
        let end = offset + len;
        let header = DataIn {
            is_final: end.is_multiple_of(burst) || end == command.data_in_total(),
            acknowledge: false,
            status: None,
            lun: Lun(0),
            initiator_task_tag,
            target_transfer_tag: TargetTransferTag::RESERVED,
            exp_cmd_sn,
            max_cmd_sn,
            data_sn: DataSn(command.data_in_pdus),
            buffer_offset_bytes: offset,
        };
        command.push_data_in(link, &header, len);
        command.data_in_bytes = end;
        command.data_in_pdus += 1;
    }

    /// The last PDU of a task is queued, and its place is open again: the PDU itself says so.
    fn send_status(&mut self, link: &mut Link, id: TaskId) {
        let len = self.session.find(id).and_then(Task::command).map_or(0, |command| self.data_in_len(command));
        let Some(Task { tag, kind: Kind::Command(command), .. }) = self.remove(id) else { return };
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let stat_sn = link.take_stat_sn();
        let response = command.response.as_ref().expect("a command responds with an answer");
        let (residual, read_residual) = command.residuals(response);
        let mut header = [0; 48];
        if len > 0 {
            let data_in = DataIn {
                is_final: true,
                acknowledge: false,
                status: Some(DataInStatus { status: response.status, stat_sn, residual }),
                lun: Lun(0),
                initiator_task_tag: tag,
                target_transfer_tag: TargetTransferTag::RESERVED,
                exp_cmd_sn,
                max_cmd_sn,
                data_sn: DataSn(command.data_in_pdus),
                buffer_offset_bytes: command.data_in_bytes,
            };
            return command.push_data_in(link, &data_in, len);
        }
        let answer = ScsiResponse {
            response: ServiceResponse::Completed,
            status: response.status,
            initiator_task_tag: tag,
            snack_tag: 0,
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            exp_data_sn: DataSn(command.data_in_pdus + command.data_out.solicitations()),
            read_residual,
            residual,
        };
        if response.sense.is_empty() {
            answer.emit(SegmentLengths::NONE, &mut header);
            return link.transmit.push(&header, &[]);
        }
        let data = with_length(&response.sense);
        answer.emit(SegmentLengths::data(data.len()), &mut header);
        link.transmit.push(&header, &data);
    }
}

impl CommandTask {
    /// Bytes of data-in that the initiator gets in all: never more than it expects.
    fn data_in_total(&self) -> u32 {
        let given = self.response.as_ref().map_or(0, |response| response.data_in.len());
        u32::try_from(given).unwrap_or(u32::MAX).min(self.expected_in_bytes)
    }

    /// True when a Data-In of `len` bytes comes that is not the last PDU of the task. GOOD rides on the last data.
    fn data_in_left(&self, len: u32) -> bool {
        let collapses =
            self.response.as_ref().is_some_and(|response| response.status == GOOD) && !(self.read && self.write);
        let last = self.data_in_bytes + len == self.data_in_total();
        len > 0 && !(last && collapses)
    }

    fn push_data_in(&self, link: &mut Link, data_in: &DataIn, len: u32) {
        let mut header = [0; 48];
        data_in.emit(SegmentLengths::data(len as usize), &mut header);
        let from = data_in.buffer_offset_bytes as usize;
        let response = self.response.as_ref().expect("a command responds with an answer");
        link.transmit.push_rope(&header, &[], &response.data_in, from..from + len as usize);
    }

    /// What was not moved, and for a bidirectional command what was not read.
    fn residuals(&self, response: &Response) -> (Residual, Residual) {
        let given = response.data_in.len() as u64;
        let written = response.transfer_bytes.unwrap_or(u64::from(self.expected_out_bytes));
        match (self.write, self.read) {
            (true, true) => (residual(self.expected_out_bytes, written), residual(self.expected_in_bytes, given)),
            (true, false) => (residual(self.expected_out_bytes, written), Residual::None),
            (false, _) => (residual(self.expected_in_bytes, response.transfer_bytes.unwrap_or(given)), Residual::None),
        }
    }
}

/// The difference between what was expected and what there was to move.
fn residual(expected_bytes: u32, there: u64) -> Residual {
    let expected = u64::from(expected_bytes);
    let clamp = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    match there.cmp(&expected) {
        std::cmp::Ordering::Less => Residual::Underflow(clamp(expected - there)),
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Greater => Residual::Overflow(clamp(there - expected)),
    }
}

/// Sense data behind its length, as SCSI Responses and asynchronous messages carry it.
pub(crate) fn with_length(sense: &[u8]) -> smallvec::SmallVec<[u8; 128]> {
    let length = u16::try_from(sense.len()).expect("sense data is short");
    let mut data = smallvec::SmallVec::new();
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(sense);
    data
}
