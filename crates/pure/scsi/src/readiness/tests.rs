use crate::rig::*;
use crate::{Absence, LogicalUnit, NexusId, Options, TaskManagement};

const EJECT: [u8; 6] = [0x1B, 0, 0, 0, 2, 0];
const LOAD: [u8; 6] = [0x1B, 0, 0, 0, 3, 0];
const PREVENT: [u8; 6] = [0x1E, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [0x1E, 0, 0, 0, 0, 0];
const READY: [u8; 6] = [0; 6];
const NO_MEDIUM: (u8, u8, u8) = (2, 0x3A, 0);
const PREVENTED: (u8, u8, u8) = (5, 0x53, 2);

fn removable() -> LogicalUnit<Bench> {
    unit_with(Options { removable: true, ..Options::default() })
}

fn refused_as(unit: &LogicalUnit<Bench>, nexus: NexusId, cdb: &[u8]) -> (u8, u8, u8) {
    sense(&run(unit, nexus, cdb, &[]))
}

fn tell_as(unit: &LogicalUnit<Bench>, nexus: NexusId, cdb: &[u8]) {
    good(run(unit, nexus, cdb, &[]));
}

#[test]
fn removable_medium_is_said_to_be_so() {
    let unit = removable();
    assert_eq!(ask(&unit, &[0x12, 0, 0, 0, 96, 0])[1], 0x80);
    unit.set_removable(false);
    assert_eq!(ask(&unit, &[0x12, 0, 0, 0, 96, 0])[1], 0);
    assert_eq!(refused(&unit, &READY, &[]), (6, 0x3F, 3));
    assert_eq!(refused(&unit, &PREVENT, &[]), (5, 0x20, 0), "there is nothing to keep");
}

#[test]
fn ejected_medium_serves_nothing_until_it_is_loaded() {
    let unit = removable();
    tell(&unit, &EJECT, &[]);
    assert_eq!(ops(&unit), [Op::Flush], "what was written is on the medium");
    for operation in &crate::operation::OPERATIONS {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (operation.code(), operation.action().unwrap_or(0));
        if operation.is_known(unit.shape().optional_features()) && (operation.needs_medium() || operation.tells_size())
        {
            assert_eq!(refused(&unit, &cdb, &[0; BLOCK]), NO_MEDIUM, "{}", operation.name);
        }
    }
    assert_eq!(ask(&unit, &[0x12, 0, 0, 0, 96, 0]).len(), 96);
    assert_eq!(ask(&unit, &[0x03, 0, 0, 0, 18, 0])[12], 0x3A);
    tell(&unit, &EJECT, &[]);
    tell(&unit, &LOAD, &[]);
    tell(&unit, &READY, &[]);
    assert_eq!(refused_as(&unit, OTHER, &READY), (6, 0x28, 0), "NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED");
    tell(&unit, &LOAD, &[]);
    tell_as(&unit, OTHER, &READY);
}

#[test]
fn medium_that_anybody_keeps_is_neither_ejected_nor_loaded() {
    let unit = removable();
    tell_as(&unit, OTHER, &PREVENT);
    assert_eq!(refused(&unit, &EJECT, &[]), PREVENTED);
    tell(&unit, &ALLOW, &[]);
    assert_eq!(refused(&unit, &EJECT, &[]), PREVENTED, "each answers for itself");
    tell_as(&unit, OTHER, &ALLOW);
    tell(&unit, &EJECT, &[]);
    tell(&unit, &PREVENT, &[]);
    assert_eq!(refused(&unit, &LOAD, &[]), PREVENTED);
}

#[test]
fn nexus_that_is_lost_and_reset_keep_the_medium_no_more() {
    let unit = removable();
    tell_as(&unit, OTHER, &PREVENT);
    unit.detach(OTHER);
    tell(&unit, &EJECT, &[]);
    tell(&unit, &LOAD, &[]);
    tell(&unit, &PREVENT, &[]);
    now(unit.manage(HOST, TaskManagement::LogicalUnitReset));
    assert_eq!(refused(&unit, &READY, &[]), (6, 0x29, 3));
    tell(&unit, &EJECT, &[]);
    assert_eq!(refused(&unit, &READY, &[]), NO_MEDIUM);
}

#[test]
fn removable_medium_is_not_stopped_and_knows_no_power_conditions() {
    let unit = removable();
    for start in [0, 1] {
        tell(&unit, &[0x1B, 1, 0, 0, start, 0], &[]);
        tell(&unit, &READY, &[]);
    }
    for condition in 1..16 {
        tell(&unit, &[0x1B, 1, 0, 0, condition << 4 | 2, 0], &[]);
        tell(&unit, &READY, &[]);
    }
}

#[test]
fn medium_is_there_again_when_it_cannot_be_ejected_any_more() {
    let unit = removable();
    tell(&unit, &PREVENT, &[]);
    unit.set_removable(false);
    assert_eq!(refused(&unit, &READY, &[]), (6, 0x3F, 3));
    tell(&unit, &READY, &[]);
    unit.set_removable(true);
    assert_eq!(refused(&unit, &READY, &[]), (6, 0x3F, 3));
    tell(&unit, &EJECT, &[]);
}

#[test]
fn unit_without_its_device_says_what_is_known_of_it_and_serves_nothing() {
    let unit = unit_with(Options::default());
    let told = |unit: &LogicalUnit<Bench>| {
        let pages = [0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2].map(|page| ask(unit, &[0x12, 1, page, 0, 255, 0]));
        let capacity = ask(unit, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        (pages, capacity, ask(unit, &[0x1A, 0, 0x3F, 0, 255, 0]), ask(unit, &[0x12, 0, 0, 0, 96, 0]))
    };
    let before = told(&unit);
    for (absence, qualifier) in [(Absence::BecomingReady, 1), (Absence::NeedsOperator, 3)] {
        unit.set_absence(Some(absence));
        assert_eq!(told(&unit), before);
        for operation in &crate::operation::OPERATIONS {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (operation.code(), operation.action().unwrap_or(0));
            if operation.is_known(unit.shape().optional_features()) && !operation.is_served_without_device() {
                assert_eq!(refused(&unit, &cdb, &[0; BLOCK]), (2, 4, qualifier), "{}", operation.name);
            }
        }
        assert_eq!(ask(&unit, &[0x03, 0, 0, 0, 18, 0])[12..14], [4, qualifier], "REQUEST SENSE says so, too");
        assert!(ops(&unit).is_empty(), "nothing reaches the device");
    }
    unit.set_absence(None);
    tell(&unit, &READY, &[]);
}
