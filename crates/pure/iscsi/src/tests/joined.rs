//! Several connections of one session on the initiator side.

use super::rig::{LUN, Rig, config, initiator_config, negotiated, pdus};
use crate::initiator::{Command, Connection, DataIn, Event};
use crate::pdu::{Cid, CmdSn, StatSn, TaskAttribute, TaskFunction};
use crate::target::Response;
use crate::{Negotiated, SendSlices, TaskId};
use shard::Time;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Two connections of an initiator, and the target session with a slot for each.
struct Both {
    ours: [Connection; 2],
    rig: Rig,
}

fn both() -> Both {
    let agreed = Negotiated { connections_max: 4, ..negotiated() };
    let mut rig = Rig::with(config(), agreed.clone());
    assert_eq!(rig.join(2), Some(1));
    let ours = Rc::new(initiator_config());
    let leading = Connection::in_full_feature(ours, agreed.clone(), CmdSn(4), StatSn(1), Time(0));
    let other = leading.joined(Cid(2), agreed, Time(0));
    Both { ours: [leading, other], rig }
}

fn read(name: u8) -> Command {
    let (cdb, data_in) = (SmallVec::from([name; 16]), DataIn::Discard(8));
    Command { lun: LUN, cdb, attribute: TaskAttribute::Simple, data_out: None, data_in }
}

impl Both {
    fn read(&mut self, on: usize, name: u8) -> TaskId {
        self.ours[on].submit(read(name)).expect("full feature phase, and room")
    }

    /// Delivers the output of connection `on`.
    fn send(&mut self, on: usize) {
        let mut slices = SendSlices::new();
        self.ours[on].gather(&mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        drop(slices);
        self.ours[on].handle_transmitted(bytes.len());
        self.rig.on(on).receive(&bytes);
    }

    /// Answers every command of the target, and delivers the responses.
    fn answer(&mut self) -> Vec<u8> {
        let mut names = Vec::new();
        for event in self.rig.events() {
            let crate::target::Event::Command(command) = event else { panic!("{event:?}") };
            names.push(command.cdb[0]);
            self.rig.target.respond(command.task, Response::default());
        }
        for (on, ours) in self.ours.iter_mut().enumerate() {
            let mut slices = SendSlices::new();
            self.rig.target.gather(on, &mut slices);
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            drop(slices);
            self.rig.target.handle_transmitted(on, bytes.len());
            ours.receive_into()[..bytes.len()].copy_from_slice(&bytes);
            ours.handle_received(bytes.len(), Time(0));
        }
        names
    }

    fn ended(&mut self, on: usize) -> Vec<TaskId> {
        let ended = |event| match event {
            Event::Completed(done) => done.task,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| self.ours[on].poll_event()).map(ended).collect()
    }
}

#[test]
fn commands_of_both_connections_have_one_order_and_end_where_they_began() {
    let mut both = both();
    let tasks = [both.read(0, 1), both.read(1, 2), both.read(0, 3), both.read(1, 4)];
    // The later PDU arrives first.
    both.send(1);
    assert!(both.rig.events().is_empty(), "command 1 has not come");
    both.send(0);
    assert_eq!(both.answer(), [1, 2, 3, 4]);
    assert_eq!((both.ended(0), both.ended(1)), (vec![tasks[0], tasks[2]], vec![tasks[1], tasks[3]]));
    // Tags are unique in a session: the target would have refused the second.
    assert_eq!((tasks[0], tasks[2]), (tasks[1], tasks[3]), "both have the same places, and other tags");
    both.rig.assert_idle();
}

#[test]
fn window_that_one_connection_hears_of_is_the_others_too() {
    let mut both = both();
    for name in 1..=4 {
        both.read(0, name);
    }
    let late = both.read(1, 5);
    assert!(both.ours[1].is_held() && !both.ours[1].wants_to_send(), "the window is of four commands");
    both.send(0);
    assert_eq!(both.answer(), [1, 2, 3, 4]);
    assert!(!both.ours[1].is_held() && !both.ours[1].wants_to_send(), "nobody has told it yet");
    both.ours[1].handle_window_moved();
    both.send(1);
    assert_eq!((both.answer(), both.ended(1)), (vec![5], vec![late]));
    both.rig.assert_idle();
}

#[test]
fn connection_joins_the_session_of_the_first_at_its_present_number() {
    let mut both = both();
    both.read(0, 1);
    let third = both.ours[0].join(Cid(3), [0; 32], Time(0)).expect("full feature phase");
    let mut slices = SendSlices::new();
    third.gather(&mut slices);
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
    let crate::pdu::InitiatorPdu::Login(login) =
        crate::pdu::InitiatorPdu::parse(bytes.first_chunk().expect("a header")).expect("a request of ours")
    else {
        panic!("it logs in")
    };
    assert_eq!((login.tsih.0, login.cid.0, login.cmd_sn), (1, 3, CmdSn(2)));
    both.ours[0].close();
    assert!(both.ours[0].join(Cid(4), [0; 32], Time(0)).is_none(), "there is no session to join");
}

#[test]
fn requests_other_than_commands_never_have_a_tag_of_another_connection() {
    let ours = Rc::new(crate::initiator::Config { tasks_max: 1, ..initiator_config() });
    let mut leading = Connection::in_full_feature(ours, negotiated(), CmdSn(4), StatSn(1), Time(0));
    let mut other = leading.joined(Cid(1), negotiated(), Time(0));
    leading.submit(read(1)).expect("there is a place for a command");
    leading.submit(read(2)).expect_err("and for no other one");
    let reset = |connection: &mut Connection| connection.manage(TaskFunction::LogicalUnitReset, LUN, None).is_some();
    let sent = (0..100).filter(|_| reset(&mut leading)).count();
    assert_eq!(sent, 64, "beyond its tags a connection sends nothing");
    assert!(leading.ping(&[]).is_none() && leading.logout().is_none());
    leading.handle_timeout(Time(0) + Duration::from_secs(15));
    other.submit(read(3)).expect("its tags are its own");
    let mut tags = Vec::new();
    for connection in [&leading, &other] {
        let mut slices = SendSlices::new();
        connection.gather(&mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        tags.extend(pdus(&bytes).iter().map(|(header, _)| header[16..20].to_vec()));
    }
    assert_eq!(tags.len(), 66);
    assert_eq!(tags.iter().collect::<BTreeSet<_>>().len(), 66, "tags are unique within a session");
}
