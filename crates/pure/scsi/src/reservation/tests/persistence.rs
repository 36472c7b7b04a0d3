//! Reservations across power loss, and their persistence before any nexus observes a change.

use super::*;
use futures_util::FutureExt;
use std::pin::pin;

/// Returns the unit after power loss: a new one, restored from the stored state.
pub(super) fn restarted(shelf: &Rc<MemoryStore>) -> LogicalUnit<Bench> {
    let unit = LogicalUnit::new(Bench::new(BLOCK as u32, BLOCKS), identity(), Options::default());
    let unit = unit.with_state_store(shelf.clone());
    unit.restore(crate::PersistentState::parse(&shelf.kept.borrow()).expect("it was kept"));
    [HOST, OTHER, THIRD].into_iter().for_each(|nexus| log_in(&unit, nexus));
    unit
}

#[test]
fn reservation_of_every_type_survives_power_loss_where_aptpl_was_set_last() {
    for kind in ReservationType::ALL {
        let (unit, shelf) = shared_unit();
        done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 1, APTPL, &[])));
        done(&out_with(&unit, OTHER, REGISTER, 0, &list_of(0, 2, APTPL, &[])));
        done(&out(&unit, OTHER, RESERVE, kind.code(), (2, 0)));
        let again = restarted(&shelf);
        let before = unit.reservations();
        assert_eq!(again.reservations(), ReservationStatus { generation: 0, ..before }, "PRgeneration begins anew");
        conflicts(&run(&again, THIRD, &cdb10(0x2A, 0, 0, 1), &[0; BLOCK]));
        done(&run(&again, OTHER, &cdb10(0x2A, 0, 0, 1), &[0; BLOCK]));
        // The last APTPL bit is zero, so nothing survives.
        done(&out(&again, THIRD, REGISTER, 0, (0, 3)));
        let once_more = restarted(&shelf);
        assert_eq!((held(&once_more), keys(&once_more).1), (None, vec![]));
    }
}

#[test]
fn status_comes_after_what_is_to_survive_does_and_nothing_holds_before() {
    let (unit, shelf) = shared_unit();
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 1, APTPL, &[])));
    shelf.waits.set(true);
    let list = list_of(1, 0, 0, &[]);
    let mut reserve = pin!(unit.execute(HOST, command(&cdb_of(RESERVE, 3, list.len()), &list)));
    assert!(reserve.as_mut().now_or_never().is_none());
    assert_eq!(held(&unit), None);
    done(&run(&unit, OTHER, &cdb10(0x28, 0, 0, 1), &[]));
    // Another change waits for the serialization slot.
    let list = list_of(0, 2, 0, &[]);
    let mut second = pin!(unit.execute(OTHER, command(&cdb_of(REGISTER, 0, list.len()), &list)));
    assert!(second.as_mut().now_or_never().is_none());
    let mut clear = pin!(unit.clear_reservations());
    assert!(clear.as_mut().now_or_never().is_none());
    shelf.waits.set(false);
    done(&reserve.now_or_never().expect("it is kept"));
    assert_eq!(held(&unit), Some((1, 3)));
    conflicts(&run(&unit, OTHER, &cdb10(0x28, 0, 0, 1), &[]));
    done(&second.now_or_never().expect("its turn has come"));
    assert_eq!(clear.now_or_never(), Some(Ok(())));
    assert_eq!((held(&unit), keys(&unit).1, shelf.kept.borrow().len()), (None, vec![], 0));
}

#[test]
fn order_to_clear_takes_everything_tells_all_and_is_not_ended_by_a_reset() {
    let (unit, shelf) = shared_unit();
    for (nexus, key) in [(HOST, 1), (OTHER, 2)] {
        done(&out_with(&unit, nexus, REGISTER, 0, &list_of(0, key, APTPL, &[])));
    }
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    shelf.refuses.set(Some(StoreError::Gone));
    assert_eq!(now(unit.clear_reservations()), Err(StoreError::Gone));
    assert_eq!(held(&unit), Some((1, 3)));
    shelf.refuses.set(None);
    shelf.waits.set(true);
    let list = list_of(1, 4, APTPL, &[]);
    let mut first = pin!(unit.execute(HOST, command(&cdb_of(REGISTER, 0, list.len()), &list)));
    assert!(first.as_mut().now_or_never().is_none());
    let mut clear = pin!(unit.clear_reservations());
    assert!(clear.as_mut().now_or_never().is_none());
    let mut reset = pin!(unit.manage(THIRD, crate::TaskManagement::LogicalUnitReset));
    assert!(reset.as_mut().now_or_never().is_none() && clear.as_mut().now_or_never().is_none());
    shelf.waits.set(false);
    assert!(clear.as_mut().now_or_never().is_none(), "its turn has not come");
    assert_eq!(first.now_or_never().expect("it is kept").status, Status::TaskAborted);
    assert_eq!(clear.now_or_never(), Some(Ok(())));
    assert!(reset.now_or_never().is_some());
    assert_eq!((unit.reservations().registrations, shelf.kept.borrow().len()), (vec![], 0));
    for nexus in [HOST, OTHER] {
        assert_eq!(told(&unit, nexus), [(0x29, 3), (0x2A, 3)]);
    }
    done(&run(&unit, HOST, &[0x16, 0, 0, 0, 0, 0], &[]));
    assert_eq!(now(unit.clear_reservations()), Ok(()));
    done(&run(&unit, OTHER, &[0; 6], &[]));
}

#[test]
fn kept_bytes_are_these() {
    let (unit, shelf) = shared_unit();
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 0x0102, APTPL, &[])));
    done(&out_with(&unit, OTHER, REGISTER, 0, &list_of(0, 0x0304, APTPL, &[])));
    done(&out(&unit, OTHER, RESERVE, 6, (0x0304, 0)));
    let target = b"\x18iqn.2026-01.example:disk";
    let name = |number: u8| [&b"\x19iqn.2026-01.example:host"[..], &[number]].concat();
    let expected = [
        &[1, 6, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0][..],
        &[&[1, 0, 1, 0], &target[..]].concat(),
        &[&[2, 0, 2, 0], &target[..]].concat(),
        &[&[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 1], &name(b'1')[..]].concat(),
        &[&[4, 3, 0, 0, 0, 0, 0, 0, 1, 0, 0x80, 0, 0, 0, 0, 1], &name(b'2')[..]].concat(),
    ];
    assert_eq!(*shelf.kept.borrow(), expected.concat());
}
