//! RESERVE and RELEASE of SPC-2, alone and together with persistent reservations.

use super::*;
use crate::TaskManagement;

const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE_6: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const RESERVE_10: [u8; 10] = [0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const RELEASE_10: [u8; 10] = [0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const MODE_SENSE: [u8; 6] = [0x1A, 0, 0x3F, 0, 255, 0];

#[test]
fn reserve_keeps_everybody_else_out_until_its_holder_releases_it() {
    for (reserve, release) in [(&RESERVE_6[..], &RELEASE_10[..]), (&RESERVE_10, &RELEASE_6)] {
        let (unit, _) = shared_unit();
        done(&run(&unit, HOST, reserve, &[]));
        done(&run(&unit, HOST, reserve, &[]));
        conflicts(&run(&unit, OTHER, reserve, &[]));
        done(&run(&unit, OTHER, release, &[]));
        done(&run(&unit, HOST, &MODE_SENSE, &[]));
        conflicts(&run(&unit, OTHER, &MODE_SENSE, &[]));
        conflicts(&run(&unit, OTHER, &[0; 6], &[]));
        assert_eq!(unit.reservations().reserved_by, Some((initiator(1), port(1).target_name.clone())));
        done(&run(&unit, HOST, release, &[]));
        done(&run(&unit, OTHER, reserve, &[]));
        conflicts(&run(&unit, HOST, &MODE_SENSE, &[]));
    }
}

#[test]
fn reserve_ends_with_its_session_and_with_a_reset_and_is_not_anothers_to_end() {
    let (unit, _) = shared_unit();
    done(&run(&unit, HOST, &RESERVE_6, &[]));
    unit.detach(THIRD);
    conflicts(&run(&unit, OTHER, &RESERVE_6, &[]));
    unit.detach(HOST);
    done(&run(&unit, OTHER, &RESERVE_6, &[]));
    for function in [TaskManagement::LogicalUnitReset, TaskManagement::TargetReset] {
        log_in(&unit, HOST);
        now(unit.manage(HOST, function));
        assert_eq!((told(&unit, HOST), told(&unit, OTHER)), (vec![(0x29, 3)], vec![(0x29, 3)]));
        done(&run(&unit, HOST, &RESERVE_6, &[]));
        unit.detach(HOST);
    }
    done(&run(&unit, OTHER, &RESERVE_6, &[]));
    now(unit.manage(OTHER, TaskManagement::ClearTaskSet));
    log_in_again_and_conflict(&unit);
}

/// 29/00 ranks before the conflict.
fn log_in_again_and_conflict(unit: &LogicalUnit<Bench>) {
    unit.attach(HOST, initiator(1), port(1));
    assert_eq!(told(unit, HOST), [(0x29, 0)]);
    conflicts(&run(unit, HOST, &[0; 6], &[]));
}

#[test]
fn persistent_reservations_and_reserve_exclude_each_other() {
    let (unit, _) = shared_unit();
    done(&run(&unit, HOST, &RESERVE_6, &[]));
    for nexus in [HOST, OTHER] {
        conflicts(&run(&unit, nexus, &[0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[]));
        conflicts(&out(&unit, nexus, REGISTER, 0, (0, 1)));
    }
    done(&run(&unit, HOST, &RELEASE_6, &[]));
    register(&unit, HOST, 1);
    for nexus in [HOST, OTHER] {
        for cdb in [&RESERVE_6[..], &RESERVE_10, &RELEASE_6, &RELEASE_10] {
            conflicts(&run(&unit, nexus, cdb, &[]));
        }
    }
}

#[test]
fn reserve_and_release_of_who_may_write_under_a_persistent_reservation_are_good_and_do_nothing() {
    for kind in ReservationType::ALL {
        for cdb in [&RESERVE_6[..], &RESERVE_10, &RELEASE_6, &RELEASE_10] {
            let (unit, _) = shared_unit();
            register(&unit, HOST, 1);
            register(&unit, OTHER, 2);
            done(&out(&unit, HOST, RESERVE, kind.code(), (1, 0)));
            let before = held(&unit);
            done(&run(&unit, HOST, cdb, &[]));
            let registrant = run(&unit, OTHER, cdb, &[]);
            if kind.code() >= 5 {
                done(&registrant)
            } else {
                conflicts(&registrant)
            }
            conflicts(&run(&unit, THIRD, cdb, &[]));
            assert_eq!((held(&unit), unit.reservations().reserved_by), (before, None), "{kind:?}");
        }
    }
}

#[test]
fn reserve_for_a_third_party_or_an_extent_is_refused_with_a_pointer() {
    let unit = unit();
    for code in [0x16, 0x17, 0x56, 0x57] {
        let mut cdb = [code, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(pointed(&unit, &cdb, &[]), (1, Some(4)));
        cdb[1] = 0x01;
        assert_eq!(pointed(&unit, &cdb, &[]), (1, Some(0)));
    }
    for code in [0x56, 0x57] {
        assert_eq!(pointed(&unit, &[code, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]), (1, Some(1)), "LONGID");
    }
}
