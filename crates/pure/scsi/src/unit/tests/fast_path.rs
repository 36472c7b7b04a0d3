//! Fast path: it has the same results as the slow path, and leaves no task behind.

use crate::rig::*;
use crate::*;
use block::IoErrorKind;
use proptest::prelude::*;

const RESERVE_10: [u8; 10] = [0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const RELEASE_10: [u8; 10] = [0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Creates a unit whose disk completes synchronously where possible.
fn quick(volatile_cache: bool) -> LogicalUnit<Bench> {
    let unit = unit();
    let bench = unit.device();
    bench.at_once.set(true);
    bench.geometry.set(block::Geometry { volatile_cache, ..bench.geometry.get() });
    unit
}

fn at_once(unit: &LogicalUnit<Bench>, cdb: &[u8], data: &[u8]) -> Option<Outcome> {
    unit.execute_fast_path(HOST, command(cdb, data).borrowed())
}

/// Executes one step on a unit; `step` selects the operation.
fn outcome_of(unit: &LogicalUnit<Bench>, nexus: NexusId, step: u8, cdb: &[u8], data: &[u8]) -> Option<Outcome> {
    match step {
        0 => drop(run(unit, nexus, &RESERVE_10, &[])),
        1 => drop(run(unit, nexus, &RELEASE_10, &[])),
        2 => unit.capacity_changed(),
        3 => unit.set_write_cache(true),
        4 => unit.set_write_cache(false),
        5 => unit.set_read_only(nexus, true),
        6 => unit.set_read_only(nexus, false),
        7 => unit.device().failure.set(Some(IoErrorKind::Medium)),
        8 => unit.device().failure.set(None),
        _ => {
            let command = command(cdb, data);
            let short =
                if unit.device().at_once.get() { unit.execute_fast_path(nexus, command.borrowed()) } else { None };
            return Some(short.unwrap_or_else(|| now(unit.execute(nexus, command))));
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn command_that_ends_at_once_comes_to_what_it_would_come_to(
        volatile_cache: bool,
        steps in prop::collection::vec(
            (0u8..60, prop::bool::ANY, 0usize..6, 0u8..32, 0u32..BLOCKS as u32 + 2, 0u16..6, 0u16..6, any::<u8>()), 1..60,
        ),
    ) {
        let (short, long) = (quick(volatile_cache), quick(volatile_cache));
        long.device().at_once.set(false);
        for (step, other, code, flags, lba, count, given, fill) in steps {
            let nexus = if other { OTHER } else { HOST };
            let data = vec![fill; usize::from(given) * BLOCK];
            let cdb = match [0x28, 0x2A, 0x88, 0x8A, 0xA8, 0xAA][code] {
                code @ (0x28 | 0x2A) => cdb10(code, flags, lba, count).to_vec(),
                code @ (0x88 | 0x8A) => cdb16(code, flags, lba.into(), count.into()).to_vec(),
                code => cdb12(code, flags, lba, count.into()).to_vec(),
            };
            let [a, b] = [&short, &long].map(|unit| outcome_of(unit, nexus, step, &cdb, &data));
            let seen = |outcome: Option<Outcome>| {
                outcome.map(|it| (it.status, it.sense.map(|sense| sense.emit().as_slice().to_vec()), it.data_in.into_view().to_vec()))
            };
            prop_assert_eq!(seen(a), seen(b), "{:?}", cdb);
            // A failed read is repeated on the slow path.
            let [a, b] = [&short, &long].map(|unit| ops(unit).into_iter().filter(|op| !matches!(op, Op::Read(..))).collect::<Vec<_>>());
            prop_assert_eq!(a, b);
            prop_assert_eq!(short.statistics(), long.statistics());
        }
        prop_assert_eq!(blocks(&short, 0, BLOCKS), blocks(&long, 0, BLOCKS));
    }
}

#[test]
fn command_that_others_hold_back_does_not_pass_them() {
    let unit = quick(false);
    unit.device().permits.set(0);
    // COMPARE AND WRITE runs alone on its blocks and waits for the disk.
    let mut alone = Box::pin(unit.execute(
        HOST,
        command(
            &{
                let mut cdb = cdb16(0x89, 0, 0, 0);
                cdb[13] = 1;
                cdb
            },
            &[0; 2 * BLOCK],
        ),
    ));
    assert!(futures_util::FutureExt::now_or_never(&mut alone).is_none());
    unit.device().permits.set(usize::MAX);
    assert!(at_once(&unit, &cdb10(0x28, 0, 0, 1), &[]).is_none());
    assert_eq!(ops(&unit), []);
    assert_eq!(now(alone).status, Status::Good);
    assert!(at_once(&unit, &cdb10(0x28, 0, 0, 1), &[]).is_some());
}

#[test]
fn command_that_is_not_simple_is_not_done_at_once() {
    let unit = quick(false);
    for attribute in [TaskAttribute::Ordered, TaskAttribute::HeadOfQueue, TaskAttribute::Aca] {
        let command = Command { attribute, ..command(&cdb10(0x28, 0, 0, 1), &[]) };
        assert!(unit.execute_fast_path(HOST, command.borrowed()).is_none(), "{attribute:?}");
    }
    assert_eq!(ops(&unit), []);
}

#[test]
fn write_that_must_be_flushed_is_not_begun_at_once() {
    let unit = quick(true);
    assert!(at_once(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]).is_none());
    assert_eq!(ops(&unit), []);
    assert!(at_once(&unit, &cdb10(0x28, 0, 0, 1), &[]).is_some());
}
