use super::*;

fn mark() -> Owner {
    let id = Uuid::from_u128;
    Owner {
        node: id(1),
        name: "alpha".into(),
        seat: id(2),
        machine: Some(id(6)),
        epoch: 3,
        beat: 4,
        claimed_at: 5,
        released: false,
    }
}

#[test]
fn mark_parses_to_what_was_emitted_for_its_own_disk_alone() {
    let (pool, disk) = (Uuid::from_u128(10), Uuid::from_u128(11));
    let block = mark().emit(pool, disk);
    assert_eq!(Owner::parse(&block, pool, disk), Some(mark()));
    assert_eq!(Owner::parse(&block, pool, pool), None, "a copy on another disk says nothing");
    assert_eq!(Owner::parse(&block, disk, disk), None);
    let released = Owner { released: true, ..mark() };
    assert_eq!(Owner::parse(&released.emit(pool, disk), pool, disk), Some(released));
    let nowhere = Owner { machine: None, ..mark() };
    assert_eq!(Owner::parse(&nowhere.emit(pool, disk), pool, disk), Some(nowhere));
}

#[test]
fn mark_with_any_byte_changed_is_none() {
    let (pool, disk) = (Uuid::from_u128(10), Uuid::from_u128(11));
    let good = mark().emit(pool, disk);
    for at in 0..good.len() {
        let mut bad = good;
        bad[at] ^= 1;
        assert_eq!(Owner::parse(&bad, pool, disk), None, "byte {at}");
    }
    assert_eq!(Owner::parse(&good[..4095], pool, disk), None);
}

#[test]
fn mark_never_goes_over_the_last_of_its_claim_or_any_of_the_claim_before() {
    for epoch in 1..6 {
        for beat in 0..4 {
            let one = Owner { epoch, beat, ..mark() };
            assert_ne!(one.place(), Owner { beat: beat + 1, ..one.clone() }.place());
            for later in 0..4 {
                assert_ne!(one.place(), Owner { epoch: epoch + 1, beat: later, ..one.clone() }.place());
            }
            assert!(OWNER_PLACES.contains(Extent { start: one.place(), len: block::Blocks(1) }));
        }
    }
}

#[test]
fn mark_of_a_later_claim_or_of_another_with_the_same_number_takes_over() {
    let own = mark();
    assert!(!Owner { beat: 9, ..mark() }.has_taken_over(&own));
    assert!(!Owner { epoch: 2, node: Uuid::nil(), ..mark() }.has_taken_over(&own));
    assert!(Owner { epoch: 4, ..mark() }.has_taken_over(&own));
    assert!(Owner { node: Uuid::nil(), ..mark() }.has_taken_over(&own));
    assert!(Owner { seat: Uuid::nil(), ..mark() }.has_taken_over(&own));
}

#[test]
fn owner_who_is_watched_has_stopped_writing_before_he_is_taken_for_silent() {
    assert!(BEAT * 2 < LEASE && LEASE < WATCH);
}
