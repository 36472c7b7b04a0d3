//! A whole session, from the login to the end: an initiator that knows the protocol and breaks it where the input says so, on two
//! connections; a logical unit over memory; a wire that loses, damages and cuts; timers. What the target says is held to RFC 7143.
#![no_main]

#[allow(dead_code, reason = "each of the targets uses its part")]
mod logged_in;
mod memory_unit;
mod wire;

use block::View;
use iscsi::Offer;
use iscsi::pdu::{
    AsyncEvent, Cid, DataOut, InitiatorTaskTag, LogoutReason, LogoutRequest, Lun, NopOut, R2t, ScsiCommand, Snack,
    SnackType, StatSn, TargetTransferTag, TaskAttribute, TaskFunction, TaskFunctionOutcome, TaskManagementRequest,
    TextRequest,
};
use iscsi::target::{self, Event, Gate, Response, Verdict};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use memory_unit::{BLOCK_BYTES, Strict, now, unit};
use scsi::{LogicalUnit, NexusId, Status, TaskManagement, TaskTag};
use shard::Time;
use std::time::Duration;
use wire::{Pdu, Wire, pattern};

/// The most steps that say something new about a session of two connections and eight commands.
const STEPS_MAX: usize = 200;

#[derive(Arbitrary, Debug)]
struct Input {
    shape: Shape,
    steps: Vec<Step>,
}

/// What the login agrees on, and which unit there is.
#[derive(Arbitrary, Debug)]
struct Shape {
    unit: u8,
    level: u8,
    /// The initiator hears what there is after each step, and not only where a step says so.
    attentive: bool,
    small: bool,
    header_digest: bool,
    data_digest: bool,
    initial_r2t: bool,
    immediate_data: bool,
}

impl Shape {
    fn offer(&self) -> Offer {
        let digest = |yes| if yes { iscsi::DigestOffer::Preferred } else { iscsi::DigestOffer::Never };
        let burst = if self.small { 2048 } else { 8192 };
        Offer {
            header_digest: digest(self.header_digest),
            data_digest: digest(self.data_digest),
            initial_r2t: self.initial_r2t,
            immediate_data: self.immediate_data,
            data_segment_bytes_max: if self.small { 512 } else { 4096 },
            burst_bytes_max: burst,
            first_burst_bytes_max: burst,
            error_recovery_level: self.level % 3,
            connections_max: 2,
            ..Offer::default()
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    Command(Request),
    /// The oldest R2T that was heard of is answered, in pieces of so many 256 bytes.
    Solicited {
        slot: bool,
        pieces: u8,
        fault: Fault,
    },
    /// Data that nobody asked for, or that somebody else asked for.
    Data {
        slot: bool,
        tag: u8,
        transfer_tag: Option<u8>,
        at: u16,
        len: u16,
        is_final: bool,
    },
    Manage {
        slot: bool,
        tag: u8,
        function: u8,
        referenced: u8,
        immediate: bool,
    },
    Nop {
        slot: bool,
        tag: Option<u8>,
        echo: Option<u32>,
        len: u8,
    },
    Text {
        slot: bool,
        tag: u8,
        continues: bool,
        question: u8,
    },
    Logout {
        slot: bool,
        tag: u8,
        reason: u8,
        cid: bool,
    },
    Snack {
        slot: bool,
        kind: u8,
        tag: Option<u8>,
        beg_run: u8,
        run_length: u8,
        acknowledges: bool,
    },
    /// The unit carries out the command that waits in this place.
    Carry(u8),
    /// The driver forgets it.
    Forget(u8),
    /// What the target has said arrives; else it is lost.
    Listen {
        slot: bool,
        loses: bool,
    },
    /// The next PDU of the initiator is damaged.
    Damage {
        at: u16,
        with: u8,
    },
    /// The next PDU of the initiator is lost.
    Lose,
    /// The next CmdSN, or ExpStatSN, is not what it is to be.
    Skew {
        cmd_sn: i8,
        exp_stat_sn: i8,
    },
    Cut {
        slot: bool,
    },
    Join {
        cid: bool,
    },
    Wait {
        ms: u16,
    },
    Async {
        event: u8,
    },
    AskToLeave {
        seconds: u8,
    },
}

/// What is wrong with the second piece of the data for an R2T.
#[derive(Arbitrary, Debug)]
enum Fault {
    None,
    /// It does not come.
    Lost,
    /// It is not sent, and the next has its DataSN.
    LeftOut,
    /// It comes twice.
    Twice,
}

#[derive(Arbitrary, Debug)]
struct Request {
    slot: bool,
    tag: u8,
    lun: bool,
    immediate: bool,
    attribute: u8,
    direction: u8,
    cdb: Operation,
    /// Beside what the CDB says.
    expected_more: i8,
    unsolicited: u16,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Read { lba: u8, blocks: u8 },
    Write { lba: u8, blocks: u8 },
    CompareAndWrite { lba: u8, blocks: u8 },
    Inquiry { len: u8 },
    Any { cdb: [u8; 16], expected: u16 },
}

impl Operation {
    /// The CDB, and the bytes that it moves.
    fn encode(&self) -> ([u8; 16], u32) {
        let ten = |opcode, lba, blocks: u8| {
            let cdb = [opcode, 0, 0, 0, 0, lba, 0, 0, blocks, 0, 0, 0, 0, 0, 0, 0];
            (cdb, u32::from(blocks) * BLOCK_BYTES)
        };
        match *self {
            Self::Read { lba, blocks } => ten(0x28, lba, blocks % 40),
            Self::Write { lba, blocks } => ten(0x2a, lba, blocks % 40),
            Self::CompareAndWrite { lba, blocks } => {
                let blocks = blocks % 4;
                let cdb = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0];
                (cdb, 2 * u32::from(blocks) * BLOCK_BYTES)
            }
            Self::Inquiry { len } => ([0x12, 0, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], u32::from(len)),
            Self::Any { cdb, expected } => (cdb, u32::from(expected)),
        }
    }
}

fuzz_target!(|input: Input| {
    let offer = input.shape.offer();
    let mut play = Play::new(&offer, input.shape.unit);
    for step in input.steps.iter().take(STEPS_MAX) {
        play.step(step);
        play.drive();
        if input.shape.attentive {
            play.listen(0, false);
            play.listen(1, false);
        }
        if play.target.is_over() {
            break;
        }
    }
    play.end();
});

/// Judges as the product does: by the unit.
struct UnitGate<'a>(&'a LogicalUnit<Strict>);

impl Gate for UnitGate<'_> {
    fn judge(&mut self, _: Lun, cdb: &[u8], data_out_bytes: u32, _: u32) -> Verdict {
        if data_out_bytes > 0 && scsi::judge(scsi::Cdb::new(cdb), &self.0.shape()).is_err() {
            return Verdict::Forgo;
        }
        Verdict::Take
    }
}

struct Play {
    offer: Offer,
    target: target::Session,
    unit: LogicalUnit<Strict>,
    wire: Wire,
    now: Time,
    cmd_sn: u32,
    skew: (i8, i8),
    /// Commands that were handed out and wait to be carried out.
    waiting: Vec<target::Command>,
}

impl Play {
    fn new(offer: &Offer, kind: u8) -> Self {
        let mut target = logged_in::session(offer);
        while target.poll_event().is_some() {}
        let (first, _) = target.window().expect("it is logged in");
        let wire = Wire::new(offer);
        let (now, skew, waiting) = (Time(0), (0, 0), Vec::new());
        Self { offer: offer.clone(), target, unit: unit(kind), wire, now, cmd_sn: first.0, skew, waiting }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Command(ref request) => self.command(request),
            Step::Solicited { slot, pieces, ref fault } => self.solicited(slot, pieces, fault),
            Step::Data { slot, tag, transfer_tag, at, len, is_final } => {
                let transfer_tag =
                    transfer_tag.map_or(TargetTransferTag::RESERVED, |tag| TargetTransferTag(tag.into()));
                self.data(slot, tag_of(tag), Lun(0), transfer_tag, 0, (at.into(), len.into()), is_final);
            }
            Step::Manage { slot, tag, function, referenced, immediate } => {
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
                    exp_data_sn: iscsi::pdu::DataSn(0),
                };
                self.send(slot, |follows, bhs| header.emit(follows, bhs), &[]);
            }
            Step::Nop { slot, tag, echo, len } => {
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
            Step::Text { slot, tag, continues, question } => {
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
            Step::Logout { slot, tag, reason, cid } => {
                let (cmd_sn, exp_stat_sn) = self.numbers(slot, false);
                let reasons =
                    [LogoutReason::CloseSession, LogoutReason::CloseConnection, LogoutReason::RemoveForRecovery];
                let header = LogoutRequest {
                    immediate: false,
                    reason: reasons[usize::from(reason) % reasons.len()],
                    initiator_task_tag: tag_of(tag),
                    cid: Cid(cid.into()),
                    cmd_sn,
                    exp_stat_sn,
                };
                self.send(slot, |follows, bhs| header.emit(follows, bhs), &[]);
            }
            Step::Snack { slot, kind, tag, beg_run, run_length, acknowledges } => {
                self.wire.asks_again();
                let kind = [SnackType::DataOrR2t, SnackType::Status, SnackType::DataAck, SnackType::RData]
                    [usize::from(kind) % 4];
                let header = Snack {
                    kind,
                    lun: Lun(0),
                    initiator_task_tag: tag.map_or(InitiatorTaskTag::RESERVED, tag_of),
                    target_transfer_tag: self
                        .wire
                        .data_tag()
                        .filter(|_| acknowledges)
                        .unwrap_or(TargetTransferTag::RESERVED),
                    exp_stat_sn: self.exp_stat_sn(slot),
                    beg_run: if kind == SnackType::Status {
                        self.wire.heard(slot).0.wrapping_sub(beg_run.into())
                    } else {
                        beg_run.into()
                    },
                    run_length: run_length.into(),
                };
                self.send(slot, |follows, bhs| header.emit(follows, bhs), &[]);
            }
            Step::Carry(at) => {
                if !self.waiting.is_empty() {
                    let command = self.waiting.remove(usize::from(at) % self.waiting.len());
                    self.carry_out(command);
                }
            }
            Step::Forget(at) => {
                if !self.waiting.is_empty() {
                    let command = self.waiting.remove(usize::from(at) % self.waiting.len());
                    self.target.abort(command.task);
                }
            }
            Step::Listen { slot, loses } => self.listen(slot.into(), loses),
            Step::Damage { at, with } => self.wire.damage_next(at, with),
            Step::Lose => self.wire.lose_next(),
            Step::Skew { cmd_sn, exp_stat_sn } => self.skew = (cmd_sn, exp_stat_sn),
            Step::Cut { slot } => {
                self.target.handle_peer_closed(slot.into());
                self.wire.cut(slot.into());
            }
            Step::Join { cid } => {
                if let Some(slot) = logged_in::join(&mut self.target, &self.offer, Cid(cid.into()), self.now) {
                    self.wire.join(slot);
                }
            }
            Step::Wait { ms } => {
                let until = Time(self.now.0 + u64::from(ms) * 1_000_000);
                while let Some(due) = self.target.poll_timeout().filter(|due| *due <= until) {
                    self.now = self.now.max(due);
                    self.target.handle_timeout(self.now);
                    let next = self.target.poll_timeout();
                    assert!(next.is_none_or(|next| next > due), "a timer that was handled is due again at once");
                }
                self.now = until;
            }
            Step::Async { event } => match event % 3 {
                0 => self.target.send_async(Lun(0), AsyncEvent::Scsi, &[0x70; 18]),
                1 => self.target.send_async(Lun(0), AsyncEvent::TasksTerminated, &[]),
                _ => self.target.send_async(Lun(0), AsyncEvent::NegotiationRequested { within_s: 3 }, &[]),
            },
            Step::AskToLeave { seconds } => self.target.request_logout(Duration::from_secs(seconds.into()), self.now),
        }
    }

    /// What the target tells its driver is acted on; commands wait until a step carries them out.
    fn drive(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                Event::Command(command) => {
                    assert!(command.data_out.len() <= command.expected_data_out_bytes as usize);
                    if !self.wire.is_damaged() {
                        let misplaced = command.data_out.iter().enumerate().find(|(at, byte)| **byte != pattern(*at));
                        assert_eq!(misplaced, None, "data lies where it was not sent to");
                    }
                    self.waiting.push(command);
                }
                Event::TaskManagement(request) => self.manage(&request),
                Event::SendTargets { task, .. } => self.target.respond_targets(task, &[]),
                Event::CommandsLost(_) | Event::Closed(_) => {}
                Event::Login(_) | Event::Proven | Event::FullFeature(_) => panic!("nobody logs in any more"),
            }
        }
    }

    fn manage(&mut self, request: &target::TaskManagement) {
        let function = match request.function {
            TaskFunction::AbortTask => {
                // The unit carries out commands at once: one that waits has not begun.
                let there = request.referenced.is_some();
                let outcome = if there { TaskFunctionOutcome::Complete } else { TaskFunctionOutcome::TaskDoesNotExist };
                return self.target.respond_task_management(request.task, outcome);
            }
            TaskFunction::AbortTaskSet => TaskManagement::AbortTaskSet,
            TaskFunction::ClearTaskSet => TaskManagement::ClearTaskSet,
            TaskFunction::LogicalUnitReset => TaskManagement::LogicalUnitReset,
            TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => TaskManagement::TargetReset,
            _ => return self.target.respond_task_management(request.task, TaskFunctionOutcome::FunctionNotSupported),
        };
        now(self.unit.manage(NexusId(0), function));
        self.target.respond_task_management(request.task, TaskFunctionOutcome::Complete);
    }

    fn carry_out(&mut self, command: target::Command) {
        let outcome = now(self.unit.execute(
            NexusId(0),
            scsi::Command {
                tag: TaskTag(0),
                attribute: scsi::TaskAttribute::Simple,
                cdb: scsi::Cdb::new(&command.cdb),
                data_out_expected: command.expected_data_out_bytes.into(),
                data_out: if self.needs_data(&command) { command.data_out } else { View::default() },
            },
        ));
        let mut response = Response { data_in: outcome.data_in, ..Response::status(outcome.status.code()) };
        if let Some(sense) = outcome.sense.filter(|_| outcome.status == Status::CheckCondition) {
            response = Response::check_condition(&sense.emit());
        }
        self.target.respond(command.task, response);
    }

    fn needs_data(&self, command: &target::Command) -> bool {
        scsi::judge(scsi::Cdb::new(&command.cdb), &self.unit.shape()).is_ok()
    }

    fn command(&mut self, request: &Request) {
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
        let (cmd_sn, exp_stat_sn) = self.numbers(request.slot, request.immediate);
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
        self.send(request.slot, |follows, bhs| header.emit(follows, bhs), &data);
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
            let len = most.min(end - at);
            let fault = if piece == 1 { fault } else { &Fault::None };
            for _ in 0..match fault {
                Fault::Lost | Fault::LeftOut => 0,
                Fault::Twice => 2,
                Fault::None => 1,
            } {
                self.data(slot, initiator_task_tag, lun, target_transfer_tag, data_sn, (at, len), at + len == end);
            }
            data_sn += u32::from(!matches!(fault, Fault::LeftOut));
            (at, piece) = (at + len, piece + 1);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a header")]
    fn data(
        &mut self,
        slot: bool,
        tag: InitiatorTaskTag,
        lun: Lun,
        ttt: TargetTransferTag,
        sn: u32,
        piece: (u32, u32),
        last: bool,
    ) {
        let (at, len) = piece;
        let header = DataOut {
            is_final: last,
            lun,
            initiator_task_tag: tag,
            target_transfer_tag: ttt,
            exp_stat_sn: self.exp_stat_sn(slot),
            data_sn: iscsi::pdu::DataSn(sn),
            buffer_offset_bytes: at,
        };
        let data: Vec<u8> = (at..at + len).map(|at| pattern(at as usize)).collect();
        self.send(slot, |follows, bhs| header.emit(follows, bhs), &data);
    }

    /// The CmdSN of the next request, and the ExpStatSN of its connection.
    fn numbers(&mut self, slot: bool, immediate: bool) -> (iscsi::pdu::CmdSn, StatSn) {
        let cmd_sn = iscsi::pdu::CmdSn(self.cmd_sn.wrapping_add_signed(std::mem::take(&mut self.skew.0).into()));
        if !immediate {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        (cmd_sn, self.exp_stat_sn(slot))
    }

    fn exp_stat_sn(&mut self, slot: bool) -> StatSn {
        StatSn(self.wire.heard(slot).0.wrapping_add_signed(std::mem::take(&mut self.skew.1).into()))
    }

    fn send(&mut self, slot: bool, emit: impl FnOnce(iscsi::pdu::SegmentLengths, &mut iscsi::pdu::Bhs), data: &[u8]) {
        let slot = usize::from(slot);
        if self.target.is_closed(slot) {
            return;
        }
        if let Some(bytes) = self.wire.carry(&Pdu::new(emit, data)) {
            logged_in::feed_through(&mut self.target, slot, &bytes, self.now, &mut UnitGate(&self.unit));
        }
    }

    fn listen(&mut self, slot: usize, loses: bool) {
        // What is said on a connection that is cut waits for another one.
        if self.target.is_closed(slot) {
            return;
        }
        let said = logged_in::drain_target(&mut self.target, slot);
        self.wire.hear(slot, &said, loses);
    }

    /// Everything comes to its end: what waits is carried out, heard, and the session closed.
    fn end(mut self) {
        for command in std::mem::take(&mut self.waiting) {
            self.carry_out(command);
        }
        for slot in [0, 1] {
            self.listen(slot, false);
        }
        self.target.close();
        assert!(self.target.is_over(), "a session that is closed is over");
        assert!([0, 1].iter().all(|slot| !self.target.wants_to_send(*slot)));
    }
}

/// Few tags, so that they meet.
fn tag_of(tag: u8) -> InitiatorTaskTag {
    InitiatorTaskTag(u32::from(tag % 12))
}

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
