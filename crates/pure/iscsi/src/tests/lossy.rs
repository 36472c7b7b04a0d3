//! A session of two connections at error recovery level 2 in which any PDU may be lost, damaged, or the last one of its
//! connection: every command succeeds and is executed once.
//!
//! The initiator here is minimal: when nothing moves, it determines the missing PDUs and requests them.

use super::recovery::{digested, reassign, snack};
use super::rig::*;
use crate::Negotiated;
use crate::pdu::{
    Bhs, Opcode, R2t, Reject, RejectReason, SegmentLengths, SnackType, TargetPdu, TargetTransferTag,
    TaskFunctionOutcome as Outcome,
};
use crate::target::{Config, Event, Response};
use block::Buf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const COMMANDS: usize = 44;
const REGION: usize = 6000;
const PING: u32 = 0x1000;
const MOVE: u32 = 0x2000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Lost,
    HeaderDamaged,
    DataDamaged,
    Cut,
}

/// State of one command at the initiator.
struct Task {
    write: Option<Vec<u8>>,
    bytes: u32,
    connection: usize,
    /// Data received by DataSN: offset and data.
    parts: BTreeMap<u32, (u32, Vec<u8>)>,
    /// Number of DataSNs and R2TSNs in all, once the status has arrived.
    ended: Option<u32>,
    /// StatSN of its status.
    stat_sn: Option<u32>,
    moved: bool,
}

impl Task {
    fn is_done(&self) -> bool {
        self.ended.is_some_and(|ended| self.write.is_some() || self.parts.len() as u32 >= ended)
    }
}

/// One connection at the initiator.
#[derive(Default)]
struct Path {
    slot: usize,
    to_target: VecDeque<Vec<u8>>,
    /// Next StatSN, the StatSNs that arrived ahead of it, and the end of the known range.
    expected: u32,
    ahead: BTreeSet<u32>,
    there_are: u32,
    /// Number of losses.
    losses: usize,
}

struct Simulation {
    rig: Rig,
    paths: [Path; 2],
    tasks: Vec<Task>,
    disk: Vec<u8>,
    /// Number of executions of each command.
    done: Vec<u32>,
    exp_cmd_sn: u32,
    pdus: usize,
    fault: Option<(usize, Fault)>,
}

impl Simulation {
    fn new(fault: Option<(usize, Fault)>) -> Self {
        let agreed = Negotiated {
            error_recovery_level: 2,
            connections_max: 2,
            time2retain_s: 3600,
            header_digest: true,
            data_digest: true,
            ..negotiated()
        };
        let mut rig = Rig::with(Config { commands_max: 64, ..config() }, agreed);
        let slot = rig.join(2).expect("two are allowed");
        let path = |slot| Path { slot, expected: 1, there_are: 1, ..Path::default() };
        let task = |n: usize| {
            let (bytes, write) = match n % 3 {
                0 => (3000, true),
                1 => (5000, false),
                _ => (700, true),
            };
            let write = write.then(|| (0..bytes).map(|i| (i * 7 + n as u32 * 13) as u8).collect());
            Task { write, bytes, connection: n % 2, parts: BTreeMap::new(), ended: None, stat_sn: None, moved: true }
        };
        let tasks = (0..COMMANDS).map(task).collect();
        let paths = [path(0), path(slot)];
        let (disk, done) = (pattern(COMMANDS * REGION), vec![0; COMMANDS]);
        Self { rig, paths, tasks, disk, done, exp_cmd_sn: 1, pdus: 0, fault }
    }

    fn push(&mut self, connection: usize, mut plain: Vec<u8>) {
        let path = &mut self.paths[connection];
        plain[28..32].copy_from_slice(&path.expected.to_be_bytes());
        let len = SegmentLengths::parse(plain.first_chunk().expect("a header")).data_bytes;
        path.to_target.push_back(digested(&plain[..48], &plain[48..48 + len]));
    }

    fn push_command(&mut self, n: usize) {
        let task = &self.tasks[n];
        let shape = if task.write.is_some() { writes(task.bytes) } else { reads(task.bytes) };
        let immediate = task.write.as_ref().filter(|data| data.len() < 1000).cloned().unwrap_or_default();
        let mut plain = command(n as u32 + 1, n as u32 + 1, shape, &immediate);
        plain[32..34].copy_from_slice(&(n as u16).to_be_bytes());
        self.push(task.connection, plain);
    }

    /// Determines the fate of the next PDU on a connection; `None` when it does not arrive.
    fn meet(&mut self, connection: usize, mut pdu: Vec<u8>) -> Option<Vec<u8>> {
        let number = self.pdus;
        self.pdus += 1;
        let Some((_, fault)) = self.fault.filter(|&(at, _)| at == number) else { return Some(pdu) };
        match fault {
            Fault::Lost => return None,
            Fault::HeaderDamaged => pdu[17] ^= 4,
            Fault::DataDamaged if pdu.len() > 60 => pdu[56] ^= 4,
            Fault::DataDamaged => {}
            Fault::Cut => {
                self.cut(connection);
                return None;
            }
        }
        Some(pdu)
    }

    /// Loses the connection; another one with the same CID replaces it.
    fn cut(&mut self, connection: usize) {
        let old = &self.paths[connection];
        self.rig.target.handle_peer_closed(old.slot);
        let losses = old.losses + 1;
        let slot = self.rig.join(connection as u16 + 1).expect("it reinstates");
        self.paths[connection] = Path { slot, expected: 1, there_are: 1, losses, ..Path::default() };
        let on_it = self.tasks.iter_mut().filter(|task| task.connection == connection && !task.is_done());
        on_it.for_each(|task| task.moved = false);
    }

    /// Moves everything until nothing moves any more.
    fn run(&mut self) {
        loop {
            let mut moved = false;
            for connection in [0, 1] {
                while let Some(pdu) = self.paths[connection].to_target.pop_front() {
                    moved = true;
                    if let Some(pdu) = self.meet(connection, pdu) {
                        self.rig.on(self.paths[connection].slot).receive(&pdu);
                        self.serve();
                    }
                }
                let slot = self.paths[connection].slot;
                for pdu in split(&self.rig.on(slot).sent()) {
                    // PDUs in flight on the lost connection never arrive.
                    if self.paths[connection].slot == slot
                        && let Some(pdu) = self.meet(connection, pdu)
                    {
                        self.hear(connection, &pdu);
                        moved = true;
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// The driver of the target.
    fn serve(&mut self) {
        for event in self.rig.events() {
            let Event::Command(command) = event else { panic!("{event:?}") };
            let n = usize::from(u16::from_be_bytes([command.cdb[0], command.cdb[1]]));
            self.done[n] += 1;
            let at = n * REGION;
            let response = if command.expected_data_out_bytes > 0 {
                self.disk[at..at + command.data_out.len()].copy_from_slice(&command.data_out);
                Response::default()
            } else {
                let end = at + command.expected_data_in_bytes as usize;
                Response::good(Buf::copy_of(&self.disk[at..end]).into())
            };
            self.rig.respond(command.task, response);
        }
    }

    /// Handles PDUs of the target; damaged ones are dropped by their digests.
    fn hear(&mut self, connection: usize, pdu: &[u8]) {
        let header: &Bhs = pdu.first_chunk().expect("a header");
        let data = &pdu[52..(52 + SegmentLengths::parse(header).data_bytes).min(pdu.len())];
        if digested(header, data) != pdu {
            return;
        }
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        self.exp_cmd_sn = self.exp_cmd_sn.max(word(28));
        let numbered = match Opcode::of(header) {
            Ok(Opcode::R2t) => false,
            Ok(Opcode::DataIn) => header[1] & 1 == 1,
            Ok(Opcode::NopIn) => word(16) != u32::MAX,
            _ => true,
        };
        let path = &mut self.paths[connection];
        if numbered {
            path.ahead.insert(word(24));
            path.there_are = path.there_are.max(word(24) + 1);
        } else if Opcode::of(header) != Ok(Opcode::DataIn) {
            path.there_are = path.there_are.max(word(24));
        }
        match TargetPdu::parse(header).expect("a target of ours breaks no rule") {
            TargetPdu::DataIn(p) => {
                let task = &mut self.tasks[p.initiator_task_tag.0 as usize - 1];
                task.parts.insert(p.data_sn.0, (p.buffer_offset_bytes, data.to_vec()));
                if let Some(status) = p.status {
                    assert_eq!(status.status, 0);
                    (task.ended, task.stat_sn) = (Some(p.data_sn.0 + 1), Some(status.stat_sn.0));
                }
            }
            TargetPdu::ScsiResponse(p) => {
                assert_eq!(p.status, 0, "{p:?}");
                let task = &mut self.tasks[p.initiator_task_tag.0 as usize - 1];
                (task.ended, task.stat_sn) = (Some(p.exp_data_sn.0), Some(p.stat_sn.0));
            }
            TargetPdu::R2t(r2t) => self.answer(connection, &r2t),
            TargetPdu::TaskManagement(p) => {
                let task = &mut self.tasks[(p.initiator_task_tag.0 - MOVE) as usize];
                // Reassigned, also where the response to an earlier request was lost.
                assert!(matches!(
                    p.outcome,
                    Outcome::Complete | Outcome::TaskStillAllegiant | Outcome::TaskDoesNotExist
                ));
                task.moved = true;
            }
            TargetPdu::Reject(Reject { reason: RejectReason::DataDigestError, .. }) if data[0] & 0x3f == 0x01 => {
                let tag = u32::from_be_bytes(*data[16..].first_chunk().expect("a header"));
                self.push_command(tag as usize - 1);
            }
            TargetPdu::Reject(_) | TargetPdu::NopIn(_) => {}
            other => panic!("{other:?}"),
        }
        self.advance(connection);
    }

    /// Acknowledges what has arrived; a status counts only once all data of its command has arrived.
    fn advance(&mut self, connection: usize) {
        let path = &mut self.paths[connection];
        let lacks_data = |stat_sn| {
            let mut tasks = self.tasks.iter().filter(|task| task.connection == connection);
            tasks.any(|task| task.stat_sn == Some(stat_sn) && !task.is_done())
        };
        while path.ahead.contains(&path.expected) && !lacks_data(path.expected) {
            path.ahead.remove(&path.expected);
            path.expected += 1;
        }
    }

    fn answer(&mut self, connection: usize, r2t: &R2t) {
        let n = r2t.initiator_task_tag.0 as usize - 1;
        let data = self.tasks[n].write.clone().expect("only writes are asked for data");
        let (from, end) = (r2t.buffer_offset_bytes, r2t.buffer_offset_bytes + r2t.desired_data_transfer_bytes);
        for (data_sn, at) in (from..end).step_by(1024).enumerate() {
            let last = end.min(at + 1024);
            let transfer_tag: TargetTransferTag = r2t.target_transfer_tag;
            let tag = n as u32 + 1;
            let out = Out { tag, transfer_tag, lun: LUN, data_sn: data_sn as u32, offset: at, is_final: last == end };
            self.push(connection, data_out(out, &data[at as usize..last as usize]));
        }
    }

    /// Requests missing PDUs when nothing moves.
    fn recover(&mut self, round: u32) {
        if let Some(due) = self.rig.target.poll_timeout() {
            self.rig.now = due;
            self.rig.target.handle_timeout(due);
        }
        let cmd_sn = COMMANDS as u32 + 1;
        for connection in [0, 1] {
            let path = &self.paths[connection];
            let (expected, missing) = (path.expected, path.there_are - path.expected);
            self.push(connection, nop_out(PING + round * 2 + connection as u32, cmd_sn, true, &[]));
            if missing > 0 && !self.paths[connection].ahead.contains(&expected) {
                self.push(connection, snack(SnackType::Status, u32::MAX, expected, missing));
            }
        }
        self.run();
        for n in 0..COMMANDS {
            let (tag, task) = (n as u32 + 1, &self.tasks[n]);
            let connection = task.connection;
            let has = (0..).take_while(|data_sn| task.parts.contains_key(data_sn)).count() as u32;
            if task.ended.is_none() && tag >= self.exp_cmd_sn {
                self.tasks[n].moved = true;
                self.push_command(n);
            } else if !task.moved {
                self.push(connection, reassign(MOVE + n as u32, cmd_sn, tag, has));
            } else if task.ended.is_some_and(|ended| task.write.is_none() && has < ended) {
                self.push(connection, snack(SnackType::DataOrR2t, tag, has, 1));
            }
        }
    }

    fn is_done(&self) -> bool {
        self.tasks.iter().all(Task::is_done)
    }

    fn play(mut self) -> usize {
        for n in 0..COMMANDS {
            self.push_command(n);
        }
        self.run();
        let fault = self.fault;
        for round in 0..40 {
            if self.is_done() {
                self.judge();
                return self.pdus;
            }
            self.recover(round);
            self.run();
        }
        let open: Vec<_> = (0..COMMANDS).filter(|&n| self.tasks[n].ended.is_none()).collect();
        panic!("{fault:?}: commands {open:?} do not end; expected {}", self.exp_cmd_sn);
    }

    fn judge(&self) {
        let fault = self.fault;
        for (n, task) in self.tasks.iter().enumerate() {
            assert_eq!(self.done[n], 1, "{fault:?}: command {n} was done so often");
            let region = &self.disk[n * REGION..n * REGION + task.bytes as usize];
            match &task.write {
                Some(data) => assert!(region == data, "{fault:?}: write {n}"),
                None => {
                    let read: Vec<u8> = task.parts.values().flat_map(|(_, data)| data.iter().copied()).collect();
                    assert!(region == read, "{fault:?}: read {n}");
                }
            }
        }
        assert_eq!(self.rig.target.holds(), (0, 0), "{fault:?}");
    }
}

/// Splits a stream with both digests into PDUs.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(header) = bytes.first_chunk::<48>() {
        let data = SegmentLengths::parse(header).padded_data_bytes();
        let (pdu, rest) = bytes.split_at(52 + if data > 0 { data + 4 } else { 0 });
        all.push(pdu.to_vec());
        bytes = rest;
    }
    all
}

#[test]
fn every_pdu_of_a_trace_may_be_lost_damaged_or_the_last_of_its_connection() {
    let whole = Simulation::new(None).play();
    assert!(whole >= 200, "{whole} PDUs without a fault");
    for number in 0..whole {
        for fault in [Fault::Lost, Fault::HeaderDamaged, Fault::DataDamaged, Fault::Cut] {
            Simulation::new(Some((number, fault))).play();
        }
    }
}
