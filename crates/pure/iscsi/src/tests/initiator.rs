//! Initiator against a target that violates the protocol.

use super::rig::{LUN, initiator_config, negotiated, pattern, pdu, pdus};
use crate::initiator::{Command, Completion, Connection, DataIn, Event};
use crate::pdu::{
    self, AsyncEvent, AsyncMessage, Bhs, CmdSn, DataInStatus, DataSn, InitiatorPdu, InitiatorTaskTag, Lun, NopIn, R2t,
    R2tSn, Reject, RejectReason, Residual, ScsiResponse, SegmentLengths, ServiceResponse, StatSn, TargetTransferTag,
    TaskAttribute, TaskFunction, TaskFunctionOutcome, TaskManagementResponse,
};
use crate::{CloseReason, SendSlices, Violation};
use block::Buf;
use shard::Time;
use smallvec::SmallVec;
use std::rc::Rc;

/// An initiator in full feature phase that has sent one command.
struct Side {
    initiator: Connection,
    tag: InitiatorTaskTag,
}

const EXP: CmdSn = CmdSn(2);
const MAX: CmdSn = CmdSn(8);

fn side(command: Command) -> Side {
    let config = Rc::new(initiator_config());
    let mut initiator = Connection::in_full_feature(config, negotiated(), CmdSn(4), StatSn(1), Time(0));
    initiator.submit(command).expect("full feature phase, and room");
    let sent = sent(&mut initiator);
    let InitiatorPdu::ScsiCommand(command) = InitiatorPdu::parse(&sent[0].0).expect("an initiator of ours") else {
        panic!("a command was sent")
    };
    Side { initiator, tag: command.initiator_task_tag }
}

fn sent(initiator: &mut Connection) -> Vec<(Bhs, Vec<u8>)> {
    let mut slices = SendSlices::new();
    initiator.gather(&mut slices);
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
    drop(slices);
    initiator.handle_transmitted(bytes.len());
    pdus(&bytes)
}

fn read(bytes: usize) -> Command {
    let data_in = DataIn::Into(Buf::zeroed(bytes));
    Command { lun: LUN, cdb: SmallVec::from([0; 16]), attribute: TaskAttribute::Simple, data_out: None, data_in }
}

fn write(bytes: usize) -> Command {
    let data_out = Some(Buf::copy_of(&pattern(bytes)).into());
    Command { data_out, data_in: DataIn::None, ..read(0) }
}

impl Side {
    fn receive(&mut self, bytes: &[u8]) -> Vec<Event> {
        let space = self.initiator.receive_into();
        space[..bytes.len()].copy_from_slice(bytes);
        self.initiator.handle_received(bytes.len(), Time(0));
        std::iter::from_fn(|| self.initiator.poll_event()).collect()
    }

    fn data_in(&self) -> pdu::DataIn {
        pdu::DataIn {
            is_final: true,
            acknowledge: false,
            status: None,
            lun: Lun(0),
            initiator_task_tag: self.tag,
            target_transfer_tag: TargetTransferTag::RESERVED,
            exp_cmd_sn: EXP,
            max_cmd_sn: MAX,
            data_sn: DataSn(0),
            buffer_offset_bytes: 0,
        }
    }

    fn r2t(&self) -> R2t {
        R2t {
            lun: LUN,
            initiator_task_tag: self.tag,
            target_transfer_tag: TargetTransferTag(7),
            stat_sn: StatSn(1),
            exp_cmd_sn: EXP,
            max_cmd_sn: MAX,
            r2t_sn: R2tSn(0),
            buffer_offset_bytes: 1024,
            desired_data_transfer_bytes: 4096,
        }
    }

    fn response(&self) -> ScsiResponse {
        ScsiResponse {
            response: ServiceResponse::Completed,
            status: 2,
            initiator_task_tag: self.tag,
            snack_tag: 0,
            stat_sn: StatSn(1),
            exp_cmd_sn: EXP,
            max_cmd_sn: MAX,
            exp_data_sn: DataSn(0),
            read_residual: Residual::None,
            residual: Residual::Underflow(5),
        }
    }
}

fn emit(emit: impl FnOnce(SegmentLengths, &mut Bhs), data: &[u8]) -> Vec<u8> {
    let mut header = [0; 48];
    emit(SegmentLengths::data(data.len()), &mut header);
    pdu(header, data)
}

fn assert_left(events: &[Event], violation: Violation) {
    let [.., Event::Closed(CloseReason::Violation(found))] = events else { panic!("{violation:?}: {events:?}") };
    assert_eq!(*found, violation);
}

#[test]
fn data_in_that_is_out_of_sequence_or_too_long_ends_the_connection() {
    type Wrong = fn(pdu::DataIn) -> pdu::DataIn;
    let late = DataInStatus { status: 0, stat_sn: StatSn(3), residual: Residual::None };
    let rows: [(Wrong, usize, Violation); 4] = [
        (|header| pdu::DataIn { data_sn: DataSn(1), ..header }, 100, Violation::DataSnWrong),
        (|header| pdu::DataIn { buffer_offset_bytes: 4, ..header }, 96, Violation::BufferOffsetWrong),
        (|header| header, 101, Violation::DataTooLong),
        (
            |header| pdu::DataIn { initiator_task_tag: InitiatorTaskTag(0x70000), ..header },
            100,
            Violation::TaskTagUnknown,
        ),
    ];
    for (wrong, len, violation) in rows {
        let mut side = side(read(100));
        let header = wrong(side.data_in());
        let events = side.receive(&emit(|lengths, bytes| header.emit(lengths, bytes), &pattern(len)));
        assert_left(&events, violation);
    }
    let mut side = side(read(100));
    let header = pdu::DataIn { status: Some(late), ..side.data_in() };
    assert_left(&side.receive(&emit(|l, b| header.emit(l, b), &pattern(100))), Violation::StatSnWrong);
}

#[test]
fn r2t_that_asks_for_too_much_or_out_of_sequence_ends_the_connection() {
    type Wrong = fn(R2t) -> R2t;
    let rows: [(Wrong, Violation); 5] = [
        (|r2t| R2t { r2t_sn: R2tSn(1), ..r2t }, Violation::R2tSnWrong),
        (|r2t| R2t { buffer_offset_bytes: 8000, ..r2t }, Violation::R2tOutOfRange),
        (|r2t| R2t { buffer_offset_bytes: u32::MAX, ..r2t }, Violation::R2tOutOfRange),
        (|r2t| R2t { desired_data_transfer_bytes: 4097, ..r2t }, Violation::R2tOutOfRange),
        (|r2t| R2t { initiator_task_tag: InitiatorTaskTag(9), ..r2t }, Violation::TaskTagUnknown),
    ];
    for (wrong, violation) in rows {
        let mut side = side(write(10_000));
        let r2t = wrong(side.r2t());
        assert_left(&side.receive(&emit(|l, b| r2t.emit(l, b), &[])), violation);
    }
    let mut side = side(read(100));
    let r2t = side.r2t();
    assert_left(&side.receive(&emit(|l, b| r2t.emit(l, b), &[])), Violation::R2tOutOfRange);
}

#[test]
fn r2t_is_answered_in_segments_that_the_target_takes() {
    let mut side = side(write(10_000));
    let r2t = side.r2t();
    assert!(side.receive(&emit(|l, b| r2t.emit(l, b), &[])).is_empty());
    let answers = sent(&mut side.initiator);
    assert_eq!(answers.len(), 4);
    for (n, (header, data)) in answers.iter().enumerate() {
        let Ok(InitiatorPdu::DataOut(out)) = InitiatorPdu::parse(header) else { panic!("a Data-Out was due") };
        let at = 1024 + n * 1024;
        assert_eq!((out.data_sn, out.buffer_offset_bytes as usize, out.is_final), (DataSn(n as u32), at, n == 3));
        assert_eq!((out.target_transfer_tag, out.lun), (TargetTransferTag(7), LUN));
        assert!(data[..] == pattern(10_000)[at..at + 1024]);
    }
}

#[test]
fn short_read_shows_what_came_and_nothing_behind_it() {
    let mut side = side(read(100));
    let data_in = side.data_in();
    side.receive(&emit(|l, b| data_in.emit(l, b), &pattern(40)));
    let response = side.response();
    let events = side.receive(&emit(|l, b| response.emit(l, b), &[0, 3, 0x70, 0, 5, 0xee, 0xee]));
    let [Event::Completed(Completion { status: 2, sense, data_in: Some(data), residual, .. })] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((&sense[..], &data[..]), (&[0x70, 0, 5][..], &pattern(40)[..]));
    assert_eq!(*residual, Residual::Underflow(5));
}

#[test]
fn ping_of_the_target_is_answered_with_its_tag() {
    let mut side = side(read(100));
    let ping = NopIn {
        lun: LUN,
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        target_transfer_tag: TargetTransferTag(77),
        stat_sn: StatSn(1),
        exp_cmd_sn: EXP,
        max_cmd_sn: MAX,
    };
    assert!(side.receive(&emit(|l, b| ping.emit(l, b), &[])).is_empty());
    let answers = sent(&mut side.initiator);
    let Ok(InitiatorPdu::NopOut(answer)) = InitiatorPdu::parse(&answers[0].0) else { panic!("a NOP-Out was due") };
    assert!(answer.immediate && answer.initiator_task_tag.is_reserved());
    assert_eq!((answer.target_transfer_tag, answer.lun), (TargetTransferTag(77), LUN));
}

#[test]
fn rejected_command_ends_and_messages_are_told() {
    let mut side = side(read(100));
    let message = AsyncMessage {
        lun: LUN,
        stat_sn: StatSn(1),
        exp_cmd_sn: EXP,
        max_cmd_sn: MAX,
        event: AsyncEvent::TasksTerminated,
    };
    let events = side.receive(&emit(|l, b| message.emit(l, b), &[]));
    assert!(matches!(events[..], [Event::Async { lun: LUN, event: AsyncEvent::TasksTerminated, .. }]));
    let mut rejected = [0; 48];
    rejected[16..20].copy_from_slice(&side.tag.0.to_be_bytes());
    let reject = Reject {
        reason: RejectReason::CommandNotSupported,
        stat_sn: StatSn(2),
        exp_cmd_sn: EXP,
        max_cmd_sn: MAX,
        data_sn: DataSn(0),
    };
    let events = side.receive(&emit(|l, b| reject.emit(l, b), &rejected));
    assert!(matches!(events[..], [Event::Rejected { task: Some(_), reason: RejectReason::CommandNotSupported }]));
    let response = side.response();
    assert_left(&side.receive(&emit(|l, b| response.emit(l, b), &[])), Violation::StatSnWrong);
}

#[test]
fn function_that_is_complete_ends_what_was_sent_before_it_and_nothing_else() {
    let mut side = side(read(100));
    let before = side.tag;
    let function = side.initiator.manage(TaskFunction::LogicalUnitReset, LUN, None).expect("full feature phase");
    let behind = side.initiator.submit(read(100)).expect("there is room");
    let requests = sent(&mut side.initiator);
    let Ok(InitiatorPdu::TaskManagement(request)) = InitiatorPdu::parse(&requests[0].0) else {
        panic!("a function was sent")
    };
    let done = TaskManagementResponse {
        outcome: TaskFunctionOutcome::Complete,
        initiator_task_tag: request.initiator_task_tag,
        stat_sn: StatSn(1),
        exp_cmd_sn: EXP,
        max_cmd_sn: MAX,
    };
    let events = side.receive(&emit(|l, b| done.emit(l, b), &[]));
    assert!(matches!(events[..], [Event::TaskManagement { task, .. }] if task == function));
    assert!(side.initiator.is_waiting_for(behind), "it came behind the function");
    let answer = ScsiResponse { stat_sn: StatSn(2), initiator_task_tag: before, ..side.response() };
    assert_left(&side.receive(&emit(|l, b| answer.emit(l, b), &[])), Violation::TaskTagUnknown);
}
