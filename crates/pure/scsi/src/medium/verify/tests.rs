use super::first_difference;
use crate::rig::*;
use crate::*;
use block::{Buf, IoErrorKind, Rope};

fn fill(unit: &LogicalUnit<Bench>) -> Vec<u8> {
    let content: Vec<u8> = (0..BLOCKS as usize * BLOCK).map(|at| (at / BLOCK + at) as u8).collect();
    unit.device().bytes.borrow_mut().clone_from(&content);
    content
}

#[test]
fn verify_with_bytchk_1_compares_and_points_at_the_block_that_differs() {
    let unit = unit();
    let content = fill(&unit);
    for (cdb, at) in [
        (&cdb10(0x2F, 0x12, 4, 3)[..], 4),
        (&cdb12(0xAF, 0x02, 4, 3)[..], 4),
        (&cdb16(0x8F, 0x02, BLOCKS - 3, 3)[..], BLOCKS as usize - 3),
    ] {
        let mut data = content[at * BLOCK..(at + 3) * BLOCK].to_vec();
        tell(&unit, cdb, &data);
        data[2 * BLOCK - 1] ^= 1;
        let outcome = run(&unit, HOST, cdb, &data);
        assert_eq!(sense(&outcome), (0xE, 0x1D, 0));
        assert_eq!(outcome.sense.expect("sense").information, Some(at as u64 + 1));
    }
}

#[test]
fn verify_without_bytchk_reads_the_medium_and_takes_no_data() {
    let unit = unit();
    tell(&unit, &cdb10(0x2F, 0, 4, 3), &[0xFF; 3 * BLOCK]);
    assert_eq!(ops(&unit), [Op::Read(4, 3)]);
    unit.device().failure.set(Some(IoErrorKind::Medium));
    assert_eq!(refused(&unit, &cdb10(0x2F, 0, 4, 3), &[]), (3, 0x11, 0));
}

#[test]
fn verify_with_bytchk_3_compares_one_block_with_each() {
    let unit = unit();
    unit.device().bytes.borrow_mut().fill(5);
    tell(&unit, &cdb16(0x8F, 0x06, 10, 20), &[5; BLOCK]);
    unit.device().bytes.borrow_mut()[15 * BLOCK + 3] = 6;
    let outcome = run(&unit, HOST, &cdb16(0x8F, 0x06, 10, 20), &[5; BLOCK]);
    assert_eq!((sense(&outcome), outcome.sense.expect("sense").information), ((0xE, 0x1D, 0), Some(15)));
}

#[test]
fn verify_with_bytchk_2_is_reserved_and_no_blocks_are_equal() {
    let unit = unit();
    assert_eq!(pointed(&unit, &cdb10(0x2F, 0x04, 0, 1), &[]), (1, Some(2)));
    tell(&unit, &cdb10(0x2F, 0x02, 0, 0), &[]);
    tell(&unit, &cdb16(0x8F, 0x06, BLOCKS, 0), &[]);
    assert_eq!(ops(&unit), []);
}

#[test]
fn verify_is_never_good_on_data_that_did_not_come() {
    let unit = unit();
    assert_eq!(refused(&unit, &cdb10(0x2F, 0x02, 0, 2), &[0; BLOCK]), (5, 0x0E, 3));
    assert_eq!(refused(&unit, &cdb10(0x2F, 0x06, 0, 2), &[]), (5, 0x0E, 3));
}

#[test]
fn write_and_verify_writes_makes_stable_and_reads_back() {
    let unit = unit();
    for cdb in [&cdb10(0x2E, 0x12, 4, 2)[..], &cdb12(0xAE, 0x02, 4, 2), &cdb16(0x8E, 0, 4, 2)] {
        tell(&unit, cdb, &[7; 2 * BLOCK]);
        assert_eq!(ops(&unit), [Op::Write(4, 2), Op::Flush, Op::Read(4, 2)]);
        assert_eq!(blocks(&unit, 3, 4), [vec![0; BLOCK], vec![7; 2 * BLOCK], vec![0; BLOCK]].concat());
        unit.device().bytes.borrow_mut().fill(0);
    }
    assert_eq!(pointed(&unit, &cdb10(0x2E, 0x06, 0, 1), &[0; BLOCK]), (1, Some(2)));
}

#[test]
fn write_and_verify_of_less_data_writes_what_came() {
    let unit = unit();
    tell(&unit, &cdb10(0x2E, 0x02, 0, 1), &[]);
    tell(&unit, &cdb10(0x2E, 0x02, 0, 2), &[7; BLOCK]);
    assert_eq!(blocks(&unit, 0, 2), [[7; BLOCK], [0; BLOCK]].concat());
    assert_eq!(refused(&unit, &cdb10(0x2E, 0x02, 0, 1), &[8; 200]), (5, 0x0E, 3));
}

#[test]
fn first_difference_is_found_across_pieces_and_repetitions() {
    let mut rope = Rope::new();
    rope.push(Buf::copy_of(&[1, 2, 3, 1]).freeze());
    rope.push(Buf::copy_of(&[2, 3, 1, 2, 9]).freeze());
    assert_eq!(first_difference(&rope, &[1, 2, 3]), Some(8));
    assert_eq!(first_difference(&rope.slice(0..8), &[1, 2, 3]), None);
    assert_eq!(first_difference(&rope, &[1, 2, 3, 1, 2, 3, 1, 2, 9]), None);
    assert_eq!(first_difference(&rope, &[0]), Some(0));
}
