//! Property tests over the whole CDB space: no panic, no change of other blocks, and no leak of old memory.

use crate::operation::{OPERATIONS, OptionalFeatures};
use crate::rig::*;
use crate::*;
use block::{Buf, pool};
use proptest::prelude::*;
use std::ops::Range;

/// Byte that fills recycled memory and occurs nowhere else.
const CANARY: u8 = 0xC5;

/// Fills the memory pages from which the next buffers are taken.
fn poison() {
    let bufs: Vec<Buf> = [1, 5000, 20_000, 70_000, 140_000, 300_000]
        .into_iter()
        .flat_map(|len| [len, len])
        .map(|len| {
            let mut buf = Buf::recycled(len);
            buf.fill(CANARY);
            buf
        })
        .collect();
    drop(bufs);
    assert!(pool::held_bytes() > 0);
}

fn has_canary(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|four| four == [CANARY; 4])
}

/// Returns the blocks that a CDB may change, derived from the figures of the standard and not from the table.
fn may_change(cdb: &[u8; 16], list: &[u8]) -> Vec<Range<u64>> {
    let be = |at: usize, len: usize| cdb[at..at + len].iter().fold(0_u64, |n, &byte| n << 8 | u64::from(byte));
    let run = |lba: u64, count: u64| lba..lba.saturating_add(count);
    match cdb[0] {
        0x0A => vec![run(be(1, 3) & 0x1F_FFFF, if cdb[4] == 0 { 256 } else { be(4, 1) })],
        0x2A | 0x2E => vec![run(be(2, 4), be(7, 2))],
        0x41 => vec![run(be(2, 4), if be(7, 2) == 0 { u64::MAX } else { be(7, 2) })],
        0xAA | 0xAE => vec![run(be(2, 4), be(6, 4))],
        0x8A | 0x8B | 0x8E => vec![run(be(2, 8), be(10, 4))],
        0x93 => vec![run(be(2, 8), if be(10, 4) == 0 { u64::MAX } else { be(10, 4) })],
        0x89 => vec![run(be(2, 8), be(13, 1))],
        0x9C => vec![run(be(2, 8), be(12, 2))],
        0x42 => list
            .get(8..)
            .unwrap_or_default()
            .chunks_exact(16)
            .map(|one| {
                let lba = u64::from_be_bytes(one[..8].try_into().expect("eight bytes"));
                run(lba, u64::from(u32::from_be_bytes(one[8..12].try_into().expect("four bytes"))))
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// A byte that is often small, so that addresses often hit.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![16 => Just(0), 4 => 0u8..9, 1 => any::<u8>()]
}

/// A CDB of any operation, mostly without reserved bits set.
fn cdb() -> impl Strategy<Value = [u8; 16]> {
    let known = (0..OPERATIONS.len(), any::<u8>()).prop_map(|(at, tidy)| {
        let row = &OPERATIONS[at];
        let mut mask = [if tidy < 200 { 0 } else { 0xFF }; 16];
        mask.iter_mut().zip(row.usage(OptionalFeatures::ALL)).for_each(|(mask, usage)| *mask |= usage);
        (row.code(), row.action(), mask)
    });
    let any_code = any::<u8>().prop_map(|code| (code, None, [0xFF; 16]));
    let code = prop_oneof![9 => known, 1 => any_code];
    (code, prop::array::uniform16(byte())).prop_map(|((code, action, mask), mut cdb)| {
        cdb.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
        cdb[0] = code;
        cdb[1] = action.unwrap_or(cdb[1]);
        cdb
    })
}

fn options() -> impl Strategy<Value = Options> {
    (any::<bool>(), any::<bool>(), 0u8..3).prop_map(|(rare, small, kind)| Options {
        read_only: rare && small,
        provisioning: [Provisioning::Full, Provisioning::Resource, Provisioning::Thin][usize::from(kind)],
        transfer_bytes_max: if small { 8 * BLOCK as u32 } else { 4 << 20 },
        ..Options::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn any_command_changes_only_what_it_names_and_shows_nothing_old(
        options in options(),
        granules in prop::option::of(0usize..40),
        steps in prop::collection::vec((cdb(), prop::collection::vec(byte(), 0..40), 0usize..6), 1..30),
    ) {
        let mut bench = Bench::new(BLOCK as u32, BLOCKS);
        // Thin and often full, or fully provisioned.
        bench.thin = granules.map(|granules| Thin::new(8, granules));
        let unit = unit_over(bench, options);
        for (cdb, mut data, blocks) in steps {
            // A parameter list, or some whole blocks, or neither.
            if blocks > 0 {
                data.resize(blocks * BLOCK, 0x11);
            }
            let before = unit.device().bytes.borrow().clone();
            poison();
            let outcome = run(&unit, HOST, &cdb, &data);
            let names = may_change(&cdb, &data);
            let after = unit.device().bytes.borrow().clone();
            for (block, (old, new)) in before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate() {
                let named = names.iter().any(|range| range.contains(&(block as u64)));
                prop_assert!(old == new || (named && !options.read_only), "{:?} changed block {}", Cdb::new(&cdb), block);
            }
            prop_assert!(!has_canary(&after), "{:?} wrote old memory", Cdb::new(&cdb));
            prop_assert!(!has_canary(&outcome.data_in.into_view()), "{:?} showed old memory", Cdb::new(&cdb));
            if let Some(sense) = outcome.sense {
                prop_assert!(!has_canary(&sense.emit()));
                prop_assert_eq!(outcome.status, Status::CheckCondition);
            }
        }
    }

    #[test]
    fn any_bytes_at_all_are_judged_and_answered(
        bytes in prop::collection::vec(any::<u8>(), 0..=260),
        data in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let unit = thin_unit(8, 4);
        run(&unit, HOST, &bytes, &data);
        let _: Outcome = no_unit::execute(Cdb::new(&bytes), &[Lun::of(0)]);
        let _: Option<u16> = bytes.first_chunk().and_then(|raw| Lun(u64::from_be_bytes(*raw)).number());
    }

    #[test]
    fn any_parameter_list_is_taken_whole_or_refused(
        list in prop::collection::vec(prop_oneof![2 => byte(), 1 => prop::sample::select(vec![0x0Au8, 10, 0x08, 18, 0x02, 0xFF, 0x5C, 28])], 0..80),
        code in prop::sample::select(vec![0x15u8, 0x55, 0x42]),
    ) {
        let unit = thin_unit(8, 4);
        let mut cdb = [0; 10];
        cdb[0] = code;
        cdb[1] = if code == 0x42 { 0 } else { 0x10 };
        cdb[if code == 0x15 { 4 } else { 8 }] = list.len() as u8;
        let before = unit.mode.get();
        let outcome = run(&unit, HOST, &cdb, &list);
        if outcome.status != Status::Good {
            prop_assert_eq!(unit.mode.get(), before);
            prop_assert!(ops(&unit).is_empty());
        }
    }
}

#[test]
fn properties_reach_most_operations_with_good() {
    // The strategy is useful only if enough commands pass validation.
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let unit = unit_with(Options { provisioning: Provisioning::Thin, ..Options::default() });
    let mut done = std::collections::BTreeSet::new();
    for _ in 0..6000 {
        let cdb = cdb().new_tree(&mut runner).expect("the strategy gives values").current();
        if run(&unit, HOST, &cdb, &[0x11; 2 * BLOCK]).status == Status::Good {
            done.insert(cdb[0]);
        }
        unit.readiness.reset();
    }
    assert!(done.len() >= 32, "only {} operations got through: {done:02x?}", done.len());
}
