//! Members that refuse writes for a while: every command ends, and acknowledged data is there.

use crate::bench::{Bench, Plan};
use crate::disk::Dice;
use crate::oracle::run;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Written};
use raid::Level;
use std::cell::Cell;
use std::rc::Rc;

const LEVELS: [(Level, usize); 5] =
    [(Level::Raid0, 3), (Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 4), (Level::Raid6, 5)];

/// Number of changes, more than the log has room for.
const WRITES: u64 = 120;

type Outcome = Rc<Cell<Option<Result<Written, IoError>>>>;

/// Writes every block; then members refuse writes, all of them or only those of data.
fn bench(level: Level, members: usize, refusing: u16, from: impl Fn(&Bench) -> u64, kind: IoErrorKind) -> Bench {
    let bench = Bench::format(Plan { behind: true, ..Plan::small(level, members, false) }, 5);
    let all = Extent::new(0, bench.blocks());
    let _ = bench.write(0, run(1, all)).expect("well");
    bench.close();
    for member in 0..refusing {
        bench.disk(member).refuses.set(Some((from(&bench), kind)));
    }
    bench
}

/// Runs many concurrent writes of one block, each with a version of its own; returns for each the block and its
/// result.
fn write_many(bench: &Bench) -> Result<Vec<(u64, u64, bool)>, String> {
    let dice = Dice::new(9);
    let mut written = Vec::new();
    for version in 2..2 + WRITES {
        let (block, array) = (dice.roll(bench.blocks()), bench.array.clone());
        let data = run(version, Extent::new(block, 1));
        let write: Outcome = bench.begin(async move { array.write(Lba(block), data).await });
        written.push((block, version, write));
    }
    bench.settle();
    let ended = |(block, version, write): (u64, u64, Outcome)| {
        let outcome = write.take().ok_or(format!("the write of version {version} to block {block} does not end"))?;
        Ok((block, version, outcome.is_ok()))
    };
    written.into_iter().map(ended).collect()
}

/// Checks that each block reads as the last acknowledged write, or as one refused after it.
fn judge(bench: &Bench, written: &[(u64, u64, bool)], may_be_lost: bool) -> Result<(), String> {
    for block in 0..bench.blocks() {
        let one = Extent::new(block, 1);
        let of_block = || written.iter().filter(|(of, ..)| *of == block);
        let last = of_block().rev().find(|(.., done)| *done).map_or(1, |(_, version, _)| *version);
        let found = match bench.read(one) {
            Ok(found) => found,
            Err(error) if may_be_lost && error.kind == IoErrorKind::Medium => continue,
            Err(error) => return Err(format!("block {block}: {error}")),
        };
        // Concurrent writes of one block may end in any order.
        let mut may_be = std::iter::once(1).chain(of_block().map(|(_, version, _)| *version));
        if !may_be.any(|version| found == *run(version, one)) {
            return Err(format!("block {block}: something that was never written there"));
        }
        if last > 1 && found == *run(1, one) {
            return Err(format!("block {block}: the content before an answered write"));
        }
    }
    Ok(())
}

/// A member of a stripe set refuses data permanently: the log must not deadlock with a command that waits for it.
pub(crate) fn refused_for_good() -> Result<(), String> {
    let bench = bench(Level::Raid0, 3, 1, Bench::data, IoErrorKind::Medium);
    let written = write_many(&bench)?;
    judge(&bench, &written, true)
}

#[test]
fn every_write_ends_when_the_only_copy_refuses_data() {
    refused_for_good().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn acknowledged_writes_survive_a_temporary_lack_of_space() {
    for (level, members) in LEVELS {
        for data_alone in [true, false] {
            let from = |bench: &Bench| if data_alone { bench.data() } else { 0 };
            let bench = bench(level, members, members as u16, from, IoErrorKind::NoSpace);
            bench.rack.room_after.set(3);
            let written = write_many(&bench).unwrap_or_else(|error| panic!("{level}: {error}"));
            assert!(written.iter().all(|(.., done)| *done), "{level}: a write was refused for a moment without space");
            assert!(bench.findings.borrow().is_empty(), "{level}");
            assert!(bench.array.status().stopped.is_none(), "{level}");
            judge(&bench, &written, false).unwrap_or_else(|error| panic!("{level}: {error}"));
        }
    }
}

#[test]
fn array_without_space_stops_and_has_acknowledged_data_when_reopened() {
    for (level, members) in LEVELS {
        for data_alone in [true, false] {
            for kind in [IoErrorKind::NoSpace, IoErrorKind::ReadOnly] {
                let from = |bench: &Bench| if data_alone { bench.data() } else { 0 };
                let bench = bench(level, members, members as u16, from, kind);
                let written = write_many(&bench).unwrap_or_else(|error| panic!("{level}: {error}"));
                bench.rack.room_after.set(0);
                bench.rack.pass();
                let (bench, _) = bench.reopen();
                assert!(bench.findings.borrow().is_empty(), "{level}: {:?}", bench.findings.borrow());
                judge(&bench, &written, false).unwrap_or_else(|error| panic!("{level}, {kind:?}: {error}"));
            }
        }
    }
}
