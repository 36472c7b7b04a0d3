use super::DESCRIPTORS_MAX;
use crate::rig::*;
use crate::*;
use block::Blocks;
use futures_util::FutureExt;

fn status_of(lba: u64, allocation: u32) -> [u8; 16] {
    cdb16(0x9E, 0x12, lba, allocation)
}

/// Parses the descriptors of an answer: first block, count, status.
fn descriptors(answer: &[u8]) -> Vec<(u64, u32, u8)> {
    let follow = u32::from_be_bytes(answer[..4].try_into().expect("four bytes")) as usize;
    assert_eq!((follow + 4, &answer[4..8]), (answer.len(), &[0; 4][..]), "the answer says its length");
    answer[8..]
        .chunks(16)
        .map(|one| {
            assert_eq!((one.len(), &one[13..]), (16, &[0; 3][..]));
            let lba = u64::from_be_bytes(one[..8].try_into().expect("eight bytes"));
            (lba, u32::from_be_bytes(one[8..12].try_into().expect("four bytes")), one[12])
        })
        .collect()
}

/// Creates a thin unit of 256 blocks in granules of 4, with granules 1, 2 and 60 mapped.
fn unit_with_places() -> LogicalUnit<Bench> {
    let unit = thin_unit(4, 64);
    tell(&unit, &cdb10(0x2A, 0, 5, 6), &[1; 6 * BLOCK]);
    tell(&unit, &cdb10(0x2A, 0, 240, 1), &[1; BLOCK]);
    unit
}

#[test]
fn get_lba_status_tells_what_has_a_place_in_runs_without_gaps() {
    let unit = unit_with_places();
    let all = [(0, 4, 1), (4, 8, 0), (12, 228, 1), (240, 4, 0), (244, 12, 1)];
    // Adjacent runs are merged, however short the runs of the device.
    for run_granules in [1, 2, 100] {
        thin_of(&unit).run_granules.set(run_granules);
        assert_eq!(descriptors(&ask(&unit, &status_of(0, 4096))), all);
    }
}

#[test]
fn get_lba_status_begins_at_the_block_that_was_asked_for() {
    let unit = unit_with_places();
    assert_eq!(descriptors(&ask(&unit, &status_of(7, 24))), [(7, 5, 0)]);
    assert_eq!(descriptors(&ask(&unit, &status_of(13, 40))), [(13, 227, 1), (240, 4, 0)]);
    assert_eq!(descriptors(&ask(&unit, &status_of(BLOCKS - 1, 4096))), [(BLOCKS - 1, 1, 1)]);
}

#[test]
fn get_lba_status_follows_write_and_unmap() {
    let unit = thin_unit(4, 64);
    let status = |lba| descriptors(&ask(&unit, &status_of(lba, 24)))[0];
    assert_eq!(status(0), (0, 256, 1));
    tell(&unit, &cdb16(0x8A, 0, 0, 8), &[1; 8 * BLOCK]);
    assert_eq!(status(0), (0, 8, 0));
    // A part of a granule reads as zeros and stays mapped.
    tell(&unit, &cdb16(0x93, 0x09, 0, 3), &[]);
    assert_eq!((status(0), blocks(&unit, 0, 3)), ((0, 8, 0), vec![0; 3 * BLOCK]));
    tell(&unit, &cdb16(0x93, 0x09, 0, 4), &[]);
    assert_eq!(status(0), (0, 4, 1));
}

#[test]
fn get_lba_status_is_cut_at_every_allocation_length_and_always_counts_one_descriptor() {
    let unit = unit_with_places();
    for allocation in 0..24 {
        let answer = ask(&unit, &status_of(0, allocation));
        let whole = [0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0];
        assert_eq!(answer, whole[..allocation as usize]);
    }
    // Longer than the list: no padding follows. Shorter than a descriptor: no part of it is returned.
    assert_eq!(ask(&unit, &status_of(0, u32::MAX)).len(), 8 + 5 * 16);
    assert_eq!(descriptors(&ask(&unit, &status_of(0, 39))), [(0, 4, 1)]);
}

#[test]
fn get_lba_status_beyond_the_end_is_out_of_range() {
    let unit = unit_with_places();
    for lba in [BLOCKS, BLOCKS + 1, 1 << 32, 1 << 63, u64::MAX] {
        assert_eq!(refused(&unit, &status_of(lba, 24), &[]), (5, 0x21, 0), "{lba}");
    }
}

#[test]
fn get_lba_status_refuses_a_report_type_that_it_does_not_know() {
    let mut cdb = status_of(0, 24);
    cdb[14] = 0x02;
    assert_eq!(pointed(&unit_with_places(), &cdb, &[]), (14, Some(1)));
}

#[test]
fn get_lba_status_of_a_unit_that_is_not_thin_is_mapped_and_asks_nobody() {
    for provisioning in [Provisioning::Full, Provisioning::Resource] {
        let unit = unit_with(Options { provisioning, ..Options::default() });
        assert_eq!(descriptors(&ask(&unit, &status_of(3, 4096))), [(3, 253, 0)]);
    }
}

#[test]
fn get_lba_status_of_a_run_beyond_32_bits_takes_several_descriptors() {
    let mut bench = Bench::new(512, 8);
    bench.thin = Some(Thin::new(1 << 20, 1 << 20));
    let unit = unit_over(bench, Options::default());
    grow(&unit, 1 << 40);
    let thin = thin_of(&unit);
    thin.run_granules.set(1 << 20);
    thin.mapped.borrow_mut().insert(1 << 13);
    let found = descriptors(&ask(&unit, &status_of(1, 8 + 16 * 5)));
    assert_eq!(found[..3], [(1, u32::MAX, 1), (1 << 32, u32::MAX, 1), ((1 << 33) - 1, 1, 1)]);
    assert_eq!(found[3..], [(1 << 33, 1 << 20, 0), ((1 << 33) + (1 << 20), u32::MAX, 1)]);
    // An LBA above 2^32, and an allocation length for one descriptor only.
    assert_eq!(descriptors(&ask(&unit, &status_of((1 << 33) + 5, 24))), [((1 << 33) + 5, (1 << 20) - 5, 0)]);
}

#[test]
fn get_lba_status_does_a_bounded_amount_of_work() {
    let unit = thin_unit(1, 256);
    grow(&unit, 1 << 20);
    // Every second granule is mapped: the worst case for descriptors.
    thin_of(&unit).mapped.borrow_mut().extend((0..10_000).map(|nth| 2 * nth));
    assert_eq!(descriptors(&ask(&unit, &status_of(0, u32::MAX))).len(), DESCRIPTORS_MAX);
    assert!(thin_of(&unit).asked.replace(0) <= DESCRIPTORS_MAX + 64);
    // For one descriptor, no more than the run behind it is read.
    assert_eq!(descriptors(&ask(&unit, &status_of(0, 24))), [(0, 1, 0)]);
    assert_eq!(thin_of(&unit).asked.replace(0), 2);
    // One long run that the device reports granule by granule: the response ends before the run does.
    thin_of(&unit).run_granules.set(1);
    assert_eq!(descriptors(&ask(&unit, &status_of(30_000, 24))), [(30_000, 65, 1)]);
    assert!(thin_of(&unit).asked.get() <= 65);
}

#[test]
fn get_lba_status_that_was_aborted_stops_asking() {
    let unit = unit_with_places();
    thin_of(&unit).run_granules.set(1);
    unit.device().permits.set(2);
    let mut asking = Box::pin(unit.execute(HOST, command(&status_of(0, 4096), &[])));
    assert!(asking.as_mut().now_or_never().is_none());
    unit.detach(HOST);
    unit.device().permits.set(usize::MAX);
    assert_eq!(now(asking).status, Status::Unanswered);
    assert_eq!(thin_of(&unit).asked.get(), 3, "the one under way is the last");
}

/// Enlarges the disk in name only: no block beyond its content may be read or written.
fn grow(unit: &LogicalUnit<Bench>, blocks: u64) {
    let mut geometry = unit.device().geometry.get();
    geometry.blocks = Blocks(blocks);
    unit.device().geometry.set(geometry);
}
