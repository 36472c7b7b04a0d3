use crate::rig::*;
use block::IoErrorKind;

const STOP: [u8; 6] = [0x1B, 0, 0, 0, 0, 0];
const START: [u8; 6] = [0x1B, 1, 0, 0, 1, 0];

#[test]
fn stopped_unit_serves_no_medium_until_it_is_started() {
    let unit = unit();
    tell(&unit, &STOP, &[]);
    assert_eq!(ops(&unit), [Op::Flush]);
    for operation in crate::operation::OPERATIONS.iter().filter(|operation| operation.needs_medium()) {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (operation.code(), operation.action().unwrap_or(0));
        if operation.is_known(unit.shape().optional_features()) {
            assert_eq!(refused(&unit, &cdb, &[0; BLOCK]), (2, 0x04, 2), "{}", operation.name);
        }
    }
    assert_eq!(ask(&unit, &[0x12, 0, 0, 0, 96, 0]).len(), 96);
    assert_eq!(ask(&unit, &[0x03, 0, 0, 0, 18, 0])[2], 2);
    assert_eq!(ask(&unit, &cdb10(0x25, 0, 0, 0)).len(), 8);
    tell(&unit, &START, &[]);
    tell(&unit, &[0; 6], &[]);
    assert_eq!(ops(&unit), []);
}

#[test]
fn stop_that_cannot_flush_does_not_stop() {
    let unit = unit();
    unit.device().failure.set(Some(IoErrorKind::Gone));
    assert_eq!(refused(&unit, &STOP, &[]), (4, 0x44, 0));
    tell(&unit, &[0; 6], &[]);
    // NO_FLUSH suppresses the flush.
    tell(&unit, &[0x1B, 0, 0, 0, 4, 0], &[]);
    assert_eq!(refused(&unit, &[0; 6], &[]), (2, 0x04, 2));
}

#[test]
fn start_stop_refuses_to_eject_and_has_no_power_conditions() {
    let unit = unit();
    assert_eq!(pointed(&unit, &[0x1B, 0, 0, 0, 2, 0], &[]), (4, Some(1)));
    assert_eq!(pointed(&unit, &[0x1B, 0, 0, 0, 3, 0], &[]), (4, Some(1)));
    for condition in 1..16 {
        assert_eq!(refused(&unit, &[0x1B, 0, 0, 0, condition << 4, 0], &[]), (5, 0x24, 0));
    }
    tell(&unit, &[0; 6], &[]);
}

#[test]
fn synchronize_cache_flushes_and_tells_of_a_device_that_cannot() {
    let unit = unit();
    for cdb in [&cdb10(0x35, 0, 0, 0)[..], &cdb10(0x35, 0x06, 4, 9), &cdb16(0x91, 0x02, BLOCKS, 0)] {
        tell(&unit, cdb, &[]);
        assert_eq!(ops(&unit), [Op::Flush]);
    }
    unit.device().failure.set(Some(IoErrorKind::Gone));
    assert_eq!(refused(&unit, &cdb10(0x35, 0x02, 0, 0), &[]), (4, 0x44, 0));
}

#[test]
fn pre_fetch_is_good_for_blocks_that_are_there() {
    let unit = unit();
    for cdb in [&cdb10(0x34, 0, 0, 256)[..], &cdb10(0x34, 0x02, 0, 0), &cdb16(0x90, 0x02, BLOCKS - 1, 1)] {
        let mut grouped = cdb.to_vec();
        tell(&unit, &grouped, &[]);
        let group = if cdb.len() == 10 { 6 } else { 14 };
        grouped[group] = 3;
        tell(&unit, &grouped, &[]);
    }
    assert_eq!(ops(&unit), []);
}

#[test]
fn request_sense_has_nothing_to_say_in_both_formats() {
    let unit = unit();
    assert_eq!(ask(&unit, &[0x03, 0, 0, 0, 252, 0]), [0x70, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask(&unit, &[0x03, 1, 0, 0, 252, 0]), [0x72, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask(&unit, &[0x03, 0, 0, 0, 5, 0]).len(), 5);
    assert_eq!(ask(&unit, &[0x03, 0, 0, 0, 0, 0]).len(), 0);
}

#[test]
fn medium_removal_cannot_be_prevented_where_nothing_is_removable() {
    assert_eq!(refused(&unit(), &[0x1E, 0, 0, 0, 1, 0], &[]), (5, 0x20, 0));
}
