use super::*;
use crate::rig::{cdb10, cdb12, cdb16};

const SHAPE: Shape = Shape {
    block_bytes: 512,
    blocks: 1 << 20,
    transfer_bytes_max: 4 << 20,
    unmap: true,
    atomic_blocks_max: 0,
    sanitize: true,
    key: true,
    removable: true,
    read_only: false,
};

fn need(cdb: &[u8]) -> (u64, u64) {
    let need = judge(Cdb::new(cdb), &SHAPE).expect("the command is possible");
    (need.data_out, need.data_in)
}

#[test]
fn judge_says_what_each_kind_of_command_moves() {
    assert_eq!(need(&[0x0A, 0, 0, 0, 0, 0]), (256 * 512, 0));
    assert_eq!(need(&cdb10(0x28, 0, 0, 8)), (0, 4096));
    assert_eq!(need(&cdb12(0xAA, 0, 0, 8192)), (4 << 20, 0));
    assert_eq!(need(&cdb10(0x2F, 0, 0, 8)), (0, 0));
    assert_eq!(need(&cdb10(0x2F, 2, 0, 8)), (4096, 0));
    assert_eq!(need(&cdb10(0x2F, 6, 0, 8)), (512, 0));
    assert_eq!(need(&cdb16(0x93, 1, 0, 8)), (0, 0));
    assert_eq!(need(&cdb16(0x93, 8, 0, 8)), (512, 0));
    assert_eq!(need(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0]), (3072, 0));
    assert_eq!(need(&cdb10(0x42, 0, 0, 24)), (24, 0));
    assert_eq!(need(&[0x12, 0, 0, 1, 0, 0]), (0, 256));
    assert_eq!(need(&[0x15, 0x10, 0, 0, 16, 0]), (16, 0));
    assert_eq!(need(&cdb10(0x25, 0, 0, 0)), (0, 8));
    assert_eq!(need(&[0; 6]), (0, 0));
}

#[test]
fn what_a_command_takes_is_known_without_its_unit() {
    let takes = |cdb: &[u8]| data_out_bytes_max(Cdb::new(cdb), 512);
    for cdb in [&[0; 6][..], &[0x12, 0, 0, 0, 96, 0], &cdb10(0x28, 0, 0, 1), &cdb16(0x88, 0, 0, 1), &[0xC0; 16]] {
        assert_eq!(takes(cdb), 0, "{cdb:x?}");
    }
    for cdb in [
        &[0x0A, 0, 0, 0, 0, 0][..],
        &cdb10(0x2A, 0, 0, 8),
        &cdb12(0xAA, 0, 0, 8192),
        &cdb10(0x2F, 0, 0, 8),
        &cdb10(0x2F, 2, 0, 8),
        &cdb10(0x2F, 6, 0, 8),
        &cdb10(0x2F, 6, 0, 0),
        &cdb16(0x93, 1, 0, 8),
        &cdb16(0x93, 8, 0, 8),
        &[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0],
        &cdb10(0x42, 0, 0, 24),
        &[0x15, 0x10, 0, 0, 16, 0],
    ] {
        assert_eq!(takes(cdb), need(cdb).0, "{cdb:x?}");
    }
    let beyond = cdb16(0x8A, 0, u64::MAX, u32::MAX);
    assert_eq!(
        data_out_bytes_max(Cdb::new(&beyond), u32::MAX),
        u64::from(u32::MAX).pow(2),
        "where it lies does not matter"
    );
}

#[test]
fn judge_refuses_before_any_data_is_asked_for() {
    let code = |cdb: &[u8], shape: &Shape| judge(Cdb::new(cdb), shape).unwrap_err().code;
    assert_eq!(code(&[0xC0], &SHAPE), AdditionalSense(0x20, 0));
    assert_eq!(code(&cdb16(0x8A, 0, 1 << 20, 1), &SHAPE), AdditionalSense(0x21, 0));
    assert_eq!(code(&cdb16(0x8A, 0, 0, 8193), &SHAPE), AdditionalSense(0x24, 0));
    assert_eq!(code(&cdb16(0x8A, 0, 0, 1), &Shape { read_only: true, ..SHAPE }), AdditionalSense(0x27, 0));
    assert_eq!(code(&cdb10(0x42, 0, 0, 24), &Shape { unmap: false, ..SHAPE }), AdditionalSense(0x20, 0));
}

#[test]
fn addresses_that_wrap_are_out_of_range_in_any_shape() {
    for blocks in [0, 1, u64::MAX] {
        let shape = Shape { blocks, transfer_bytes_max: u32::MAX, ..SHAPE };
        let outcome = judge(Cdb::new(&cdb16(0x88, 0, u64::MAX - 1, u32::MAX)), &shape);
        assert_eq!(outcome.unwrap_err().code, AdditionalSense::LBA_OUT_OF_RANGE);
    }
}
