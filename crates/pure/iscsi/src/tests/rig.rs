//! A target session in full feature phase, with an initiator that sends exactly the PDUs of the test.

use crate::pdu::{
    AsyncMessage, Bhs, Cid, CmdSn, DataOut, DataSn, InitiatorTaskTag, Isid, LogoutReason, LogoutRequest, Lun, NopOut,
    Residual, ScsiCommand, SegmentLengths, StatSn, TargetPdu, TargetTransferTag, TaskAttribute, TaskFunction,
    TaskManagementRequest, Tsih,
};
use crate::target::{Command, Config, Event, Gate, Joining, OpenGate, Response, Session, TaskManagement};
use crate::{Identity, IscsiName, Negotiated, SendSlices, SessionType, TaskId};
use shard::Time;
use std::rc::Rc;

pub(super) const LUN: Lun = Lun(0x0001_0000_0000_0000);

/// Negotiated parameters of most tests: small limits, so that sequences are short.
pub(super) fn negotiated() -> Negotiated {
    Negotiated {
        session_type: SessionType::Normal,
        first_burst_bytes_max: 2048,
        burst_bytes_max: 4096,
        outstanding_r2t_max: 1,
        initial_r2t: true,
        immediate_data: true,
        peer_data_segment_bytes_max: 1024,
        own_data_segment_bytes_max: 256 << 10,
        time2wait_s: 2,
        time2retain_s: 0,
        identity: identity(),
        header_digest: false,
        data_digest: false,
        connections_max: 1,
        data_pdu_in_order: true,
        data_sequence_in_order: true,
        error_recovery_level: 0,
        protocol_level: 1,
    }
}

pub(super) fn identity() -> Identity {
    Identity {
        initiator_name: IscsiName::parse("iqn.2026-01.test:host").expect("a name"),
        initiator_alias: None,
        authentication: None,
        session_type: SessionType::Normal,
        target_name: Some(IscsiName::parse("iqn.2026-01.test:disk").expect("a name")),
        isid: Isid([1, 2, 3, 4, 5, 6]),
        tsih: Tsih(1),
        joins: false,
        cid: Cid(1),
        cmd_sn: CmdSn(1),
    }
}

pub(super) fn config() -> Config {
    Config { commands_max: 4, immediate_max: 2, ..Config::default() }
}

pub(super) fn initiator_config() -> crate::initiator::Config {
    let Identity { initiator_name, target_name, .. } = identity();
    crate::initiator::Config::new(crate::login::InitiatorConfig::new(initiator_name, target_name))
}

pub(super) struct Rig {
    pub(super) target: Session,
    pub(super) now: Time,
    /// CmdSN of the next command.
    pub(super) cmd_sn: u32,
    /// Slot of the connection in use.
    pub(super) slot: usize,
    agreed: Negotiated,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(config(), negotiated())
    }

    pub(super) fn with(config: Config, negotiated: Negotiated) -> Self {
        let now = Time(0);
        let target = Session::in_full_feature(Rc::new(config), negotiated.clone(), now);
        Self { target, now, cmd_sn: 1, slot: 0, agreed: negotiated }
    }

    /// Adds a connection to the session, and uses it from now on.
    pub(super) fn join(&mut self, cid: u16) -> Option<usize> {
        let agreed = self.agreed.clone();
        let identity = Identity { cid: Cid(cid), joins: true, ..agreed.identity.clone() };
        let joining = Joining::of(Negotiated { identity, ..agreed });
        self.slot = self.target.join(&joining, self.now)?;
        Some(self.slot)
    }

    /// Uses the connection in `slot` from now on.
    pub(super) fn on(&mut self, slot: usize) -> &mut Self {
        self.slot = slot;
        self
    }

    /// Delivers the bytes as fast as the target accepts them.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.receive_through(bytes, &mut OpenGate);
    }

    pub(super) fn receive_through(&mut self, mut bytes: &[u8], gate: &mut impl Gate) {
        while !bytes.is_empty() {
            let space = self.target.receive_into(self.slot);
            if space.is_empty() {
                return;
            }
            let len = space.len().min(bytes.len());
            let (now, rest) = bytes.split_at(len);
            space[..len].copy_from_slice(now);
            self.target.handle_received(self.slot, len, self.now, gate);
            bytes = rest;
        }
    }

    /// Sends a command in CmdSN order.
    pub(super) fn command(&mut self, tag: u32, shape: Shape, data: &[u8]) {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn += 1;
        self.receive(&command(tag, cmd_sn, shape, data));
    }

    /// Takes all pending events.
    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.target.poll_event()).collect()
    }

    /// Takes the next event, which must be a command.
    pub(super) fn expect_command(&mut self) -> Command {
        match self.target.poll_event() {
            Some(Event::Command(command)) => command,
            other => panic!("a command was due, not {other:?}"),
        }
    }

    pub(super) fn expect_task_management(&mut self) -> TaskManagement {
        match self.target.poll_event() {
            Some(Event::TaskManagement(request)) => request,
            other => panic!("a task management function was due, not {other:?}"),
        }
    }

    /// Takes all output of the target as bytes.
    pub(super) fn sent(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while self.target.wants_to_send(self.slot) {
            let mut slices = SendSlices::new();
            self.target.gather(self.slot, &mut slices);
            let from = all.len();
            slices.iter().for_each(|slice| all.extend_from_slice(slice));
            drop(slices);
            self.target.handle_transmitted(self.slot, all.len() - from);
        }
        all
    }

    /// Takes all output of the target, one line per PDU.
    pub(super) fn said(&mut self) -> Vec<String> {
        pdus(&self.sent()).iter().map(|(header, data)| describe(header, data)).collect()
    }

    /// Asserts that no task has left anything behind.
    pub(super) fn assert_idle(&self) {
        assert_eq!(self.target.holds(), (0, 0), "tasks and bytes of data-out that are held");
    }

    pub(super) fn respond(&mut self, task: TaskId, response: Response) {
        self.target.respond(task, response);
    }
}

/// Parameters of a command that tests vary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) bytes: u32,
    pub(super) is_final: bool,
    pub(super) immediate: bool,
    pub(super) attribute: TaskAttribute,
}

pub(super) const NONE: Shape =
    Shape { read: false, write: false, bytes: 0, is_final: true, immediate: false, attribute: TaskAttribute::Simple };

pub(super) fn reads(bytes: u32) -> Shape {
    Shape { read: true, bytes, ..NONE }
}

pub(super) fn writes(bytes: u32) -> Shape {
    Shape { write: true, bytes, ..NONE }
}

pub(super) fn command(tag: u32, cmd_sn: u32, shape: Shape, data: &[u8]) -> Vec<u8> {
    let header = ScsiCommand {
        immediate: shape.immediate,
        is_final: shape.is_final,
        read: shape.read,
        write: shape.write,
        attribute: shape.attribute,
        lun: LUN,
        initiator_task_tag: InitiatorTaskTag(tag),
        expected_data_transfer_bytes: shape.bytes,
        cmd_sn: CmdSn(cmd_sn),
        exp_stat_sn: StatSn(0),
        cdb: [tag as u8; 16],
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::data(data.len()), &mut bytes);
    pdu(bytes, data)
}

/// Data-Out, by default the valid one for a first R2T.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub(super) tag: u32,
    pub(super) transfer_tag: TargetTransferTag,
    pub(super) lun: Lun,
    pub(super) data_sn: u32,
    pub(super) offset: u32,
    pub(super) is_final: bool,
}

pub(super) fn data_out(out: Out, data: &[u8]) -> Vec<u8> {
    let header = DataOut {
        is_final: out.is_final,
        lun: out.lun,
        initiator_task_tag: InitiatorTaskTag(out.tag),
        target_transfer_tag: out.transfer_tag,
        exp_stat_sn: StatSn(0),
        data_sn: DataSn(out.data_sn),
        buffer_offset_bytes: out.offset,
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::data(data.len()), &mut bytes);
    pdu(bytes, data)
}

pub(super) fn nop_out(tag: u32, cmd_sn: u32, immediate: bool, data: &[u8]) -> Vec<u8> {
    let header = NopOut {
        immediate,
        lun: Lun(0),
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag: TargetTransferTag::RESERVED,
        cmd_sn: CmdSn(cmd_sn),
        exp_stat_sn: StatSn(0),
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::data(data.len()), &mut bytes);
    pdu(bytes, data)
}

/// A ping without an answer that acknowledges statuses before `exp_stat_sn`.
pub(super) fn acknowledge(exp_stat_sn: u32) -> Vec<u8> {
    let mut ping = nop_out(u32::MAX, 1, true, &[]);
    ping[28..32].copy_from_slice(&exp_stat_sn.to_be_bytes());
    ping
}

/// A task management request, immediate as initiators send them.
pub(super) fn manage(tag: u32, cmd_sn: u32, function: TaskFunction, referenced: u32, ref_cmd_sn: u32) -> Vec<u8> {
    let header = TaskManagementRequest {
        immediate: true,
        function,
        lun: LUN,
        initiator_task_tag: InitiatorTaskTag(tag),
        referenced_task_tag: InitiatorTaskTag(referenced),
        cmd_sn: CmdSn(cmd_sn),
        exp_stat_sn: StatSn(0),
        ref_cmd_sn: CmdSn(ref_cmd_sn),
        exp_data_sn: DataSn(0),
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::NONE, &mut bytes);
    bytes.to_vec()
}

pub(super) fn logout(cmd_sn: u32, reason: LogoutReason, cid: u16) -> Vec<u8> {
    let header = LogoutRequest {
        immediate: false,
        reason,
        initiator_task_tag: InitiatorTaskTag(9),
        cid: Cid(cid),
        cmd_sn: CmdSn(cmd_sn),
        exp_stat_sn: StatSn(0),
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::NONE, &mut bytes);
    bytes.to_vec()
}

pub(super) fn pdu(header: Bhs, data: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Bytes that differ from offset to offset.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 256) as u8).collect()
}

/// Splits a stream without digests and without additional header segments into PDUs.
pub(super) fn pdus(mut bytes: &[u8]) -> Vec<(Bhs, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<48>() {
        let lengths = SegmentLengths::parse(header);
        all.push((*header, rest[..lengths.data_bytes].to_vec()));
        bytes = &rest[lengths.padded_data_bytes()..];
    }
    assert!(bytes.is_empty(), "a target sends whole PDUs");
    all
}

/// Describes a PDU of a target in one line.
pub(super) fn describe(header: &Bhs, data: &[u8]) -> String {
    let residual = |residual| match residual {
        Residual::None => String::new(),
        Residual::Underflow(bytes) => format!(" underflow {bytes}"),
        Residual::Overflow(bytes) => format!(" overflow {bytes}"),
    };
    match TargetPdu::parse(header).expect("a target of ours breaks no rule") {
        TargetPdu::DataIn(p) => {
            let end = if p.is_final { " F" } else { "" };
            let status = p.status.map_or(String::new(), |s| {
                format!(" status {} stat {}{}", s.status, s.stat_sn.0, residual(s.residual))
            });
            let (tag, sn, at) = (p.initiator_task_tag.0, p.data_sn.0, p.buffer_offset_bytes);
            format!("data-in {tag} sn {sn} at {at} len {}{end}{status}", data.len())
        }
        TargetPdu::ScsiResponse(p) => {
            let sense =
                data.get(2..).filter(|sense| !sense.is_empty()).map_or(String::new(), |s| format!(" sense {s:x?}"));
            let read = match p.read_residual {
                Residual::None => String::new(),
                other => format!(" read{}", residual(other)),
            };
            let (tag, status, stat) = (p.initiator_task_tag.0, p.status, p.stat_sn.0);
            format!("response {tag} status {status} stat {stat}{}{read}{sense}", residual(p.residual))
        }
        TargetPdu::R2t(p) => {
            let (tag, sn) = (p.initiator_task_tag.0, p.r2t_sn.0);
            format!("r2t {tag} sn {sn} at {} len {}", p.buffer_offset_bytes, p.desired_data_transfer_bytes)
        }
        TargetPdu::NopIn(p) if p.initiator_task_tag.is_reserved() => format!("ping max {}", p.max_cmd_sn.0),
        TargetPdu::NopIn(p) => format!("pong {} len {} stat {}", p.initiator_task_tag.0, data.len(), p.stat_sn.0),
        TargetPdu::TaskManagement(p) => {
            format!("task management {} {:?} stat {}", p.initiator_task_tag.0, p.outcome, p.stat_sn.0)
        }
        TargetPdu::Text(p) => {
            let text = String::from_utf8_lossy(data).replace('\0', " ");
            let flags = format!("{}{}", if p.is_final { " F" } else { "" }, if p.continues { " C" } else { "" });
            format!("text {}{flags}: {}", p.initiator_task_tag.0, text.trim_end())
        }
        TargetPdu::Logout(p) => format!("logout {} {:?}", p.initiator_task_tag.0, p.outcome),
        TargetPdu::Async(AsyncMessage { event, .. }) => format!("async {event:?}"),
        TargetPdu::Reject(p) => format!("reject {:?} of {:#04x}", p.reason, data[0] & 0x3f),
        TargetPdu::Login(p) => format!("login {:?}", p.status),
    }
}

/// Returns the transfer tag of the last R2T in `bytes`.
pub(super) fn last_transfer_tag(bytes: &[u8]) -> TargetTransferTag {
    let tags = pdus(bytes).into_iter().filter_map(|(header, _)| match TargetPdu::parse(&header) {
        Ok(TargetPdu::R2t(r2t)) => Some(r2t.target_transfer_tag),
        _ => None,
    });
    tags.into_iter().next_back().expect("an R2T was sent")
}
