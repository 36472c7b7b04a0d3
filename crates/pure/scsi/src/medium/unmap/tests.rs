#![allow(clippy::arithmetic_side_effects)]

use crate::rig::*;
use crate::*;

fn thin() -> LogicalUnit<Bench> {
    let unit = unit_with(Options { provisioning: Provisioning::Thin, ..Options::default() });
    unit.device().bytes.borrow_mut().fill(0xEE);
    unit
}

fn list(descriptors: &[(u64, u32)]) -> Vec<u8> {
    let bytes = descriptors.len() as u16 * 16;
    let mut list = [(bytes + 6).to_be_bytes(), bytes.to_be_bytes(), [0; 2], [0; 2]].concat();
    for (lba, count) in descriptors {
        list.extend(lba.to_be_bytes());
        list.extend(count.to_be_bytes());
        list.extend([0; 4]);
    }
    list
}

fn unmap(unit: &LogicalUnit<Bench>, list: &[u8]) -> Outcome {
    run(unit, HOST, &cdb10(0x42, 0, 0, list.len() as u16), list)
}

#[test]
fn unmap_forgets_each_extent_and_flushes_once() {
    let unit = thin();
    good(unmap(&unit, &list(&[(3, 2), (0, 0), (100, 1)])));
    assert_eq!(ops(&unit), [Op::Discard(3, 2), Op::Discard(100, 1), Op::Flush]);
    assert_eq!(blocks(&unit, 2, 4), [vec![0xEE; BLOCK], vec![0; 2 * BLOCK], vec![0xEE; BLOCK]].concat());
}

#[test]
fn unmap_of_nothing_is_good_also_at_the_very_end() {
    let unit = thin();
    for descriptors in [&[][..], &[(BLOCKS, 0)], &[(0, 0); 256]] {
        good(unmap(&unit, &list(descriptors)));
    }
    good(unmap(&unit, &[]));
    assert_eq!(ops(&unit), []);
}

#[test]
fn unmap_list_with_one_bad_descriptor_is_refused_whole() {
    let unit = thin();
    for bad in [(BLOCKS, 1), (BLOCKS + 1, 0), (0, 257), (u64::MAX, u32::MAX), (1, u32::MAX)] {
        assert_eq!(sense(&unmap(&unit, &list(&[(0, 1), bad]))), (5, 0x21, 0));
    }
    assert_eq!(ops(&unit), []);
}

#[test]
fn unmap_list_that_lies_about_its_length_is_refused() {
    let unit = thin();
    for length in 1..8 {
        assert_eq!(sense(&unmap(&unit, &list(&[])[..length])), (5, 0x1A, 0));
    }
    let mut lying = list(&[(0, 1)]);
    lying[3] = 32;
    assert_eq!(sense(&unmap(&unit, &lying)), (5, 0x1A, 0));
    lying[2..4].copy_from_slice(&[0xFF, 0xFF]);
    assert_eq!(sense(&unmap(&unit, &lying)), (5, 0x1A, 0));
    // An incomplete descriptor at the end is ignored.
    let mut cut = list(&[(0, 1), (1, 1)]);
    cut[3] = 31;
    good(unmap(&unit, &cut));
    assert_eq!(ops(&unit), [Op::Discard(0, 1), Op::Flush]);
    // The initiator has less data than the CDB says.
    assert_eq!(refused(&unit, &cdb10(0x42, 0, 0, 24), &list(&[])), (5, 0x0E, 3));
}

#[test]
fn unmap_keeps_the_limits_that_it_announces() {
    let unit = thin();
    assert_eq!(sense(&unmap(&unit, &list(&[(0, 1); 257]))), (5, 0x26, 0));
    let mut geometry = unit.device().geometry.get();
    geometry.blocks.0 = 1 << 30;
    unit.device().geometry.set(geometry);
    let outcome = unmap(&unit, &list(&[(0, 1 << 20), (0, 1)]));
    assert_eq!((sense(&outcome), outcome.sense.and_then(|s| s.field).map(|f| f.byte)), ((5, 0x26, 0), Some(32)));
}

#[test]
fn unmap_is_unknown_where_it_is_not_offered_and_anchors_are_refused() {
    assert_eq!(sense(&unmap(&unit(), &list(&[(0, 1)]))), (5, 0x20, 0));
    assert_eq!(pointed(&thin(), &cdb10(0x42, 1, 0, 24), &list(&[(0, 1)])), (1, Some(0)));
}

/// Release builds (`cargo test --release`) check arithmetic as well: the profile of the workspace says so
/// (`docs/adr/0011`).
#[test]
fn arithmetic_never_wraps_in_any_build() {
    let last = std::hint::black_box(u64::MAX);
    assert!(std::panic::catch_unwind(|| last + 1).is_err(), "in scsi");
    assert!(std::panic::catch_unwind(|| block::Lba(last) + block::Blocks(1)).is_err(), "in block");
}
