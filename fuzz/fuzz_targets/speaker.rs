//! Initiator that follows RFC 7143, except where the script says otherwise.

use crate::logged_in::feed_through;
use crate::script::{Fault, Operation, Request, Say};
use crate::wire::{Pdu, pattern};
use crate::{Play, UnitGate};
use iscsi::pdu::{
    Bhs, Cid, CmdSn, DataOut, DataSn, InitiatorTaskTag, LogoutReason, LogoutRequest, Lun, NopOut, R2t, ScsiCommand,
    SegmentLengths, Snack, SnackType, StatSn, TargetTransferTag, TaskAttribute, TaskFunction, TaskManagementRequest,
    TextRequest,
};

impl Play {
    pub fn say(&mut self, slot: bool, what: &Say) {
        match *what {
            Say::Command(ref request) => self.command(slot, request),
            Say::Solicited { pieces, ref fault } => self.solicited(slot, pieces, fault),
            Say::Data { tag, transfer_tag, at, len, is_final } => {
                let header = DataOut {
                    is_final,
                    lun: Lun(0),
                    initiator_task_tag: tag_of(tag),
                    target_transfer_tag: transfer_tag
                        .map_or(TargetTransferTag::RESERVED, |tag| TargetTransferTag(tag.into())),
                    exp_stat_sn: self.exp_stat_sn(slot),
                    data_sn: DataSn(0),
                    buffer_offset_bytes: at.into(),
                };
                self.data(slot, &header, len.into());
            }
            Say::Manage { tag, function, referenced, immediate } => {
                self.function(slot, tag, function, referenced, immediate)
            }
            Say::Nop { tag, echo, len } => self.nop(slot, tag, echo, len),
            Say::Text { tag, continues, question } => self.text(slot, tag, continues, question),
            Say::Logout { tag, reason, cid } => self.logout(slot, tag, reason, cid),
            Say::Snack { kind, tag, beg_run, run_length, acknowledges } => {
                self.wire.asks_again();
                let kind = SNACKS[usize::from(kind) % SNACKS.len()];
                let data_tag = self.wire.data_tag().filter(|_| acknowledges);
                let behind = self.wire.heard(slot).0.wrapping_sub(beg_run.into());
                let header = Snack {
                    kind,
                    lun: Lun(0),
                    initiator_task_tag: tag.map_or(InitiatorTaskTag::RESERVED, tag_of),
                    target_transfer_tag: data_tag.unwrap_or(TargetTransferTag::RESERVED),
                    exp_stat_sn: self.exp_stat_sn(slot),
                    beg_run: if kind == SnackType::Status { behind } else { beg_run.into() },
                    run_length: run_length.into(),
                };
                self.send(slot, |follows, bhs| header.emit(follows, bhs), &[]);
            }
        }
    }

    fn function(&mut self, slot: bool, tag: u8, function: u8, referenced: u8, immediate: bool) {
        let (cmd_sn, exp_stat_sn) = self.numbers(slot, immediate);
        let header = TaskManagementRequest {
            immediate,
            function: FUNCTIONS[usize::from(function) % FUNCTIONS.len()],
            lun: Lun(0),
            initiator_task_tag: tag_of(tag),
            referenced_task_tag: tag_of(referenced),
            cmd_sn,
            exp_stat_sn,
            ref_cmd_sn: cmd_sn.minus(referenced.into()),
            exp_data_sn: DataSn(0),
        };
        self.send(slot, |follows, bhs| header.emit(follows, bhs), &[]);
    }

    fn nop(&mut self, slot: bool, tag: Option<u8>, echo: Option<u32>, len: u8) {
        let (cmd_sn, exp_stat_sn) = self.numbers(slot, tag.is_none());
        let header = NopOut {
            immediate: tag.is_none(),
            lun: Lun(0),
            initiator_task_tag: tag.map_or(InitiatorTaskTag::RESERVED, tag_of),
            target_transfer_tag: echo.map_or(TargetTransferTag::RESERVED, TargetTransferTag),
            cmd_sn,
            exp_stat_sn,
        };
        self.send(slot, |follows, bhs| header.emit(follows, bhs), &[7; 256][..len.into()]);
    }

    fn text(&mut self, slot: bool, tag: u8, continues: bool, question: u8) {
        let (cmd_sn, exp_stat_sn) = self.numbers(slot, false);
        let header = TextRequest {
            immediate: false,
            is_final: !continues,
            continues,
            lun: Lun(0),
            initiator_task_tag: tag_of(tag),
            target_transfer_tag: TargetTransferTag::RESERVED,
            cmd_sn,
            exp_stat_sn,
        };
        let question = QUESTIONS[usize::from(question) % QUESTIONS.len()];
        self.send(slot, |follows, bhs| header.emit(follows, bhs), question);
    }

    fn logout(&mut self, slot: bool, tag: u8, reason: u8, cid: bool) {
        let (cmd_sn, exp_stat_sn) = self.numbers(slot, false);
        let header = LogoutRequest {
            immediate: false,
            reason: REASONS[usize::from(reason) % REASONS.len()],
            initiator_task_tag: tag_of(tag),
            cid: Cid(cid.into()),
            cmd_sn,
            exp_stat_sn,
        };
        self.send(slot, |follows, bhs| header.emit(follows, bhs), &[]);
    }

    fn command(&mut self, slot: bool, request: &Request) {
        let (cdb, bytes) = request.cdb.encode();
        let expected = bytes.saturating_add_signed(request.expected_more.into());
        let (read, write) = match (request.direction % 8, &request.cdb) {
            (6, _) => (true, true),
            (7, _) => (false, false),
            (0, Operation::Any { .. }) | (_, Operation::Write { .. } | Operation::CompareAndWrite { .. }) => {
                (false, true)
            }
            _ => (true, false),
        };
        let (cmd_sn, exp_stat_sn) = self.numbers(slot, request.immediate);
        let unsolicited = if write { usize::from(request.unsolicited).min(expected as usize) } else { 0 };
        let immediate_data = unsolicited.min(self.offer.first_burst_bytes_max as usize);
        let header = ScsiCommand {
            immediate: request.immediate,
            is_final: request.unsolicited & 0x8000 == 0,
            read,
            write,
            attribute: [
                TaskAttribute::Simple,
                TaskAttribute::Ordered,
                TaskAttribute::HeadOfQueue,
                TaskAttribute::Untagged,
            ][usize::from(request.attribute % 4)],
            lun: Lun(u64::from(request.lun) << 48),
            initiator_task_tag: tag_of(request.tag),
            expected_data_transfer_bytes: expected,
            cmd_sn,
            exp_stat_sn,
            cdb,
        };
        self.wire.expects(header.initiator_task_tag, expected);
        let data: Vec<u8> = (0..immediate_data).map(pattern).collect();
        self.send(slot, |follows, bhs| header.emit(follows, bhs), &data);
    }

    fn solicited(&mut self, slot: bool, pieces: u8, fault: &Fault) {
        let Some(R2t {
            lun,
            initiator_task_tag,
            target_transfer_tag,
            buffer_offset_bytes,
            desired_data_transfer_bytes,
            ..
        }) = self.wire.take_r2t(slot)
        else {
            return;
        };
        let (mut at, end) = (buffer_offset_bytes, buffer_offset_bytes + desired_data_transfer_bytes);
        let most = self.offer.data_segment_bytes_max.min(256 * (1 + u32::from(pieces % 16)));
        let (mut data_sn, mut piece) = (0, 0);
        while at < end {
            // The second piece, so that data before and after it is correct.
            let len = most.min(end - at);
            let fault = if piece == 1 { fault } else { &Fault::None };
            for _ in 0..match fault {
                Fault::Lost | Fault::LeftOut => 0,
                Fault::Twice => 2,
                Fault::None => 1,
            } {
                let header = DataOut {
                    is_final: at + len == end,
                    lun,
                    initiator_task_tag,
                    target_transfer_tag,
                    exp_stat_sn: self.exp_stat_sn(slot),
                    data_sn: DataSn(data_sn),
                    buffer_offset_bytes: at,
                };
                self.data(slot, &header, len);
            }
            data_sn += u32::from(!matches!(fault, Fault::LeftOut));
            (at, piece) = (at + len, piece + 1);
        }
    }

    fn data(&mut self, slot: bool, header: &DataOut, len: u32) {
        let start = header.buffer_offset_bytes as usize;
        let data: Vec<u8> = (start..start + len as usize).map(pattern).collect();
        self.send(slot, |follows, bhs| header.emit(follows, bhs), &data);
    }

    /// Returns the CmdSN of the next request, and the ExpStatSN of its connection.
    fn numbers(&mut self, slot: bool, immediate: bool) -> (CmdSn, StatSn) {
        let cmd_sn = CmdSn(self.cmd_sn.wrapping_add_signed(std::mem::take(&mut self.skew.0).into()));
        if !immediate {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        (cmd_sn, self.exp_stat_sn(slot))
    }

    fn exp_stat_sn(&mut self, slot: bool) -> StatSn {
        StatSn(self.wire.heard(slot).0.wrapping_add_signed(std::mem::take(&mut self.skew.1).into()))
    }

    fn send(&mut self, slot: bool, emit: impl FnOnce(SegmentLengths, &mut Bhs), data: &[u8]) {
        let slot = usize::from(slot);
        if self.target.is_closed(slot) {
            return;
        }
        if let Some(bytes) = self.wire.carry(&Pdu::new(emit, data)) {
            let is_damaged = self.wire.is_damaged();
            let mut gate = UnitGate { unit: &self.unit, answers: self.answers, is_damaged };
            feed_through(&mut self.target, slot, &bytes, self.now, &mut gate);
        }
    }
}

/// Returns one of few tags, so that tags collide.
fn tag_of(tag: u8) -> InitiatorTaskTag {
    InitiatorTaskTag(u32::from(tag % 12))
}

const SNACKS: [SnackType; 4] = [SnackType::DataOrR2t, SnackType::Status, SnackType::DataAck, SnackType::RData];
const REASONS: [LogoutReason; 3] =
    [LogoutReason::CloseSession, LogoutReason::CloseConnection, LogoutReason::RemoveForRecovery];
const FUNCTIONS: [TaskFunction; 13] = [
    TaskFunction::AbortTask,
    TaskFunction::AbortTaskSet,
    TaskFunction::ClearAca,
    TaskFunction::ClearTaskSet,
    TaskFunction::LogicalUnitReset,
    TaskFunction::TargetWarmReset,
    TaskFunction::TargetColdReset,
    TaskFunction::TaskReassign,
    TaskFunction::QueryTask,
    TaskFunction::QueryTaskSet,
    TaskFunction::NexusReset,
    TaskFunction::QueryAsynchronousEvent,
    TaskFunction::Other(99),
];

const QUESTIONS: [&[u8]; 5] = [
    b"SendTargets=\0",
    b"SendTargets=All\0",
    b"SendTargets=iqn.2026-01.test:disk\0",
    b"MaxRecvDataSegmentLength=4096\0",
    b"X-com.example.what=ever\0SendTar",
];
