use super::*;

fn mark() -> Claim {
    let id = Uuid::from_u128;
    Claim {
        node: id(1),
        name: "alpha".into(),
        boot_instance: id(2),
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
    let block = emit(&mark(), pool, disk);
    assert_eq!(parse(&block, pool, disk), Some(mark()));
    assert_eq!(parse(&block, pool, pool), None, "a copy on another disk says nothing");
    assert_eq!(parse(&block, disk, disk), None);
    let released = Claim { released: true, ..mark() };
    assert_eq!(parse(&emit(&released, pool, disk), pool, disk), Some(released));
    let nowhere = Claim { machine: None, ..mark() };
    assert_eq!(parse(&emit(&nowhere, pool, disk), pool, disk), Some(nowhere));
}

#[test]
fn mark_with_any_byte_changed_is_none() {
    let (pool, disk) = (Uuid::from_u128(10), Uuid::from_u128(11));
    let good = emit(&mark(), pool, disk);
    for at in 0..good.len() {
        let mut bad = good;
        bad[at] ^= 1;
        assert_eq!(parse(&bad, pool, disk), None, "byte {at}");
    }
    assert_eq!(parse(&good[..4095], pool, disk), None);
}

#[test]
fn mark_never_goes_over_the_last_of_its_claim_or_any_of_the_claim_before() {
    for epoch in 1..6 {
        for beat in 0..4 {
            let one = Claim { epoch, beat, ..mark() };
            assert_ne!(place_of(&one), place_of(&Claim { beat: beat + 1, ..one.clone() }));
            for later in 0..4 {
                assert_ne!(place_of(&one), place_of(&Claim { epoch: epoch + 1, beat: later, ..one.clone() }));
            }
            assert!(OWNER_PLACES.contains(Extent { start: place_of(&one), len: block::Blocks(1) }));
        }
    }
}
