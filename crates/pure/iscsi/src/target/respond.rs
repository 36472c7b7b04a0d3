//! Answers on their way out: Data-In with phase collapse, SCSI Responses with residuals and sense.

use super::event::Response;
use super::full_feature::FullFeature;
use super::link::Link;
use super::task::{CommandTask, Kind, Progress, Responding, Task};
use crate::pdu::{
    DataIn, DataInStatus, DataSn, InitiatorTaskTag, Lun, Residual, ScsiResponse, SegmentLengths, ServiceResponse,
    TargetTransferTag,
};
use crate::session::TaskId;
use smallvec::SmallVec;

const GOOD: u8 = 0;

impl FullFeature {
    /// The driver's answer to a command; without effect when the command was aborted meanwhile.
    pub(crate) fn respond(&mut self, link: &mut Link, id: TaskId, response: Response) {
        let Some(command) = self.session.find(id).and_then(Task::command) else { return };
        if command.progress == Progress::Running {
            self.start_response(link, id, response);
        }
    }

    /// The answer is sent when its turn comes.
    pub(crate) fn start_response(&mut self, link: &mut Link, id: TaskId, response: Response) {
        let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) else { return };
        command.progress = Progress::Responding;
        // Never more than the initiator expects.
        let given = u32::try_from(response.data_in.len()).unwrap_or(u32::MAX);
        let data_in_total = given.min(command.expected_in_bytes);
        link.responding.push_back(Responding { task: id, response, data_in_total, data_in_bytes: 0, data_in_pdus: 0 });
        self.pump(link);
    }

    /// Queues PDUs of waiting answers while the output has room.
    pub(crate) fn pump(&mut self, link: &mut Link) {
        while link.transmit.has_room()
            && let Some(mut answer) = link.responding.pop_front()
        {
            let Some(task) = self.session.find(answer.task) else { continue };
            let len = self.data_in_len(link, &answer);
            if answer.is_left(len, task.command().is_some_and(CommandTask::is_bidirectional)) {
                let tag = task.tag;
                self.send_data_in(link, tag, &mut answer, len);
                link.responding.push_front(answer);
            } else {
                self.send_status(link, &answer, len);
            }
        }
    }

    /// Bytes of the next Data-In: within the initiator's MaxRecvDataSegmentLength and the running burst.
    fn data_in_len(&self, link: &Link, answer: &Responding) -> u32 {
        let burst = self.negotiated.burst_bytes_max;
        let burst_left = burst - answer.data_in_bytes % burst;
        let left = answer.data_in_total - answer.data_in_bytes;
        link.peer_data_segment_bytes_max.min(burst_left).min(left)
    }

    /// Queues a Data-In that is not the last PDU of its task.
    fn send_data_in(&self, link: &mut Link, tag: InitiatorTaskTag, answer: &mut Responding, len: u32) {
        let end = answer.data_in_bytes + len;
        let ends_burst = end.is_multiple_of(self.negotiated.burst_bytes_max);
        let header = DataIn { is_final: ends_burst || end == answer.data_in_total, ..self.data_in(tag, answer) };
        answer.push_data(link, &header, len);
        answer.data_in_bytes = end;
        answer.data_in_pdus += 1;
    }

    /// The last PDU of a task is queued, and its place is open again: the PDU itself says so.
    fn send_status(&mut self, link: &mut Link, answer: &Responding, len: u32) {
        let Some(Task { tag, kind: Kind::Command(command), .. }) = self.remove(answer.task) else { return };
        let stat_sn = link.take_stat_sn();
        let response = &answer.response;
        let (residual, read_residual) = command.residuals(response);
        if len > 0 {
            let status = Some(DataInStatus { status: response.status, stat_sn, residual });
            let header = DataIn { is_final: true, status, ..self.data_in(tag, answer) };
            return answer.push_data(link, &header, len);
        }
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let header = ScsiResponse {
            response: ServiceResponse::Completed,
            status: response.status,
            initiator_task_tag: tag,
            snack_tag: 0,
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            exp_data_sn: DataSn(answer.data_in_pdus + command.data_out.solicitations()),
            read_residual,
            residual,
        };
        let data = if response.sense.is_empty() { SmallVec::new() } else { with_length(&response.sense) };
        let mut bytes = [0; 48];
        header.emit(SegmentLengths::data(data.len()), &mut bytes);
        link.transmit.push(&bytes, &data);
    }

    fn data_in(&self, initiator_task_tag: InitiatorTaskTag, answer: &Responding) -> DataIn {
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        DataIn {
            is_final: false,
            acknowledge: false,
            status: None,
            lun: Lun(0),
            initiator_task_tag,
            target_transfer_tag: TargetTransferTag::RESERVED,
            exp_cmd_sn,
            max_cmd_sn,
            data_sn: DataSn(answer.data_in_pdus),
            buffer_offset_bytes: answer.data_in_bytes,
        }
    }
}

impl Responding {
    /// True when the Data-In of `len` bytes that comes next is not the last PDU of the task. GOOD rides on the
    /// last data, but for a bidirectional command, which has more to say.
    fn is_left(&self, len: u32, bidirectional: bool) -> bool {
        let collapses = self.response.status == GOOD && !bidirectional;
        let last = self.data_in_bytes + len == self.data_in_total;
        len > 0 && !(last && collapses)
    }

    fn push_data(&self, link: &mut Link, header: &DataIn, len: u32) {
        let mut bytes = [0; 48];
        header.emit(SegmentLengths::data(len as usize), &mut bytes);
        let from = header.buffer_offset_bytes as usize;
        link.transmit.push_rope(&bytes, &[], &self.response.data_in, from..from + len as usize);
    }
}

impl CommandTask {
    fn is_bidirectional(&self) -> bool {
        self.read && self.write
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
pub(crate) fn with_length(sense: &[u8]) -> SmallVec<[u8; 128]> {
    let length = u16::try_from(sense.len()).expect("sense data is short");
    let mut data = SmallVec::new();
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(sense);
    data
}
