//! Target and initiator connected by a pipe that splits and delays, with a clock that the test controls.

use super::rig::{LUN, config, identity, initiator_config, negotiated};
use crate::initiator::{self, Completion, DataIn};
use crate::pdu::{AsyncEvent, CmdSn, Residual, StatSn, TaskAttribute, TaskFunction, TaskFunctionOutcome};
use crate::target::{self, Response, TargetRecord};
use crate::{CloseReason, Identity, Negotiated, SendSlices, TaskId};
use block::{Buf, Rope};
use proptest::prelude::*;
use shard::Time;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::rc::Rc;

/// Two state machines, the bytes between them, and a disk of 64 KiB behind the target.
struct Pair {
    target: target::Session,
    initiator: initiator::Connection,
    now: Time,
    to_target: VecDeque<u8>,
    to_initiator: VecDeque<u8>,
    disk: Vec<u8>,
    /// Commands that the target holds until the test answers them.
    kept: Vec<target::Command>,
    keeps: bool,
    completed: Vec<Completion>,
    others: Vec<initiator::Event>,
    closed: Vec<CloseReason>,
}

fn both_sides(negotiated: Negotiated) -> Pair {
    let now = Time(0);
    let identity = Identity { cmd_sn: CmdSn(5), ..identity() };
    let negotiated = Negotiated { identity, ..negotiated };
    let from_initiators_side = Negotiated {
        peer_data_segment_bytes_max: negotiated.own_data_segment_bytes_max,
        own_data_segment_bytes_max: negotiated.peer_data_segment_bytes_max,
        ..negotiated.clone()
    };
    let target = target::Session::in_full_feature(Rc::new(config()), negotiated, now);
    let initiator = initiator::Connection::in_full_feature(
        Rc::new(initiator_config()),
        from_initiators_side,
        CmdSn(8),
        StatSn(1),
        now,
    );
    Pair {
        target,
        initiator,
        now,
        to_target: VecDeque::new(),
        to_initiator: VecDeque::new(),
        disk: vec![0; 64 << 10],
        kept: Vec::new(),
        keeps: false,
        completed: Vec::new(),
        others: Vec::new(),
        closed: Vec::new(),
    }
}

impl Pair {
    /// Moves up to `most` bytes in each direction. True when any byte moved.
    fn turn(&mut self, most: usize) -> bool {
        let mut moved = false;
        while self.target.wants_to_send(0) {
            let mut slices = SendSlices::new();
            self.target.gather(0, &mut slices);
            let before = self.to_initiator.len();
            slices.iter().for_each(|slice| self.to_initiator.extend(slice.iter()));
            drop(slices);
            self.target.handle_transmitted(0, self.to_initiator.len() - before);
        }
        while self.initiator.wants_to_send() {
            let mut slices = SendSlices::new();
            self.initiator.gather(&mut slices);
            let before = self.to_target.len();
            slices.iter().for_each(|slice| self.to_target.extend(slice.iter()));
            drop(slices);
            self.initiator.handle_transmitted(self.to_target.len() - before);
        }
        let space = self.target.receive_into(0);
        let len = space.len().min(most).min(self.to_target.len());
        self.to_target.drain(..len).zip(space).for_each(|(byte, place)| *place = byte);
        self.target.handle_received(0, len, self.now, &mut target::OpenGate);
        moved |= len > 0;
        let space = self.initiator.receive_into();
        let len = space.len().min(most).min(self.to_initiator.len());
        self.to_initiator.drain(..len).zip(space).for_each(|(byte, place)| *place = byte);
        self.initiator.handle_received(len, self.now);
        moved |= len > 0;
        self.act();
        moved || self.target.wants_to_send(0) || self.initiator.wants_to_send()
    }

    fn run(&mut self) {
        while self.turn(usize::MAX) {}
    }

    fn act(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                target::Event::Command(command) if self.keeps => self.kept.push(command),
                target::Event::Command(command) => self.execute(command),
                target::Event::TaskManagement(request) => {
                    self.target.respond_task_management(request.task, TaskFunctionOutcome::Complete);
                }
                target::Event::SendTargets { task, .. } => {
                    let portals = vec![("127.0.0.1:3260".to_owned(), 1)];
                    let record = TargetRecord { name: "iqn.2026-01.test:disk".to_owned(), portals };
                    self.target.respond_targets(task, &[record]);
                }
                target::Event::Closed(reason) => self.closed.push(reason),
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = self.initiator.poll_event() {
            match event {
                initiator::Event::Completed(completion) => self.completed.push(completion),
                initiator::Event::Closed(reason) => self.closed.push(reason),
                other => self.others.push(other),
            }
        }
    }

    /// Executes a command: the first two bytes of the CDB are the address.
    fn execute(&mut self, command: target::Command) {
        let at = usize::from(u16::from_be_bytes([command.cdb[0], command.cdb[1]]));
        let response = if command.expected_data_out_bytes > 0 {
            self.disk[at..at + command.data_out.len()].copy_from_slice(&command.data_out);
            Response::default()
        } else {
            let data = &self.disk[at..at + command.expected_data_in_bytes as usize];
            // In two parts, as a striped volume returns it.
            let mut rope = Rope::from(Buf::copy_of(&data[..data.len() / 3]));
            rope.push(Buf::copy_of(&data[data.len() / 3..]).freeze());
            Response::good(rope)
        };
        self.target.respond(command.task, response);
    }

    fn submit(&mut self, at: u16, data_out: Option<&[u8]>, data_in: DataIn) -> TaskId {
        let mut cdb = SmallVec::from([0; 16]);
        cdb[..2].copy_from_slice(&at.to_be_bytes());
        let attribute = TaskAttribute::Simple;
        let data_out = data_out.map(|data| Rope::from(Buf::copy_of(data)));
        let command = initiator::Command { lun: LUN, cdb, attribute, data_out, data_in };
        self.initiator.submit(command).expect("full feature phase, and room")
    }
}

#[test]
fn requests_of_every_kind_are_answered() {
    let mut pair = both_sides(negotiated());
    let ping = pair.initiator.ping(b"are you there").expect("full feature phase");
    let text = pair.initiator.send_targets("").expect("full feature phase");
    pair.run();
    let [initiator::Event::Pong { task, data }, initiator::Event::Targets { task: asked, targets }] = &pair.others[..]
    else {
        panic!("{:?}", pair.others)
    };
    assert_eq!((*task, &data[..], *asked), (ping, &b"are you there"[..], text));
    let addresses = vec!["127.0.0.1:3260,1".to_owned()];
    assert_eq!(targets[..], [initiator::Target { name: "iqn.2026-01.test:disk".to_owned(), addresses }]);
    pair.target.send_async(LUN, AsyncEvent::Scsi, &[0x70, 0, 6]);
    pair.initiator.logout();
    pair.run();
    let Some(initiator::Event::Async { sense, .. }) = pair.others.last() else { panic!("{:?}", pair.others) };
    assert_eq!(sense[..], [0x70, 0, 6]);
    assert_eq!(pair.closed, [CloseReason::LoggedOut, CloseReason::LoggedOut]);
    assert!(pair.target.is_over() && pair.initiator.is_closed());
}

#[test]
fn initiator_queues_what_the_window_does_not_take() {
    let mut pair = both_sides(negotiated());
    pair.keeps = true;
    for _ in 0..20 {
        pair.submit(0, None, DataIn::Discard(512));
    }
    pair.run();
    assert_eq!(pair.kept.len(), 4, "as many as the target has places");
    for left in (0..20).rev() {
        let command = pair.kept.remove(0);
        pair.execute(command);
        pair.run();
        assert_eq!(pair.kept.len(), left.min(4));
    }
    assert_eq!(pair.completed.len(), 20);
    assert!(pair.completed.iter().all(|done| done.data_in_bytes == 512 && done.residual == Residual::None));
}

#[test]
fn aborted_command_is_forgotten_by_both() {
    let mut pair = both_sides(negotiated());
    pair.keeps = true;
    let task = pair.submit(0, None, DataIn::Discard(512));
    let other = pair.submit(0, Some(&[1; 9000]), DataIn::None);
    pair.run();
    pair.initiator.manage(TaskFunction::AbortTask, LUN, Some(task));
    pair.run();
    assert!(matches!(
        pair.others[..],
        [initiator::Event::TaskManagement { outcome: TaskFunctionOutcome::Complete, .. }]
    ));
    for command in std::mem::take(&mut pair.kept) {
        pair.execute(command);
    }
    pair.run();
    let completed: Vec<_> = pair.completed.iter().map(|done| done.task).collect();
    assert_eq!(completed, [other]);
    assert_eq!(pair.target.holds(), (0, 0));
}

#[test]
fn aborted_command_that_still_waits_is_never_sent() {
    let mut pair = both_sides(negotiated());
    pair.keeps = true;
    let tasks: Vec<_> = (0..6).map(|_| pair.submit(0, None, DataIn::Discard(512))).collect();
    pair.run();
    let function = pair.initiator.manage(TaskFunction::AbortTask, LUN, Some(tasks[5]));
    assert!(!pair.initiator.is_waiting_for(tasks[5]));
    pair.run();
    let outcome = TaskFunctionOutcome::TaskDoesNotExist;
    let [initiator::Event::TaskManagement { task, outcome: found }] = &pair.others[..] else {
        panic!("{:?}", pair.others)
    };
    assert_eq!((Some(*task), *found), (function, outcome));
    pair.keeps = false;
    for command in std::mem::take(&mut pair.kept) {
        pair.execute(command);
    }
    pair.run();
    let completed: Vec<_> = pair.completed.iter().map(|done| done.task).collect();
    assert_eq!(completed, tasks[..5]);
}

#[test]
fn silent_connection_is_kept_by_pings_of_both_sides() {
    let mut pair = both_sides(negotiated());
    for _ in 0..10 {
        let due = pair.target.poll_timeout().into_iter().chain(pair.initiator.poll_timeout()).min();
        pair.now = due.expect("open connections have timers");
        pair.target.handle_timeout(pair.now);
        pair.initiator.handle_timeout(pair.now);
        pair.run();
    }
    assert!(pair.closed.is_empty() && pair.others.is_empty());
    assert!(pair.now > Time(60_000_000_000));
}

#[test]
fn silent_target_is_left_by_the_initiator() {
    let mut pair = both_sides(negotiated());
    for _ in 0..2 {
        let due = pair.initiator.poll_timeout().expect("an open connection has a timer");
        pair.initiator.handle_timeout(due);
    }
    pair.act();
    assert_eq!(pair.closed, [CloseReason::PeerSilent]);
}

#[derive(Clone, Debug)]
struct Op {
    at: u16,
    len: u16,
    write: bool,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(
        (0..32_000u16, 1..30_000u16, any::<bool>()).prop_map(|(at, len, write)| Op { at, len, write }),
        1..12,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// For all negotiated parameters and all splits of the pipe: reads return the data that writes sent.
    #[test]
    fn commands_move_the_right_bytes_over_any_pipe(
        ops in ops(),
        cuts in prop::collection::vec(1usize..5000, 1..20),
        (initial_r2t, immediate_data, header, data) in any::<(bool, bool, bool, bool)>(),
        (first, burst, own, peer) in (512u32..20_000, 512u32..40_000, 512u32..20_000, 512u32..20_000),
        outstanding in 1u16..4,
    ) {
        let agreed = Negotiated {
            header_digest: header,
            data_digest: data,
            initial_r2t,
            immediate_data,
            first_burst_bytes_max: first.min(burst),
            burst_bytes_max: burst,
            own_data_segment_bytes_max: own,
            peer_data_segment_bytes_max: peer,
            outstanding_r2t_max: outstanding,
            ..negotiated()
        };
        let mut pair = both_sides(agreed);
        let mut model = vec![0u8; 64 << 10];
        let mut cuts = cuts.into_iter().cycle();
        for (n, op) in ops.iter().enumerate() {
            let range = usize::from(op.at)..usize::from(op.at) + usize::from(op.len);
            if op.write {
                let data: Vec<u8> = range.clone().map(|i| (i * 13 + n * 101) as u8).collect();
                model[range].copy_from_slice(&data);
                pair.submit(op.at, Some(&data), DataIn::None);
            } else {
                pair.submit(op.at, None, DataIn::Into(Buf::recycled(usize::from(op.len))));
            }
            while pair.turn(cuts.next().expect("endless")) {}
            prop_assert_eq!(&pair.closed, &[]);
            prop_assert_eq!(pair.completed.len(), n + 1);
            let done = pair.completed.last().expect("one is there");
            prop_assert_eq!((done.status, done.residual), (0, Residual::None));
            if let Some(read) = &done.data_in {
                prop_assert!(read[..] == model[usize::from(op.at)..][..usize::from(op.len)]);
            }
        }
        prop_assert!(pair.disk == model);
        prop_assert_eq!(pair.target.holds(), (0, 0));
    }

    /// Many commands at once, to different addresses.
    #[test]
    fn commands_that_run_together_do_not_mix(
        sizes in prop::collection::vec(1usize..4000, 16),
        cuts in prop::collection::vec(1usize..5000, 1..20),
        outstanding in 1u16..4,
        initial_r2t in any::<bool>(),
    ) {
        let agreed = Negotiated { outstanding_r2t_max: outstanding, initial_r2t, ..negotiated() };
        let mut pair = both_sides(agreed);
        let mut cuts = cuts.into_iter().cycle();
        for (n, &size) in sizes.iter().enumerate() {
            pair.submit(n as u16 * 4096, Some(&vec![n as u8 + 1; size]), DataIn::None);
        }
        while pair.turn(cuts.next().expect("endless")) {}
        prop_assert_eq!(pair.completed.len(), sizes.len());
        for (n, &size) in sizes.iter().enumerate() {
            let mut expected = vec![n as u8 + 1; size];
            expected.resize(4096, 0);
            prop_assert!(pair.disk[n * 4096..(n + 1) * 4096] == expected);
        }
    }
}
