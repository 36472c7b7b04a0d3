//! Single unreadable blocks: reported sense, data sent nevertheless, and repair by rewriting.

use crate::rig::*;
use crate::*;
use block::IoErrorKind;
use futures_util::FutureExt;

const TWO_BAD: [u64; 2] = [5, 9];

/// Creates a unit whose blocks hold their own number; the blocks in `bad` are unreadable.
fn unit_with_bad(bad: &[u64]) -> LogicalUnit<Bench> {
    let unit = unit();
    for (block, bytes) in unit.device().bytes.borrow_mut().chunks_mut(BLOCK).enumerate() {
        bytes.fill(block as u8);
    }
    unit.device().bad.borrow_mut().extend(bad);
    unit
}

fn numbered(blocks: std::ops::Range<u8>) -> Vec<u8> {
    blocks.flat_map(|block| [block; BLOCK]).collect()
}

fn information(outcome: &Outcome) -> Option<u64> {
    outcome.sense.as_deref().expect("there is sense").information
}

#[test]
fn read_sends_what_lies_before_the_first_bad_block_and_names_it() {
    let unit = unit_with_bad(&TWO_BAD);
    for cdb in [&cdb10(0x28, 0, 2, 14)[..], &cdb12(0xA8, 0, 2, 14), &cdb16(0x88, 0, 2, 14), &[0x08, 0, 0, 2, 14, 0]] {
        let outcome = run(&unit, HOST, cdb, &[]);
        assert_eq!((sense(&outcome), information(&outcome)), ((3, 0x11, 0), Some(5)));
        assert_eq!(outcome.data_in.into_view().to_vec(), numbered(2..5));
        assert_eq!(ops(&unit), [Op::Read(2, 14), Op::Read(2, 3)]);
    }
    assert_eq!(unit.statistics().reads, 0);
}

#[test]
fn read_that_begins_with_a_bad_block_sends_nothing() {
    let unit = unit_with_bad(&TWO_BAD);
    let outcome = run(&unit, HOST, &cdb10(0x28, 0, 5, 3), &[]);
    assert_eq!((sense(&outcome), information(&outcome)), ((3, 0x11, 0), Some(5)));
    assert!(outcome.data_in.is_empty());
    assert_eq!(ops(&unit), [Op::Read(5, 3)]);
}

#[test]
fn read_finds_the_first_bad_block_though_the_device_names_another() {
    let unit = unit_with_bad(&TWO_BAD);
    unit.device().names_last_bad.set(true);
    let outcome = run(&unit, HOST, &cdb10(0x28, 0, 0, 16), &[]);
    assert_eq!((sense(&outcome), information(&outcome)), ((3, 0x11, 0), Some(5)));
    assert_eq!(outcome.data_in.into_view().to_vec(), numbered(0..5));
    assert_eq!(ops(&unit), [Op::Read(0, 16), Op::Read(0, 9), Op::Read(0, 5)]);
}

#[test]
fn read_over_many_bad_places_ends_and_sends_nothing() {
    let bad: Vec<u64> = (10..30).map(|nth| 2 * nth).collect();
    let unit = unit_with_bad(&bad);
    unit.device().names_last_bad.set(true);
    let outcome = run(&unit, HOST, &cdb10(0x28, 0, 3, 100), &[]);
    assert_eq!((sense(&outcome), information(&outcome)), ((3, 0x11, 0), Some(3)), "no block counts as read");
    assert!(outcome.data_in.is_empty());
    assert_eq!(ops(&unit).len(), 9);
}

#[test]
fn read_whose_device_is_gone_meanwhile_says_so_and_sends_nothing() {
    let unit = unit_with_bad(&TWO_BAD);
    unit.device().permits.set(1);
    let mut reading = Box::pin(unit.execute(HOST, command(&cdb10(0x28, 0, 0, 16), &[])));
    assert!(reading.as_mut().now_or_never().is_none());
    unit.device().failure.set(Some(IoErrorKind::Gone));
    unit.device().permits.set(1);
    let outcome = now(reading);
    assert_eq!((sense(&outcome), outcome.data_in.len()), ((4, 0x44, 0), 0));
}

#[test]
fn write_to_exactly_the_bad_blocks_heals_them() {
    let unit = unit_with_bad(&TWO_BAD);
    // A host repairs as hosts do: it rewrites the block in INFORMATION until the read succeeds.
    for bad in TWO_BAD {
        let outcome = run(&unit, HOST, &cdb10(0x28, 0, 0, 16), &[]);
        assert_eq!(information(&outcome), Some(bad));
        tell(&unit, &cdb10(0x2A, 0, bad as u32, 1), &[bad as u8; BLOCK]);
    }
    assert_eq!(ask(&unit, &cdb10(0x28, 0, 0, 16)), numbered(0..16));
}

#[test]
fn commands_that_read_before_they_write_name_the_bad_block_and_write_nothing() {
    let unit = unit_with_bad(&TWO_BAD);
    let mut compare = cdb16(0x89, 0, 4, 0);
    compare[13] = 4;
    let commands: [(&[u8], usize); 4] =
        [(&compare, 8), (&cdb16(0x8B, 0, 4, 4), 4), (&cdb16(0x8F, 0, 4, 4), 0), (&cdb16(0x8F, 2, 4, 4), 4)];
    for (cdb, data_blocks) in commands {
        let outcome = run(&unit, HOST, cdb, &vec![4; data_blocks * BLOCK]);
        assert_eq!((sense(&outcome), information(&outcome)), ((3, 0x11, 0), Some(5)), "{:?}", Cdb::new(cdb));
        assert!(outcome.data_in.is_empty());
        assert_eq!(ops(&unit), [Op::Read(4, 4)]);
    }
}

#[test]
fn bad_block_beyond_32_bits_is_named_where_the_format_has_room_for_it() {
    let far = (1 << 33) + 7;
    let unit = unit_with_bad(&[far]);
    let mut geometry = unit.device().geometry.get();
    geometry.blocks.0 = 1 << 34;
    unit.device().geometry.set(geometry);
    let read = cdb16(0x88, 0, far, 1);
    let fixed = run(&unit, HOST, &read, &[]).sense.expect("sense").emit();
    assert_eq!((fixed[0], &fixed[3..7]), (0x70, &[0; 4][..]), "not valid");
    let control = [0, 0, 0, 0, 0x0A, 10, 0x06, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];
    tell(&unit, &[0x15, 0x10, 0, 0, 16, 0], &control);
    let descriptor = run(&unit, HOST, &read, &[]).sense.expect("sense").emit();
    assert_eq!(descriptor[12..20], far.to_be_bytes());
}

#[test]
fn device_that_is_away_is_asked_again_unless_acknowledged_writes_may_be_lost_with_it() {
    let unit = unit();
    unit.device().failure.set(Some(IoErrorKind::Unreachable));
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]), (2, 4, 1));
    unit.set_write_cache(true);
    assert_eq!(sense(&run(&unit, HOST, &[0; 6], &[])), (6, 0x2A, 0x01));
    assert_eq!(refused(&unit, &cdb10(0x35, 0, 0, 0), &[]), (4, 0x44, 0), "else it would be repeated until it is GOOD");
    unit.set_absence(Some(crate::Absence::BecomingReady));
    assert_eq!(refused(&unit, &cdb10(0x35, 0, 0, 0), &[]), (2, 4, 1), "who comes to a stand-in has lost nothing there");
}
