//! Lists with false lengths and contents, and more registrations than the limit.

use super::*;
use crate::reservation::state::REGISTRATIONS_MAX;
use crate::{Cdb, judge};
use proptest::prelude::*;

#[test]
fn list_length_that_no_list_has_is_refused_before_any_of_it_is_asked_for() {
    let (unit, _) = shared_unit();
    let lengths = [0, 1, 23, 25, 0x1_0001, 0x00FF_FFFF, 0x8000_0000, u32::MAX];
    for (action, length) in (0..=7).flat_map(|action| lengths.map(|length| (action, length))) {
        let cdb = cdb_of(action, 1, length as usize);
        // 25 bytes could be a list with TransportIDs.
        if length == 25 && matches!(action, REGISTER | MOVE) {
            continue;
        }
        let refusal = judge(Cdb::new(&cdb), &unit.shape()).expect_err("no memory is taken for it");
        assert_eq!((refusal.code, refusal.field), (AdditionalSense(0x1A, 0), None), "action {action}, {length} bytes");
        assert_eq!(sense(&run(&unit, HOST, &cdb, &[0; 64])), (5, 0x1A, 0));
    }
    for action in 8..0x20 {
        assert_eq!(pointed(&unit, &cdb_of(action, 1, 24), &[0; 24]), (1, Some(4)), "service action {action:#x}");
    }
    assert_eq!(keys(&unit), (0, vec![]));
}

#[test]
fn list_that_is_cut_short_or_runs_on_is_refused_whole() {
    let (unit, _) = shared_unit();
    let ids = [initiator(2).transport_id(), initiator(3).transport_id()];
    let whole = list_of(0, 7, SPEC_I_PT, &ids);
    for len in 24..whole.len() {
        assert_eq!(sense(&out_with(&unit, HOST, REGISTER, 0, &whole[..len])), (5, 0x1A, 0), "{len} bytes");
        // The initiator has less data than its CDB says.
        assert_eq!(sense(&run(&unit, HOST, &cdb_of(REGISTER, 0, whole.len()), &whole[..len])), (5, 0x0E, 3));
    }
    let longer = [&whole[..], &[0; 4]].concat();
    assert_eq!(sense(&out_with(&unit, HOST, REGISTER, 0, &longer)), (5, 0x1A, 0));
    assert_eq!(sense(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 7, 0, &[]).repeat(2))), (5, 0x1A, 0));
    // A length of TransportIDs that exceeds the list.
    let mut claims = whole.clone();
    claims[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(sense(&out_with(&unit, HOST, REGISTER, 0, &claims)), (5, 0x1A, 0));
    assert_eq!(keys(&unit), (0, vec![]));
    done(&out_with(&unit, HOST, REGISTER, 0, &whole));
    assert_eq!(keys(&unit), (1, vec![7; 3]));
}

#[test]
fn registrations_are_bounded_and_kept_all_or_none() {
    let (unit, shelf) = shared_unit();
    let id =
        |number: usize| InitiatorPort { name: format!("iqn.2026-01.example:n{number}"), isid: [0; 6] }.transport_id();
    let mut registered = 0;
    let mut asked_by = 10;
    while registered < REGISTRATIONS_MAX {
        let count = (REGISTRATIONS_MAX - registered - 1).min(1000);
        let ids: Vec<_> = (registered..registered + count).map(id).collect();
        unit.attach(NexusId(asked_by), InitiatorPort { name: format!("asker{asked_by}"), isid: [0; 6] }, port(1));
        assert_eq!(told(&unit, NexusId(asked_by)), [(0x29, 0)]);
        done(&out_with(&unit, NexusId(asked_by), REGISTER, 0, &list_of(0, 7, SPEC_I_PT | APTPL, &ids)));
        registered += count + 1;
        asked_by += 1;
    }
    let kept = shelf.kept.borrow().clone();
    assert_eq!(sense(&out(&unit, HOST, REGISTER, 0, (0, 1))), (5, 0x55, 4));
    assert_eq!((unit.reservations().registrations.len(), &*shelf.kept.borrow()), (REGISTRATIONS_MAX, &kept));
    assert_eq!(report(&unit, 0, 8)[4..], (REGISTRATIONS_MAX as u32 * 8).to_be_bytes());
    assert_eq!(report(&unit, 3, u16::MAX).len(), usize::from(u16::MAX));
    let restored = LogicalUnit::new(Bench::new(512, 8), identity(), Options::default()).with_state_store(shelf);
    restored.restore(crate::PersistentState::parse(&kept).expect("it was kept"));
    assert_eq!(restored.reservations().registrations, unit.reservations().registrations);
}

#[test]
fn registration_without_room_where_it_is_kept_is_refused_and_changes_nothing() {
    let (unit, shelf) = shared_unit();
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 1, APTPL, &[])));
    for (why, expected) in [(StoreError::Full, (5, 0x55, 4)), (StoreError::Gone, (4, 0x44, 0))] {
        shelf.refuses.set(Some(why));
        let before = (unit.reservations(), shelf.kept.borrow().clone());
        assert_eq!(sense(&out_with(&unit, OTHER, REGISTER, 0, &list_of(0, 2, APTPL, &[]))), expected);
        assert_eq!(sense(&out(&unit, HOST, RESERVE, 3, (1, 0))), expected);
        assert_eq!((unit.reservations(), shelf.kept.borrow().clone()), before);
    }
}

proptest! {
    #[test]
    fn any_list_is_taken_or_refused(
        action in 0_u8..8,
        kind in any::<u8>(),
        list in prop::collection::vec(prop_oneof![6 => Just(0_u8), 2 => 0_u8..9, 1 => any::<u8>()], 0..120),
        claimed in prop_oneof![3 => Just(None), 1 => any::<u32>().prop_map(Some)],
        nexus in 1_u64..4,
    ) {
        let (unit, _) = shared_unit();
        register(&unit, HOST, 1);
        let before = unit.reservations();
        let cdb = cdb_of(action, kind, claimed.map_or(list.len(), |bytes| bytes as usize));
        let outcome = run(&unit, NexusId(nexus), &cdb, &list);
        if outcome.status != Status::Good {
            prop_assert_eq!(unit.reservations(), before);
        }
    }

    #[test]
    fn any_bytes_are_restored_as_they_were_or_refused(kept in prop::collection::vec(any::<u8>(), 0..80), at in 0_usize..200, bit in 0_u8..8) {
        prop_assert!(State::parse(&kept).is_err() || State::parse(&kept).expect("it is not refused").emit() == kept);
        let (unit, shelf) = shared_unit();
        done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 1, APTPL, &[])));
        done(&out(&unit, HOST, RESERVE, 5, (1, 0)));
        let mut kept = shelf.kept.borrow().clone();
        let at = at % kept.len();
        kept[at] ^= 1 << bit;
        if let Ok(state) = State::parse(&kept) {
            prop_assert_eq!(state.emit(), kept);
        }
    }
}
