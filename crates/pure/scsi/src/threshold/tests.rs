use super::*;
use crate::rig::*;
use crate::*;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
/// Blocks of a granule that has the size of a threshold set.
const SET_BLOCKS: u64 = SET_BYTES / BLOCK as u64;

/// Creates a thin unit of 32 granules of one threshold set each, of which `granules` can be mapped.
fn thin(granules: usize) -> LogicalUnit<Bench> {
    let mut bench = Bench::new(BLOCK as u32, 32 * SET_BLOCKS);
    bench.thin = Some(Thin::new(SET_BLOCKS, granules));
    unit_over(bench, Options::default())
}

/// Returns mode page 1Ch/02h with thresholds as given: enabled, and count.
fn page(available: (bool, u32), used: (bool, u32)) -> Vec<u8> {
    let descriptor = |(enabled, count): (bool, u32), arming: u8, resource: u8| {
        let first = arming | if enabled { 0x80 } else { 0 };
        [&[first, resource, 0, 0][..], &count.to_be_bytes()].concat()
    };
    let header = [0x5C, 0x02, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    [&header[..], &descriptor(available, 0, 1), &descriptor(used, 1, 2)].concat()
}

fn select(unit: &LogicalUnit<Bench>, page: &[u8]) -> Outcome {
    let list = [&[0, 0, 0, 0][..], page].concat();
    run(unit, HOST, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list)
}

fn mode_sense(unit: &LogicalUnit<Bench>, control: u8, code: u8, subpage: u8) -> Vec<u8> {
    ask(unit, &[0x1A, 0x08, control << 6 | code, subpage, 255, 0])[4..].to_vec()
}

fn write_granule(unit: &LogicalUnit<Bench>, granule: u64) {
    tell(unit, &cdb10(0x2A, 0, (granule * SET_BLOCKS) as u32, 1), &[1; BLOCK]);
}

fn unmap_granule(unit: &LogicalUnit<Bench>, granule: u64) {
    tell(unit, &cdb16(0x93, 0x09, granule * SET_BLOCKS, SET_BLOCKS as u32), &[]);
}

/// Takes the pending 38/07 attentions of `nexus` and returns the INFORMATION of each.
fn told(unit: &LogicalUnit<Bench>, nexus: NexusId) -> Vec<Option<u64>> {
    let mut told = Vec::new();
    loop {
        let outcome = run(unit, nexus, &TEST_UNIT_READY, &[]);
        if outcome.status == Status::Good {
            return told;
        }
        if sense(&outcome) != (6, 0x2A, 0x01) {
            assert_eq!(sense(&outcome), (6, 0x38, 0x07));
            told.push(outcome.sense.expect("sense").information);
        }
    }
}

#[test]
fn soft_threshold_of_the_operator_is_told_once_to_every_nexus() {
    let unit = unit();
    unit.soft_threshold_reached();
    for nexus in [HOST, OTHER] {
        assert_eq!(told(&unit, nexus), [None]);
    }
    unit.soft_threshold_reached();
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]), (6, 0x38, 0x07));
    tell(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    assert_eq!(told(&unit, OTHER), [None]);
}

#[test]
fn threshold_set_by_a_host_is_told_once_per_crossing_to_every_nexus() {
    let unit = thin(32);
    good(select(&unit, &page((true, 28), (false, 0))));
    for granule in 0..3 {
        write_granule(&unit, granule);
    }
    assert_eq!(told(&unit, HOST), []);
    // 28 of 32 are left.
    write_granule(&unit, 3);
    for nexus in [HOST, OTHER] {
        assert_eq!(told(&unit, nexus), [Some(16)], "INFORMATION says which descriptor of the page");
    }
    write_granule(&unit, 4);
    assert_eq!(told(&unit, HOST), [], "it is still reached");
    // At the border it is not re-armed: that takes a sixteenth.
    (3..5).for_each(|granule| unmap_granule(&unit, granule));
    write_granule(&unit, 3);
    assert_eq!(told(&unit, HOST), []);
    (2..4).for_each(|granule| unmap_granule(&unit, granule));
    (2..4).for_each(|granule| write_granule(&unit, granule));
    assert_eq!(told(&unit, HOST), [Some(16)]);
}

#[test]
fn threshold_for_what_is_used_is_armed_increasing() {
    let unit = thin(32);
    good(select(&unit, &page((false, 0), (true, 2))));
    write_granule(&unit, 0);
    assert_eq!(told(&unit, OTHER), []);
    write_granule(&unit, 1);
    assert_eq!((told(&unit, OTHER), told(&unit, HOST)), (vec![Some(24)], vec![Some(24)]));
    unmap_granule(&unit, 0);
    write_granule(&unit, 7);
    assert_eq!((told(&unit, OTHER), told(&unit, HOST)), (vec![Some(24)], vec![Some(24)]));
}

#[test]
fn threshold_is_checked_when_others_take_the_space() {
    let unit = thin(32);
    good(select(&unit, &page((true, 8), (false, 0))));
    thin_of(&unit).granules.set(6);
    assert_eq!(told(&unit, HOST), []);
    unit.check_thresholds();
    unit.check_thresholds();
    assert_eq!((told(&unit, HOST), told(&unit, OTHER)), (vec![Some(16)], vec![Some(16)]));
}

#[test]
fn threshold_that_is_reached_when_it_is_set_is_told_and_one_that_is_not_enabled_never_is() {
    let unit = thin(32);
    write_granule(&unit, 0);
    good(select(&unit, &page((false, 1000), (false, 0))));
    assert_eq!(told(&unit, HOST), []);
    good(select(&unit, &page((true, 1000), (false, 0))));
    assert_eq!(told(&unit, HOST), [Some(16)]);
    // Setting the same values changes nothing; another count re-arms that threshold and not the other one.
    good(select(&unit, &page((true, 1000), (false, 0))));
    assert_eq!(told(&unit, HOST), []);
    good(select(&unit, &page((true, 1000), (true, 1))));
    assert_eq!(told(&unit, HOST), [Some(24)]);
    good(select(&unit, &page((true, 999), (true, 1))));
    assert_eq!(told(&unit, HOST), [Some(16)]);
}

#[test]
fn reset_forgets_the_thresholds_of_hosts() {
    let unit = thin(32);
    good(select(&unit, &page((true, 1000), (true, 1))));
    now(unit.manage(OTHER, TaskManagement::LogicalUnitReset));
    assert_eq!(refused(&unit, &TEST_UNIT_READY, &[]), (6, 0x29, 3));
    assert_eq!(told(&unit, HOST), [Some(16)], "what was reached before is told");
    assert_eq!(mode_sense(&unit, 0, 0x1C, 2), page((false, 0), (false, 0)));
    write_granule(&unit, 0);
    assert_eq!(told(&unit, HOST), []);
    good(select(&unit, &page((false, 0), (true, 1))));
    assert_eq!(told(&unit, HOST), [Some(24)]);
}

#[test]
fn threshold_page_has_current_changeable_and_default_values() {
    let unit = thin(32);
    let set = page((true, 7), (true, 0x0102_0304));
    good(select(&unit, &set));
    assert_eq!(told(&unit, HOST), []);
    assert_eq!(sense(&run(&unit, OTHER, &TEST_UNIT_READY, &[])), (6, 0x2A, 1), "others are told of the change");
    assert_eq!(mode_sense(&unit, 0, 0x1C, 2), set);
    let mut changeable = page((true, u32::MAX), (true, u32::MAX));
    (changeable[17], changeable[24], changeable[25]) = (0, 0x80, 0);
    assert_eq!(mode_sense(&unit, 1, 0x1C, 2), changeable);
    assert_eq!(mode_sense(&unit, 2, 0x1C, 2), page((false, 0), (false, 0)));
}

#[test]
fn threshold_page_is_found_by_its_subpage_and_among_all() {
    let unit = thin(32);
    assert_eq!(mode_sense(&unit, 0, 0x1C, 0)[..2], [0x1C, 10]);
    assert_eq!(mode_sense(&unit, 0, 0x1C, 0xFF).len(), 12 + 32);
    assert_eq!(mode_sense(&unit, 0, 0x3F, 0).len(), 56);
    let all = mode_sense(&unit, 0, 0x3F, 0xFF);
    assert_eq!((all.len(), &all[56..60]), (88, &[0x5C, 0x02, 0, 28][..]));
    for (code, subpage) in [(0x1C, 1), (0x3F, 2), (0x0A, 2)] {
        assert_eq!(pointed(&unit, &[0x1A, 0x08, code, subpage, 255, 0], &[]), (3, None));
    }
    // MODE SELECT accepts what MODE SENSE returned.
    let list = ask(&unit, &[0x5A, 0, 0x3F, 0xFF, 0, 0, 0, 1, 0, 0]);
    tell(&unit, &[0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], &list);
}

#[test]
fn threshold_page_that_lies_is_refused_whole_with_a_pointer() {
    let unit = thin(32);
    let good_page = page((true, 7), (true, 7));
    let with = |at: usize, value: u8| {
        let mut bad = good_page.clone();
        bad[at] = value;
        bad
    };
    let cases = [
        (with(4, 1), 4, Some(0)),      // SITUA
        (with(16, 0x88), 16, Some(3)), // a percentage
        (with(16, 0x81), 16, Some(0)), // the other arming
        (with(17, 3), 17, Some(1)),    // another resource
        (with(18, 1), 18, Some(0)),
        (with(2, 0xFF), 2, None), // lengths
        (with(3, 27), 2, None),
        (with(3, 29), 2, None),
        (with(1, 3), 0, Some(5)), // an unknown subpage
        (with(1, 0), 1, None),    // subpage 0 in the long format
        (with(0, 0x4A), 0, Some(5)),
    ];
    for (bad, byte, bit) in cases {
        let outcome = select(&unit, &bad);
        assert_eq!(sense(&outcome), (5, 0x26, 0), "{bad:02x?}");
        let field = outcome.sense.and_then(|sense| sense.field).expect("a pointer");
        assert_eq!((field.byte, field.bit), (4 + byte, bit), "{bad:02x?}");
    }
    for length in 1..good_page.len() {
        assert_eq!(sense(&select(&unit, &good_page[..length])), (5, 0x1A, 0), "{length} bytes");
    }
    assert_eq!(mode_sense(&unit, 0, 0x1C, 2), page((false, 0), (false, 0)));
    assert_eq!(told(&unit, OTHER), []);
}

#[test]
fn resources_are_counted_in_threshold_sets() {
    let log = [0x4D, 0, 0x4C, 0, 0, 0, 0, 2, 0, 0];
    let unit = thin(20);
    (0..3).for_each(|granule| write_granule(&unit, granule));
    let available = [0, 1, 3, 8, 0, 0, 0, 17, 2, 0, 0, 0];
    let used = [0, 2, 3, 8, 0, 0, 0, 3, 1, 0, 0, 0];
    assert_eq!(ask(&unit, &log), [&[0x0C, 0, 0, 24][..], &available, &used].concat());
    assert_eq!(ask(&unit, &[0x4D, 0, 0x40, 0, 0, 0, 0, 2, 0, 0])[4..], [0, 2, 3, 0x0C, 0x15, 0x19, 0x2F]);
    let exponent = ask(&unit, &[0x12, 1, 0xB2, 0, 64, 0])[4];
    assert_eq!(1 << exponent, SET_BLOCKS);
    assert_eq!(threshold_exponent(4096), 8);
    // Free space is rounded down, used space up, and neither overflows.
    let of = |free_bytes, mapped_bytes| Resources::of(Space { mapped_bytes, free_bytes, granule_bytes: 65536 });
    assert_eq!(of(SET_BYTES - 1, 1), Resources { available: 0, used: 1 });
    assert_eq!(of(u64::MAX, u64::MAX), Resources { available: u32::MAX, used: u32::MAX });
}

#[test]
fn unit_that_does_not_tell_its_space_has_no_thresholds() {
    let unit = unit_with(Options { provisioning: Provisioning::Thin, ..Options::default() });
    assert_eq!(ask(&unit, &[0x12, 1, 0xB2, 0, 64, 0])[4], 0);
    assert_eq!(pointed(&unit, &[0x1A, 0x08, 0x1C, 2, 255, 0], &[]), (3, None));
    assert_eq!(sense(&select(&unit, &page((true, 1), (true, 1)))), (5, 0x26, 0));
    assert_eq!(pointed(&unit, &[0x4D, 0, 0x4C, 0, 0, 0, 0, 2, 0, 0], &[]), (2, Some(5)));
    unit.check_thresholds();
    assert_eq!(told(&unit, HOST), []);
}
