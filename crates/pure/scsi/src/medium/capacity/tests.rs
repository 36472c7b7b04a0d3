use crate::rig::*;
use crate::*;
use block::Blocks;

fn long(allocation: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9E, 0x10, allocation);
    cdb
}

#[test]
fn read_capacity_10_gives_last_block_and_block_size() {
    assert_eq!(ask(&unit(), &cdb10(0x25, 0, 0, 0)), [0, 0, 0, 255, 0, 0, 2, 0]);
}

#[test]
fn read_capacity_10_of_a_large_unit_points_to_the_long_form() {
    let unit = unit();
    let mut geometry = unit.device().geometry.get();
    geometry.blocks = Blocks(1 << 32);
    unit.device().geometry.set(geometry);
    assert_eq!(ask(&unit, &cdb10(0x25, 0, 0, 0))[..4], [0xFF; 4]);
    geometry.blocks = Blocks((64 << 40) / 512);
    unit.device().geometry.set(geometry);
    assert_eq!(ask(&unit, &long(32))[..8], ((64_u64 << 40) / 512 - 1).to_be_bytes());
}

#[test]
fn read_capacity_10_refuses_the_obsolete_address() {
    assert_eq!(pointed(&unit(), &cdb10(0x25, 0, 1, 0), &[]), (5, Some(0)));
}

#[test]
fn read_capacity_16_gives_the_physical_block_and_is_cut() {
    let unit = unit();
    let data = ask(&unit, &long(32));
    let mut expected = [0; 32];
    (expected[7], expected[10], expected[13]) = (255, 2, 3);
    assert_eq!(data, expected, "512e: eight logical blocks in a physical one");
    for allocation in 0..=32 {
        assert_eq!(ask(&unit, &long(allocation)), data[..usize::from(allocation)]);
    }
}

#[test]
fn read_capacity_of_4096_byte_blocks_has_no_exponent() {
    let unit = LogicalUnit::new(Bench::new(4096, 8), identity(), Options::default());
    assert_eq!(ask(&unit, &cdb10(0x25, 0, 0, 0)), [0, 0, 0, 7, 0, 0, 16, 0]);
    assert_eq!(ask(&unit, &long(32))[13], 0);
}
