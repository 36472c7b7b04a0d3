use super::*;
use crate::operation::OPERATIONS;
use crate::rig::*;
use crate::{LogicalUnit, Options, TargetPort};
use crate::{Outcome, StateStore, Status, StoreError, StoreFuture};
use futures_util::FutureExt;
use std::rc::Rc;

const STATES: [AccessState; 6] = [ActiveOptimized, ActiveNonOptimized, Standby, Unavailable, Offline, Transitioning];

/// State store that knows the ports of groups 1 and 2 of the target, and one of another target.
struct Ports;

impl StateStore for Ports {
    fn is_able(&self) -> bool {
        false
    }

    fn store(&self, _: Vec<u8>) -> StoreFuture<'_> {
        Box::pin(std::future::ready(Err(StoreError::Gone)))
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        let elsewhere = TargetPort { target_name: "iqn.2026-01.example:other".into(), ..(*port(9)).clone() };
        vec![(*port(2)).clone(), (*port(1)).clone(), elsewhere]
    }
}

/// Creates a unit that HOST reaches through group 1 and OTHER through group 2.
fn two_paths() -> LogicalUnit<Bench> {
    unit().with_state_store(Rc::new(Ports))
}

fn wants(state: AccessState) -> PortGroup {
    PortGroup { state, ..PortGroup::default() }
}

fn implicit(unit: &LogicalUnit<Bench>, groups: &[PortGroup]) {
    now(unit.set_port_groups(groups));
}

/// Issues SET TARGET PORT GROUPS with these states of groups.
fn explicit(unit: &LogicalUnit<Bench>, nexus: NexusId, list: &[(u8, u16)]) -> Outcome {
    let mut data = vec![0; 4];
    for &(state, group) in list {
        data.extend([state, 0]);
        data.extend(group.to_be_bytes());
    }
    run(unit, nexus, &set_cdb(data.len()), &data)
}

fn set_cdb(bytes: usize) -> [u8; 12] {
    let mut cdb = [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[6..10].copy_from_slice(&(bytes as u32).to_be_bytes());
    cdb
}

fn report_cdb(format: u8, allocation: u32) -> [u8; 12] {
    let mut cdb = [0xA3, format << 5 | 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

fn report(unit: &LogicalUnit<Bench>) -> Vec<u8> {
    ask(unit, &report_cdb(0, 1024))
}

/// Returns PREF with the state, and the status code, of each group.
fn states(unit: &LogicalUnit<Bench>) -> Vec<(u8, u8)> {
    report(unit)[4..].chunks(12).map(|group| (group[0], group[5])).collect()
}

fn told(unit: &LogicalUnit<Bench>, nexus: NexusId) -> Outcome {
    run(unit, nexus, &report_cdb(0, 4), &[])
}

#[test]
fn target_port_groups_are_the_portal_groups_of_the_target_and_optimized_at_first() {
    let unit = two_paths();
    let expected = [
        [0, 0, 0, 24].as_slice(),
        &[0x00, 0xCF, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1],
        &[0x00, 0xCF, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2],
    ]
    .concat();
    assert_eq!(report(&unit), expected);
    let extended = ask(&unit, &report_cdb(1, 1024));
    assert_eq!(extended[..8], [0, 0, 0, 28, 0x10, 0, 0, 0]);
    assert_eq!(extended[8..], expected[4..]);
    for allocation in 0..expected.len() {
        assert_eq!(ask(&unit, &report_cdb(0, allocation as u32)), expected[..allocation]);
    }
    assert_eq!(pointed(&unit, &report_cdb(2, 64), &[]), (1, Some(7)));
}

#[test]
fn inquiry_and_designators_say_that_there_are_target_port_groups() {
    let unit = two_paths();
    let standard = ask(&unit, &[0x12, 0, 0, 0, 96, 0]);
    assert_eq!((standard[0], standard[5] & 0x30), (0, 0x30));
    for (nexus, group) in [(HOST, 1), (OTHER, 2)] {
        let page = good(run(&unit, nexus, &[0x12, 1, 0x83, 4, 0, 0], &[]));
        let designator = [0x51, 0x95, 0, 4, 0, 0, 0, group];
        assert!(page.windows(8).any(|window| window == designator), "{page:x?}");
    }
}

/// Independent list by name of the operations that SPC-4 permits in standby and in unavailable state.
fn is_allowed(name: &str, state: AccessState) -> bool {
    let everywhere = ["INQUIRY", "REPORT LUNS", "REQUEST SENSE", "REPORT TARGET PORT GROUPS", "SET TARGET PORT GROUPS"]
        .contains(&name);
    let parameters = ["LOG SENSE", "MODE SE", "PERSISTENT RESERVE ", "READ CAPACITY", "REPORT SUPPORTED "];
    match state {
        ActiveOptimized | ActiveNonOptimized => true,
        Standby => everywhere || parameters.iter().any(|start| name.starts_with(start)),
        Unavailable | Offline | Transitioning => everywhere,
    }
}

#[test]
fn every_operation_is_served_in_the_states_that_allow_it() {
    let qualifier = [(Standby, 0x0B), (Unavailable, 0x0C), (Offline, 0x12), (Transitioning, 0x0A)];
    for state in STATES {
        for row in &OPERATIONS {
            let bench = Bench { thin: Some(Thin::new(8, 32)), ..Bench::new(BLOCK as u32, BLOCKS) };
            let unit = unit_over(bench, Options { removable: true, ..Options::default() });
            let unit = unit.with_state_store(Rc::new(Ports));
            unit.port_groups().change(1, |group| group.state = state);
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (row.code(), row.action().unwrap_or(0));
            let outcome = run(&unit, HOST, &cdb, &[]);
            let sense = outcome.sense.map(|sense| (sense.key as u8, sense.code.0, sense.code.1));
            let refused = qualifier.iter().find(|(of, _)| *of == state).map(|&(_, code)| (2, 4, code));
            assert_eq!(
                sense == refused && refused.is_some(),
                !is_allowed(row.name, state),
                "{} in {state:?}",
                row.name
            );
            let outcome = run(&unit, OTHER, &cdb, &[]);
            assert_ne!(outcome.sense.map(|sense| sense.key), Some(SenseKey::NotReady), "the other group is active");
        }
    }
}

#[test]
fn sense_and_qualifier_say_where_the_unit_is_not_served() {
    let unit = two_paths();
    for (state, qualifier, first) in [(Standby, 0x0B, 0x00), (Unavailable, 0x0C, 0x20), (Offline, 0x12, 0x20)] {
        unit.port_groups().change(1, |group| group.state = state);
        let data = ask(&unit, &[3, 0, 0, 0, 18, 0]);
        assert_eq!((data[2], data[12], data[13]), (2, 4, qualifier));
        assert_eq!(ask(&unit, &[0x12, 0, 0, 0, 96, 0])[0], first, "PERIPHERAL QUALIFIER");
        assert_eq!(ask(&unit, &[0x12, 1, 0x83, 0, 96, 0])[0], first);
        assert_eq!(good(run(&unit, OTHER, &[0x12, 0, 0, 0, 96, 0], &[]))[0], 0);
    }
}

#[test]
fn state_that_the_owner_changes_is_told_to_every_nexus_once() {
    let unit = two_paths();
    implicit(&unit, &[wants(Standby)]);
    for nexus in [HOST, OTHER] {
        assert_eq!(sense(&told(&unit, nexus)), (6, 0x2A, 0x06));
        assert_eq!(told(&unit, nexus).status, Status::Good);
    }
    assert_eq!(states(&unit), [(0x02, 2), (0x00, 0)]);
    implicit(&unit, &[wants(Standby)]);
    assert_eq!(told(&unit, HOST).status, Status::Good, "nothing has changed");
    implicit(&unit, &[PortGroup { preferred: true, ..wants(Standby) }]);
    assert_eq!(sense(&told(&unit, OTHER)), (6, 0x2A, 0x06));
    assert_eq!(sense(&told(&unit, HOST)), (6, 0x2A, 0x06));
    assert_eq!(states(&unit), [(0x82, 2), (0x00, 0)]);
    implicit(&unit, &[]);
    assert_eq!(sense(&told(&unit, HOST)), (6, 0x2A, 0x06));
    assert_eq!(states(&unit), [(0x00, 2), (0x00, 0)], "a group that is not named is as all are at first");
    assert_eq!(refused(&unit, &cdb10(0x28, 0, BLOCKS as u32, 1), &[]), (5, 0x21, 0), "blocks are served again");
}

#[test]
fn state_that_a_nexus_sets_is_told_to_the_others_and_holds_until_the_owner_wants_another() {
    let unit = two_paths();
    assert_eq!(explicit(&unit, HOST, &[(0x3, 1), (0x1, 2)]).status, Status::Good);
    assert_eq!(sense(&told(&unit, OTHER)), (6, 0x2A, 0x06));
    assert_eq!(states(&unit), [(0x03, 1), (0x01, 1)], "the asker is not told");
    implicit(&unit, &[]);
    assert_eq!(states(&unit), [(0x03, 1), (0x01, 1)], "the owner wants what it wanted before");
    assert_eq!(explicit(&unit, HOST, &[(0x0, 1)]).status, Status::Good, "the way back is open everywhere");
    assert_eq!(sense(&told(&unit, OTHER)), (6, 0x2A, 0x06));
    implicit(&unit, &[PortGroup { id: 2, ..wants(Standby) }]);
    assert_eq!(sense(&told(&unit, HOST)), (6, 0x2A, 0x06));
    assert_eq!(states(&unit), [(0x00, 1), (0x02, 2)]);
    assert_eq!(explicit(&unit, HOST, &[(0xE, 2)]).status, Status::Good);
    assert_eq!(states(&unit)[1], (0x0E, 1));
    assert_eq!(explicit(&unit, HOST, &[]).status, Status::Good, "a list without groups changes nothing");
}

#[test]
fn list_of_states_is_taken_whole_or_refused_with_a_pointer() {
    let unit = two_paths();
    let refused = |list: &[(u8, u16)]| {
        let sense = explicit(&unit, HOST, list).sense.expect("it is refused");
        (sense.code, sense.field.map(|field| (field.byte, field.bit)))
    };
    let wrong = |byte, bit| (AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST, Some((byte, bit)));
    assert_eq!(refused(&[(0x2, 2), (0xF, 1)]), wrong(8, Some(3)), "nobody asks for a transition");
    assert_eq!(refused(&[(0x2, 2), (0x4, 1)]), wrong(8, Some(3)), "states that depend on blocks");
    assert_eq!(refused(&[(0x2, 2), (0x2, 9)]), wrong(10, None), "a group of another target");
    assert_eq!(refused(&[(0x2, 2), (0x0, 2)]), wrong(10, None), "two states for one group");
    assert_eq!(states(&unit), [(0x00, 0), (0x00, 0)]);
    for bytes in [1, 3, 6, 4100, u32::MAX as usize] {
        let data = run(&unit, HOST, &set_cdb(bytes), &[]);
        assert_eq!(sense(&data), (5, 0x1A, 0), "{bytes}");
    }
    assert!(good(run(&unit, HOST, &set_cdb(0), &[])).is_empty());
    unit.set_read_only(HOST, true);
    assert_eq!(sense(&explicit(&unit, HOST, &[(0x2, 2)])), (7, 0x27, 0));
}

#[test]
fn group_that_loses_access_is_in_transition_until_what_it_has_begun_has_ended() {
    let unit = two_paths();
    unit.device().permits.set(0);
    let mut writing = Box::pin(unit.execute(HOST, command(&cdb10(0x2A, 0, 0, 1), &[7; BLOCK])));
    assert!((&mut writing).now_or_never().is_none());
    let wanted = [wants(Standby)];
    let mut changing = Box::pin(unit.set_port_groups(&wanted));
    assert!((&mut changing).now_or_never().is_none());
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 0, 1), &[8; BLOCK]), (2, 4, 0x0A));
    assert_eq!(states(&unit), [(0x0F, 0), (0x00, 0)]);
    unit.device().permits.set(usize::MAX);
    assert!((&mut changing).now_or_never().is_none(), "the write has not ended");
    assert_eq!(writing.now_or_never().map(|outcome| outcome.status), Some(Status::Good));
    assert!(changing.now_or_never().is_some());
    assert_eq!(sense(&told(&unit, HOST)), (6, 0x2A, 0x06));
    assert_eq!(states(&unit), [(0x02, 2), (0x00, 0)]);
    assert_eq!(blocks(&unit, 0, 1), [7; BLOCK]);
}

#[test]
fn command_that_had_to_wait_is_held_against_the_state_that_is_there_when_it_begins() {
    let unit = two_paths();
    unit.device().permits.set(0);
    let compare = |fill: u8| command(&cdb_of_one(0x89), &[[0; BLOCK], [fill; BLOCK]].concat());
    let mut first = Box::pin(unit.execute(OTHER, compare(1)));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(unit.execute(HOST, compare(2)));
    assert!((&mut second).now_or_never().is_none());
    implicit(&unit, &[wants(Unavailable)]);
    unit.device().permits.set(usize::MAX);
    assert_eq!(first.now_or_never().map(|outcome| outcome.status), Some(Status::Good));
    assert_eq!(sense(&second.now_or_never().expect("its turn has come")), (2, 4, 0x0C));
    assert_eq!(blocks(&unit, 0, 1), [1; BLOCK]);
}

fn cdb_of_one(code: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (code, 1);
    cdb
}
