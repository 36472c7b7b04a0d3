//! Commands on the send side: immediate and unsolicited data with the command, the rest as R2Ts request it.

use super::connection::Link;
use super::event::DataIn;
use super::full_feature::FullFeaturePhase;
use super::task::{CommandTask, Task};
use crate::Violation;
use crate::pdu::{
    Ahs, CmdSn, DataOut, DataSn, InitiatorTaskTag, Lun, R2t, ScsiCommand, SegmentLengths, TargetTransferTag,
};
use crate::session::TaskId;
use block::Rope;
use std::ops::Range;

/// Common fields of the Data-Out PDUs of one sequence.
struct Sequence {
    lun: Lun,
    initiator_task_tag: InitiatorTaskTag,
    target_transfer_tag: TargetTransferTag,
}

impl FullFeaturePhase {
    /// Sends a command with as much unsolicited data as the target accepts.
    pub(crate) fn send_command(&mut self, link: &mut Link, id: TaskId, cmd_sn: CmdSn, immediate: bool) {
        let Some(Task::Command(task)) = self.tasks.find(id) else { return };
        let command = &task.command;
        let nothing = Rope::new();
        let data_out = command.data_out.as_ref().unwrap_or(&nothing);
        // Expected Data Transfer Length has 32 bits (RFC 7143 §11.3.4), so no command moves more.
        let total = u32::try_from(data_out.len()).expect("a command moves less than 4 GiB");
        let first_burst = self.negotiated.first_burst_bytes_max.min(total);
        // Immediate data fits one PDU and FirstBurstLength; further unsolicited data follows as Data-Out.
        let segment_bytes_max = self.negotiated.peer_data_segment_bytes_max;
        let immediate_bytes = if self.negotiated.immediate_data { first_burst.min(segment_bytes_max) } else { 0 };
        // InitialR2T=Yes permits no unsolicited data beyond the immediate part (RFC 7143 §13.10).
        let unsolicited_end = if self.negotiated.initial_r2t { immediate_bytes } else { first_burst };
        let writes = command.data_out.is_some();
        let reads = !matches!(command.data_in, DataIn::None);
        let header = ScsiCommand {
            immediate,
            // The F bit is clear if unsolicited Data-Out follows (RFC 7143 §11.3.1).
            is_final: unsolicited_end == immediate_bytes,
            read: reads,
            write: writes,
            attribute: command.attribute,
            lun: command.lun,
            initiator_task_tag: self.tag_of(id),
            // For a bidirectional command this is the length of the write; the read length has its own header segment.
            expected_data_transfer_bytes: if writes { total } else { task.expected_in_bytes },
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            // A short CDB is padded with zeros; the rest of a long one goes into an additional header segment.
            cdb: std::array::from_fn(|at| command.cdb.get(at).copied().unwrap_or(0)),
        };
        let ahs = Ahs {
            extended_cdb: command.cdb.get(16..).filter(|rest| !rest.is_empty()),
            expected_read_bytes: (reads && writes).then_some(task.expected_in_bytes),
        };
        let mut bytes = [0; 48];
        let lengths = SegmentLengths { ahs_bytes: ahs.bytes(), data_bytes: immediate_bytes as usize };
        header.emit(lengths, &mut bytes);
        let mut additional = Vec::new();
        ahs.emit(&mut additional);
        link.transmit.push_rope(&bytes, &additional, data_out, 0..immediate_bytes as usize);
        let sequence = Sequence {
            lun: command.lun,
            initiator_task_tag: self.tag_of(id),
            target_transfer_tag: TargetTransferTag::RESERVED,
        };
        // Queued behind the command itself, so that its data never precedes it on the connection.
        self.send_sequence(link, &sequence, data_out, immediate_bytes..unsolicited_end);
    }

    /// Answers an R2T in full, at once.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn handle_r2t(&mut self, link: &mut Link, r2t: &R2t) -> Result<(), Violation> {
        self.handle_window(r2t.exp_cmd_sn, r2t.max_cmd_sn);
        let id = self.by_tag(r2t.initiator_task_tag)?;
        let Some(Task::Command(task)) = self.tasks.find_mut(id) else { return Err(Violation::TaskTagUnknown) };
        // R2TSN has no gaps at error recovery level 0.
        if r2t.r2t_sn.0 != task.r2t_sn {
            return Err(Violation::R2tSnWrong);
        }
        task.r2t_sn += 1;
        // Looked up again: sending borrows all tasks, but not mutably.
        let Some(Task::Command(task)) = self.tasks.find(id) else { return Err(Violation::TaskTagUnknown) };
        let Some(data_out) = &task.command.data_out else { return Err(Violation::R2tOutOfRange) };
        // Both numbers come from the target, so their sum may overflow.
        let end = r2t.buffer_offset_bytes.checked_add(r2t.desired_data_transfer_bytes);
        let end = end.filter(|&end| end as usize <= data_out.len()).ok_or(Violation::R2tOutOfRange)?;
        // A single R2T covers at most one burst.
        if r2t.desired_data_transfer_bytes > self.negotiated.burst_bytes_max {
            return Err(Violation::R2tOutOfRange);
        }
        let sequence = Sequence {
            lun: r2t.lun,
            initiator_task_tag: r2t.initiator_task_tag,
            target_transfer_tag: r2t.target_transfer_tag,
        };
        self.send_sequence(link, &sequence, data_out, r2t.buffer_offset_bytes..end);
        Ok(())
    }

    fn send_sequence(&self, link: &mut Link, sequence: &Sequence, data_out: &Rope, range: Range<u32>) {
        assert!(range.start <= range.end, "a sequence ends behind its beginning");
        let mut at = range.start;
        // DataSN restarts with each sequence (RFC 7143 §11.7.5).
        let mut data_sn = DataSn(0);
        while at < range.end {
            // At least one byte, because no MaxRecvDataSegmentLength is below 512 (RFC 7143 §13.12).
            let len = self.negotiated.peer_data_segment_bytes_max.min(range.end - at);
            let header = DataOut {
                is_final: at + len == range.end,
                lun: sequence.lun,
                initiator_task_tag: sequence.initiator_task_tag,
                target_transfer_tag: sequence.target_transfer_tag,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                buffer_offset_bytes: at,
            };
            let mut bytes = [0; 48];
            header.emit(SegmentLengths::data(len as usize), &mut bytes);
            link.transmit.push_rope(&bytes, &[], data_out, at as usize..(at + len) as usize);
            at += len;
            data_sn = data_sn.next();
        }
    }
}

impl CommandTask {
    /// Creates the task of a command that has not been sent yet.
    pub(crate) fn new(mut command: super::Command) -> Self {
        let (buf, expected) = match std::mem::take(&mut command.data_in) {
            DataIn::None => (None, 0),
            // The length stays with the command, for its direction bits; the buffer moves into the task.
            DataIn::Discard(bytes) => {
                command.data_in = DataIn::Discard(bytes);
                (None, bytes)
            }
            DataIn::Into(buf) => {
                let bytes = u32::try_from(buf.len()).expect("a command moves less than 4 GiB");
                command.data_in = DataIn::Discard(bytes);
                (Some(buf), bytes)
            }
        };
        Self {
            command,
            cmd_sn: None,
            buf,
            expected_in_bytes: expected,
            received_bytes: 0,
            data_sn: 0,
            r2t_sn: 0,
            status: None,
        }
    }
}
