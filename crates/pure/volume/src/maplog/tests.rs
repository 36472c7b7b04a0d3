use super::replay::Replay;
use super::*;
use crate::tree::Damage;
use proptest::prelude::*;

const IDENTITY: LogIdentity = LogIdentity { family: Uuid::from_u128(5), birth: 9 };

fn record(number: u64) -> Record {
    Record {
        freed: Some(GranuleAddress(number)),
        mapped: -1,
        exclusive: true,
        ..Record::put(Key::version(1, 2, number), number)
    }
}

const NONE: LogSlot = LogSlot::Blank;

fn block(sequence: u64, serial: u64, life: u32, back: u32) -> LogSlot {
    LogSlot::Whole(LogBlock { sequence, serial, life, back, records: vec![record(serial), record(serial + 1)] })
}

fn serials(replay: &Replay) -> Vec<u64> {
    replay.records.iter().map(|record| record.key.low()).collect()
}

proptest! {
    #[test]
    fn log_block_parses_to_what_was_emitted_and_to_nothing_when_a_byte_is_changed(
        count in 0usize..=RECORDS_MAX, at in 0usize..4096, bit in 0u32..8,
    ) {
        let records: Vec<Record> = (0..count as u64)
            .map(|n| if n % 3 == 0 { Record { value: None, freed: None, mapped: 1, exclusive: false, ..record(n) } } else { record(n) })
            .collect();
        let block = LogBlock { sequence: 77, serial: 5, life: 3, back: 1, records: records.clone() };
        let mut bytes = vec![0; 4096];
        emit(IDENTITY, &block, &records, &mut bytes);
        prop_assert_eq!(parse(IDENTITY, &bytes), Some(block));
        prop_assert_eq!(parse(LogIdentity { birth: 8, ..IDENTITY }, &bytes), None);
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(parse(IDENTITY, &bytes), None);
    }
}

#[test]
fn log_block_that_nobody_writes_is_none_though_its_checksum_is_right() {
    let parsed = |sequence, serial, life, back| {
        let block = LogBlock { sequence, serial, life, back, records: vec![record(1)] };
        let mut bytes = vec![0; 4096];
        emit(IDENTITY, &block, &block.records, &mut bytes);
        parse(IDENTITY, &bytes)
    };
    assert!(parsed(COUNT_MAX - 1, COUNT_MAX - 1, LIFE_MAX - 1, 5).is_some());
    for (sequence, serial, life, back) in
        [(u64::MAX, 1, 1, 0), (COUNT_MAX, 1, 1, 0), (7, COUNT_MAX, 1, 0), (7, 1, u32::MAX, 0), (7, 1, 1, 8)]
    {
        assert_eq!(parsed(sequence, serial, life, back), None);
    }
}

#[test]
fn log_of_nothing_begins_where_the_checkpoint_says() {
    let found = replay(&[NONE, NONE, NONE], 7, 40, 0).unwrap();
    assert_eq!((found.sequence, found.serial, found.life), (7, 40, 1));
}

#[test]
fn log_ends_before_the_first_block_that_is_not_there() {
    let blocks = [block(8, 42, 1, 0), block(9, 44, 1, 1), NONE, block(7, 40, 1, 0)];
    let found = replay(&blocks, 7, 40, 0).unwrap();
    assert_eq!((serials(&found), found.sequence, found.serial), (vec![40, 41, 42, 43, 44, 45], 10, 46));
    assert_eq!(found.life, 2);
}

#[test]
fn log_passes_over_what_the_checkpoint_has() {
    let blocks = [block(8, 42, 1, 0), NONE, NONE, block(7, 40, 1, 0)];
    assert_eq!(serials(&replay(&blocks, 7, 43, 0).unwrap()), vec![43]);
    assert_eq!(replay(&blocks, 9, 60, 0).unwrap().serial, 60);
}

/// Remains of an interrupted commit: blocks 7 and 8 were one commit in life 1, and only 8 was written; life 2
/// wrote another 7.
///
/// *Errors*: the log continues with block 8.
pub(crate) fn interrupted_commit_is_left_behind() -> Result<(), String> {
    let blocks = [block(8, 42, 1, 1), NONE, NONE, block(7, 40, 2, 0)];
    let found = replay(&blocks, 7, 40, 0).map_err(|Damage(what)| what.to_owned())?;
    let seen = (serials(&found), found.sequence, found.life);
    if seen == (vec![40, 41], 8, 3) { Ok(()) } else { Err(format!("the log gave {seen:?}")) }
}

#[test]
fn log_never_goes_on_with_what_an_interrupted_commit_left() {
    interrupted_commit_is_left_behind().unwrap();
}

#[test]
fn log_behind_a_checkpoint_never_goes_on_with_what_an_older_life_left() {
    let blocks = [block(8, 42, 1, 1), NONE, NONE, NONE];
    assert_eq!(serials(&replay(&blocks, 8, 40, 1).unwrap()), vec![42, 43]);
    let found = replay(&blocks, 8, 40, 2).unwrap();
    assert_eq!((serials(&found), found.sequence, found.life), (vec![], 8, 3));
}

#[test]
fn log_that_lost_a_block_in_its_middle_is_damaged() {
    let blocks = [NONE, block(9, 44, 1, 0), NONE, block(7, 40, 1, 0)];
    assert_eq!(replay(&blocks, 7, 40, 0), Err(Damage("a block of the map log is lost")));
    // The same as a part of the commit of the lost block, which was not acknowledged.
    let blocks = [NONE, block(9, 44, 1, 1), NONE, block(7, 40, 1, 0)];
    assert_eq!(serials(&replay(&blocks, 7, 40, 0).unwrap()), vec![40, 41]);
}

#[test]
fn log_with_a_damaged_block_is_damaged_wherever_it_is_and_one_that_shows_something_older_ends_there() {
    let damaged = LogSlot::Damaged;
    let is_lost = |slots: &[LogSlot]| replay(slots, 7, 40, 0).is_err();
    // The last acknowledged block, the first one, and the only one.
    assert!(is_lost(&[damaged.clone(), NONE, NONE, block(7, 40, 1, 0)]));
    assert!(is_lost(&[block(8, 42, 1, 0), NONE, NONE, damaged.clone()]));
    assert!(is_lost(&[NONE, NONE, NONE, damaged.clone()]));
    // An older block, of the previous lap.
    let slots = [block(4, 34, 1, 0), damaged, NONE, block(7, 40, 1, 0)];
    assert_eq!(replay(&slots, 7, 40, 0).unwrap().sequence, 8);
}

#[test]
fn log_that_has_passed_a_whole_lap_behind_the_head_shows_that_a_newer_head_is_lost() {
    let blocks = [block(12, 50, 1, 0), block(13, 52, 1, 0), block(14, 54, 1, 0), block(11, 48, 1, 0)];
    assert_eq!(replay(&blocks, 7, 40, 0), Err(Damage("a block of the map log is lost")));
}
