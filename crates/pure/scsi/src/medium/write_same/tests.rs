use crate::rig::*;
use crate::*;

const UNMAP: u8 = 0x08;
const NDOB: u8 = 0x01;

fn thin() -> LogicalUnit<Bench> {
    let unit = unit_with(Options { provisioning: Provisioning::Thin, ..Options::default() });
    unit.device().bytes.borrow_mut().fill(0xEE);
    unit
}

#[test]
fn write_same_writes_one_block_many_times() {
    let unit = unit();
    let block: Vec<u8> = (0..BLOCK).map(|at| at as u8).collect();
    tell(&unit, &cdb10(0x41, 0, 5, 3), &block);
    assert_eq!(ops(&unit), [Op::Write(5, 3), Op::Flush]);
    assert_eq!(blocks(&unit, 4, 5), [vec![0; BLOCK], block.repeat(3), vec![0; BLOCK]].concat());
    tell(&unit, &cdb16(0x93, 0, 5, 1), &[1; BLOCK]);
    assert_eq!(blocks(&unit, 5, 1), [1; BLOCK]);
}

#[test]
fn write_same_of_no_count_is_refused_as_wsnz_says() {
    let unit = thin();
    assert_eq!(pointed(&unit, &cdb10(0x41, 0, 250, 0), &[3; BLOCK]), (7, None));
    assert_eq!(pointed(&unit, &cdb16(0x93, UNMAP, 250, 0), &[0; BLOCK]), (10, None));
    assert_eq!(ops(&unit), []);
}

#[test]
fn write_same_keeps_the_limit_that_it_announces() {
    let unit = LogicalUnit::new(Bench::new(512, 8), identity(), Options::default());
    let mut geometry = unit.device().geometry.get();
    geometry.blocks.0 = 1 << 30;
    unit.device().geometry.set(geometry);
    let limit = u64::from_be_bytes(ask(&unit, &[0x12, 1, 0xB0, 0, 64, 0])[36..44].try_into().expect("eight bytes"));
    assert_eq!(pointed(&unit, &cdb16(0x93, 0, 0, limit as u32 + 1), &[0; BLOCK]), (10, None));
    assert!(judge(Cdb::new(&cdb16(0x93, 0, 0, limit as u32)), &unit.shape()).is_ok());
}

#[test]
fn write_same_takes_one_block_and_nothing_else() {
    let unit = unit();
    for bytes in [0, BLOCK / 2, 2 * BLOCK] {
        assert_eq!(refused(&unit, &cdb10(0x41, 0, 0, 1), &vec![1; bytes]), (5, 0x0E, 3));
        assert_eq!(refused(&unit, &cdb16(0x93, 0, 0, 1), &vec![1; bytes]), (5, 0x0E, 3));
    }
    assert_eq!(ops(&unit), []);
}

#[test]
fn write_same_with_ndob_writes_zeros_without_data() {
    let unit = thin();
    tell(&unit, &cdb16(0x93, NDOB, 4, 2), &[]);
    assert_eq!(ops(&unit), [Op::Write(4, 2), Op::Flush]);
    tell(&unit, &cdb16(0x93, NDOB | UNMAP, 6, 2), &[]);
    assert_eq!(ops(&unit), [Op::Discard(6, 2), Op::Flush]);
    assert_eq!(blocks(&unit, 3, 6), [vec![0xEE; BLOCK], vec![0; 4 * BLOCK], vec![0xEE; BLOCK]].concat());
    // WRITE SAME (10) has no such bit.
    assert_eq!(pointed(&unit, &cdb10(0x41, NDOB, 0, 1), &[0; BLOCK]), (1, Some(0)));
}

#[test]
fn write_same_unmaps_only_what_then_reads_as_the_data() {
    let unit = thin();
    tell(&unit, &cdb10(0x41, UNMAP, 1, 7), &[0xA6; BLOCK]);
    assert_eq!(ops(&unit), [Op::Write(1, 7), Op::Flush]);
    let mut geometry = unit.device().geometry.get();
    geometry.discard_zeroes = false;
    unit.device().geometry.set(geometry);
    tell(&unit, &cdb10(0x41, UNMAP, 1, 7), &[0; BLOCK]);
    assert_eq!(ops(&unit), [Op::Write(1, 7), Op::Flush]);
}

#[test]
fn write_same_refuses_anchor_and_formatted_blocks_and_unmap_where_there_is_none() {
    let unit = thin();
    assert_eq!(pointed(&unit, &cdb10(0x41, 0x10, 0, 1), &[0; BLOCK]), (1, Some(4)));
    assert_eq!(pointed(&unit, &cdb16(0x93, 0x18, 0, 1), &[0; BLOCK]), (1, Some(4)));
    assert_eq!(pointed(&unit, &cdb10(0x41, 0x04, 0, 1), &[0; BLOCK]), (1, Some(2)));
    assert_eq!(pointed(&unit, &cdb10(0x41, 0x02, 0, 1), &[0; BLOCK]), (1, Some(1)));
    assert_eq!(pointed(&self::unit(), &cdb10(0x41, UNMAP, 0, 1), &[0; BLOCK]), (1, Some(3)));
}

#[test]
fn write_same_writes_long_runs_in_pieces_and_flushes_once() {
    let unit = LogicalUnit::new(Bench::new(512, 5000), identity(), Options::default());
    tell(&unit, &cdb16(0x93, 0, 0, 5000), &[4; BLOCK]);
    assert_eq!(ops(&unit), [Op::Write(0, 2048), Op::Write(2048, 2048), Op::Write(4096, 904), Op::Flush]);
    assert!(unit.device().bytes.borrow().iter().all(|&byte| byte == 4));
}
