//! Responses on the send side: Data-In with phase collapse, SCSI Responses with residuals and sense data.

use super::event::Response;
use super::full_feature::FullFeature;
use super::link::Link;
use super::task::{CommandTask, Progress, Responding, Task, TransferLengths};
use crate::pdu::{
    DataIn, DataInStatus, DataSn, InitiatorTaskTag, Lun, Residual, ScsiResponse, SegmentLengths, ServiceResponse,
    StatSn, TargetTransferTag,
};
use crate::session::TaskId;
use crate::session::window::CmdSns;
use smallvec::SmallVec;

const GOOD: u8 = 0;

impl FullFeature {
    /// Accepts the driver's response to a command; without effect when the command was aborted meanwhile.
    pub(crate) fn respond(&mut self, link: &mut Link, id: TaskId, response: Response) {
        let Some(command) = self.session.find(id).and_then(Task::command) else { return };
        // The state is not Running if the command was aborted or answered before.
        if command.progress == Progress::Running {
            self.start_response(link, id, response);
        }
    }

    /// Starts a response, which is sent in its turn.
    pub(crate) fn start_response(&mut self, link: &mut Link, id: TaskId, response: Response) {
        let burst_bytes_max = self.negotiated.burst_bytes_max;
        let Some(task) = self.session.find_mut(id) else { return };
        let tag = task.tag;
        let Some(command) = task.command_mut() else { return };
        assert!(command.progress != Progress::Responding, "a command is answered once");
        command.progress = Progress::Responding;
        // The number of R2Ts is part of ExpDataSN in the SCSI Response of a write.
        let mut answer = Responding::new((id, tag), command.transfer_lengths(), response, link, burst_bytes_max);
        answer.solicitations = command.data_out.solicitations();
        if link.responding.is_empty() && link.transmit.has_room() && !answer.is_left() {
            // Common case: a single PDU with nothing queued before it.
            return self.finish(link, answer);
        }
        link.responding.push_back(answer);
        self.pump(link);
    }

    /// Queues a single-PDU response to a command that never was a task. It cannot be retransmitted.
    #[inline]
    pub(crate) fn send_whole(
        &self,
        link: &mut Link,
        tag: InitiatorTaskTag,
        moves: TransferLengths,
        response: Response,
    ) {
        let (residual, read_residual) = moves.residuals(&response);
        let stat_sn = link.take_stat_sn();
        let Response { status, sense, mut data_in, .. } = response;
        let expected = moves.expected_in_bytes as usize;
        // RFC 7143 §11.4.5.1: the initiator has no buffer beyond its expected length, and the residual reports the
        // rest.
        if data_in.len() > expected {
            data_in = data_in.slice(0..expected);
        }
        if data_in.is_empty() {
            let header = scsi_response(self.cmd_sns(), tag, status, stat_sn);
            return link.push_response(&ScsiResponse { read_residual, residual, ..header }, &sense);
        }
        let status = Some(DataInStatus { status, stat_sn, residual });
        let header = DataIn { is_final: true, status, ..data_in_header(self.cmd_sns(), tag, 0, 0) };
        // Phase collapse: the status is part of the last Data-In (RFC 7143 §11.7.1).
        let mut bytes = [0; 48];
        header.emit(SegmentLengths::data(data_in.len()), &mut bytes);
        link.transmit.push_whole(&bytes, data_in);
    }

    /// Queues the last PDU of a response.
    pub(crate) fn finish(&mut self, link: &mut Link, answer: Responding) {
        // The task is removed first, so that the PDU itself reports the MaxCmdSN with its place open again.
        self.remove(answer.task);
        let stat_sn = link.take_stat_sn();
        answer.send_status(link, self.cmd_sns(), stat_sn);
        link.keep_answer(stat_sn, answer);
    }

    /// Queues PDUs of pending responses while the output has room.
    pub(crate) fn pump(&mut self, link: &mut Link) {
        while link.transmit.has_room()
            && let Some(mut answer) = link.responding.pop_front()
        {
            // The command was aborted while its response waited.
            if self.session.find(answer.task).is_none() {
                continue;
            }
            if answer.is_left() {
                // The first response is completed before the next one starts.
                answer.send_next_data_in(link, self.cmd_sns());
                link.responding.push_front(answer);
            } else {
                self.finish(link, answer);
            }
        }
    }
}

impl Link {
    #[inline]
    fn push_response(&mut self, header: &ScsiResponse, sense: &[u8]) {
        let mut bytes = [0; 48];
        // A response without sense data has no data segment at all.
        if sense.is_empty() {
            header.emit(SegmentLengths::NONE, &mut bytes);
            return self.transmit.push(&bytes, &[]);
        }
        let data = with_length(sense);
        header.emit(SegmentLengths::data(data.len()), &mut bytes);
        self.transmit.push(&bytes, &data);
    }
}

impl Responding {
    /// Creates a response of which nothing has been sent.
    pub(crate) fn new(
        (task, tag): (TaskId, InitiatorTaskTag),
        moves: TransferLengths,
        response: Response,
        link: &Link,
        burst_bytes_max: u32,
    ) -> Self {
        assert!(link.peer_data_segment_bytes_max > 0 && burst_bytes_max > 0, "data leaves in pieces of some length");
        // Never more than the initiator expects.
        let given = u32::try_from(response.data_in.len()).unwrap_or(u32::MAX);
        let (residual, read_residual) = moves.residuals(&response);
        Self {
            task,
            tag,
            residual,
            read_residual,
            solicitations: 0,
            apart: moves.read && moves.write,
            snack_tag: 0,
            segment_bytes_max: link.peer_data_segment_bytes_max,
            burst_bytes_max,
            data_in_total: given.min(moves.expected_in_bytes),
            data_in_bytes: 0,
            data_in_pdus: 0,
            response,
        }
    }

    /// Number of Data-In PDUs in all, once the status is sent: the last data is sent with it or before it.
    pub(crate) fn data_in_pdus_in_all(&self) -> u32 {
        self.data_in_pdus + u32::from(self.data_in_bytes < self.data_in_total)
    }

    /// Length of the Data-In at `offset`, within the initiator's MaxRecvDataSegmentLength and the current burst.
    fn data_in_len(&self, offset: u32) -> u32 {
        // Every burst starts at a multiple of its length, and no PDU may cross that boundary.
        let burst = self.burst_bytes_max;
        // No underflow: no offset of a response lies beyond `data_in_total`.
        self.segment_bytes_max.min(burst - offset % burst).min(self.data_in_total - offset)
    }

    /// True when the next Data-In is not the last PDU of the task. Status GOOD is sent with the last data, unless the
    /// status must be separate.
    pub(crate) fn is_left(&self) -> bool {
        let len = self.data_in_len(self.data_in_bytes);
        let collapses = self.response.status == GOOD && !self.apart;
        let last = self.data_in_bytes + len == self.data_in_total;
        len > 0 && !(last && collapses)
    }

    /// Queues the next Data-In, which is not the last PDU of its task.
    pub(crate) fn send_next_data_in(&mut self, link: &mut Link, cmd_sns: CmdSns) {
        assert!(self.data_in_bytes < self.data_in_total, "a Data-In that is sent brings data");
        // The header and the length follow from the old position, so the counters advance afterwards.
        self.send_data_in(link, cmd_sns);
        self.data_in_bytes += self.data_in_len(self.data_in_bytes);
        self.data_in_pdus += 1;
    }

    /// Queues all remaining Data-In before the last PDU of the response.
    pub(crate) fn send_left(&mut self, link: &mut Link, cmd_sns: CmdSns) {
        while self.is_left() {
            self.send_next_data_in(link, cmd_sns);
        }
    }

    /// Queues a Data-In that is not the last PDU of its task.
    fn send_data_in(&self, link: &mut Link, cmd_sns: CmdSns) {
        let len = self.data_in_len(self.data_in_bytes);
        let end = self.data_in_bytes + len;
        // The F bit ends each burst of MaxBurstLength (RFC 7143 §11.7.1).
        let ends_burst = end.is_multiple_of(self.burst_bytes_max);
        let header = DataIn { is_final: ends_burst || end == self.data_in_total, ..self.next_data_in(cmd_sns) };
        self.push_data(link, &header, len);
    }

    /// Queues Data-In PDUs again that were sent before the last one.
    pub(crate) fn send_pdus_again(&mut self, link: &mut Link, cmd_sns: CmdSns, which: impl Iterator<Item = u32>) {
        // The state of a response in progress must not change by a retransmission.
        let (bytes, pdus) = (self.data_in_bytes, self.data_in_pdus);
        for data_sn in which {
            (self.data_in_bytes, self.data_in_pdus) = (self.data_in_offset(data_sn), data_sn);
            self.send_data_in(link, cmd_sns);
        }
        (self.data_in_bytes, self.data_in_pdus) = (bytes, pdus);
    }

    /// Queues the last PDU of a task: Data-In with GOOD, or a separate SCSI Response.
    pub(crate) fn send_status(&self, link: &mut Link, cmd_sns: CmdSns, stat_sn: StatSn) {
        let len = self.data_in_len(self.data_in_bytes);
        assert_eq!(self.data_in_bytes + len, self.data_in_total, "a status comes with the last data, or behind it");
        if len > 0 {
            let status = Some(DataInStatus { status: self.response.status, stat_sn, residual: self.residual });
            let header = DataIn { is_final: true, status, ..self.next_data_in(cmd_sns) };
            return self.push_data(link, &header, len);
        }
        let header = ScsiResponse {
            snack_tag: self.snack_tag,
            // ExpDataSN counts Data-In and R2T PDUs together (RFC 7143 §11.4.8).
            exp_data_sn: DataSn(self.data_in_pdus + self.solicitations),
            read_residual: self.read_residual,
            residual: self.residual,
            ..scsi_response(cmd_sns, self.tag, self.response.status, stat_sn)
        };
        link.push_response(&header, &self.response.sense);
    }

    /// Returns the offset of the Data-In with number `data_sn`.
    pub(crate) fn data_in_offset(&self, data_sn: u32) -> u32 {
        // Each burst starts a new PDU, so the number of PDUs per burst is constant.
        // In 64 bits, because a DataSN of the initiator times the burst length may exceed 32.
        let burst = u64::from(self.burst_bytes_max);
        let segment = u64::from(self.segment_bytes_max).min(burst);
        let in_a_burst = burst.div_ceil(segment);
        let sn = u64::from(data_sn);
        let offset = sn / in_a_burst * burst + sn % in_a_burst * segment;
        u32::try_from(offset).unwrap_or(u32::MAX).min(self.data_in_total)
    }

    /// Rewinds the response behind the data that the initiator has, to the Data-In with number `data_sn`. Where the new
    /// connection has another segment length, the PDU boundaries differ, and it restarts from the beginning.
    pub(crate) fn go_back(&mut self, link: &Link, data_sn: u32) {
        let data_sn = if self.segment_bytes_max == link.peer_data_segment_bytes_max { data_sn } else { 0 };
        self.segment_bytes_max = link.peer_data_segment_bytes_max;
        self.data_in_pdus = data_sn;
        self.data_in_bytes = self.data_in_offset(data_sn);
        assert!(self.data_in_bytes <= self.data_in_total, "an answer goes back to data that it has");
    }

    fn next_data_in(&self, cmd_sns: CmdSns) -> DataIn {
        data_in_header(cmd_sns, self.tag, self.data_in_pdus, self.data_in_bytes)
    }

    fn push_data(&self, link: &mut Link, header: &DataIn, len: u32) {
        let mut bytes = [0; 48];
        header.emit(SegmentLengths::data(len as usize), &mut bytes);
        let from = header.buffer_offset_bytes as usize;
        link.transmit.push_rope(&bytes, &[], &self.response.data_in, from..from + len as usize);
    }
}

impl CommandTask {
    fn transfer_lengths(&self) -> TransferLengths {
        let Self { read, write, expected_out_bytes, expected_in_bytes, .. } = *self;
        TransferLengths { read, write, expected_out_bytes, expected_in_bytes }
    }
}

impl TransferLengths {
    /// Residual of the transfer, and the read residual of a bidirectional command.
    #[inline]
    fn residuals(&self, response: &Response) -> (Residual, Residual) {
        let given = response.data_in.len() as u64;
        // Without a statement of the driver, the command counts as having taken all data.
        let written = response.transfer_bytes.unwrap_or(u64::from(self.expected_out_bytes));
        match (self.write, self.read) {
            (true, true) => (residual(self.expected_out_bytes, written), residual(self.expected_in_bytes, given)),
            (true, false) => (residual(self.expected_out_bytes, written), Residual::None),
            (false, _) => (residual(self.expected_in_bytes, response.transfer_bytes.unwrap_or(given)), Residual::None),
        }
    }
}

#[inline]
fn data_in_header((exp_cmd_sn, max_cmd_sn): CmdSns, tag: InitiatorTaskTag, number: u32, offset_bytes: u32) -> DataIn {
    DataIn {
        is_final: false,
        acknowledge: false,
        status: None,
        lun: Lun(0),
        initiator_task_tag: tag,
        target_transfer_tag: TargetTransferTag::RESERVED,
        exp_cmd_sn,
        max_cmd_sn,
        data_sn: DataSn(number),
        buffer_offset_bytes: offset_bytes,
    }
}

/// SCSI Response of a command without other PDUs and without residual.
#[inline]
fn scsi_response((exp_cmd_sn, max_cmd_sn): CmdSns, tag: InitiatorTaskTag, status: u8, stat_sn: StatSn) -> ScsiResponse {
    ScsiResponse {
        response: ServiceResponse::Completed,
        status,
        initiator_task_tag: tag,
        snack_tag: 0,
        stat_sn,
        exp_cmd_sn,
        max_cmd_sn,
        exp_data_sn: DataSn(0),
        read_residual: Residual::None,
        residual: Residual::None,
    }
}

/// Compares the expected length with the length that the command transfers.
fn residual(expected_bytes: u32, there: u64) -> Residual {
    let expected = u64::from(expected_bytes);
    // The residual count has 32 bits; a transfer of SCSI may be larger.
    let clamp = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    match there.cmp(&expected) {
        std::cmp::Ordering::Less => Residual::Underflow(clamp(expected - there)),
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Greater => Residual::Overflow(clamp(there - expected)),
    }
}

/// Sense data preceded by its length, as SCSI Responses and asynchronous messages carry it (RFC 7143 §11.4.7).
pub(crate) fn with_length(sense: &[u8]) -> SmallVec<[u8; 128]> {
    let length = u16::try_from(sense.len()).expect("sense data is short");
    let mut data = SmallVec::new();
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(sense);
    data
}
