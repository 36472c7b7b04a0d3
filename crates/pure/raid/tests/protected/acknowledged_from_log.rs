//! Changes that are acknowledged from the log and not in place yet.

use crate::bench::{Bench, Plan, is_clean};
use crate::oracle::run;
use block::{BlockDevice, Extent, IoErrorKind, Lba};
use raid::geometry::Role;
use raid::{FindingKind, Level, Outcome, Repair};

const LEVELS: [(Level, usize); 5] =
    [(Level::Raid0, 2), (Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 4), (Level::Raid6, 5)];

/// Writes every block; then stalls the in-place write of block 0 on the first member that holds it.
fn bench_with_a_stalled_write(level: Level, members: usize) -> (Bench, crate::disk::Disk) {
    let bench = Bench::format(Plan { behind: true, ..Plan::small(level, members, true) }, 3);
    let all = Extent::new(0, bench.blocks());
    let _ = bench.write(0, run(1, all)).expect("well");
    bench.close();
    let member = bench.layout().member_of(0, Role::Data { column: 0, copy: 0 });
    let disk = bench.disk(member);
    disk.stall_next_write.set(Some(bench.data()));
    (bench, disk)
}

/// Checks that the write is acknowledged, and that later reads and writes are ordered behind it.
pub(crate) fn answered_and_not_in_place() -> Result<(), String> {
    for (level, members) in LEVELS {
        let (bench, disk) = bench_with_a_stalled_write(level, members);
        let one = Extent::new(0, 1);
        let array = bench.array.clone();
        let write = bench.begin(async move { array.write(Lba(0), run(2, one)).await });
        bench.settle();
        let answered = write.take().ok_or_else(|| format!("{level}: a write waits for its place"))?;
        let _ = answered.map_err(|error| error.to_string())?;
        let (array, again) = (bench.array.clone(), bench.array.clone());
        let read = bench.begin(async move { array.read(one).await });
        let later = bench.begin(async move { again.write(Lba(0), run(3, one)).await });
        bench.settle();
        disk.let_go();
        bench.settle();
        let found = read.take().ok_or("the read does not end")?.map_err(|error| error.to_string())?;
        let found = found.into_view();
        if *found != *run(2, one) && *found != *run(3, one) {
            return Err(format!("{level}: what was before the answered write is read"));
        }
        let _ = later.take().ok_or("the write does not end")?.map_err(|error| error.to_string())?;
        if bench.read(one).map_err(|error| error.to_string())? != *run(3, one) {
            return Err(format!("{level}: the earlier write has overtaken the later one"));
        }
        bench.close();
        if !is_clean(&bench.scrub(Repair::Report)) || !bench.findings.borrow().is_empty() {
            return Err(format!("{level}: not as it was written"));
        }
    }
    Ok(())
}

#[test]
fn write_acknowledged_from_the_log_hides_the_old_content() {
    answered_and_not_in_place().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn degraded_array_acknowledges_after_the_in_place_write() {
    let (bench, disk) = bench_with_a_stalled_write(Level::Raid6, 5);
    let other = bench.layout().member_of(0, Role::P);
    bench.fail(other);
    let array = bench.array.clone();
    let write = bench.begin(async move { array.write(Lba(0), run(2, Extent::new(0, 1))).await });
    bench.settle();
    assert!(write.take().is_none(), "its error would have to be told");
    disk.let_go();
    bench.settle();
    assert!(write.take().is_some_and(|write| write.is_ok()));
}

#[test]
fn acknowledged_write_that_no_member_takes_is_reported_as_lost() {
    for level in [Level::Raid0, Level::Raid1] {
        lost_and_said(level);
    }
}

fn lost_and_said(level: Level) {
    let (bench, disk) = bench_with_a_stalled_write(level, 2);
    let one = Extent::new(0, 1);
    let array = bench.array.clone();
    let write = bench.begin(async move { array.write(Lba(0), run(2, one)).await });
    bench.settle();
    assert!(write.take().is_some_and(|write| write.is_ok()));
    for member in 0..2 {
        bench.disk(member).stuck.borrow_mut().insert(bench.data());
    }
    if level == Level::Raid1 {
        bench.fail(1);
    }
    disk.let_go();
    bench.settle();
    assert_eq!(bench.read(one).expect_err("nobody has it").kind, IoErrorKind::Medium);
    let told: Vec<_> = bench.findings.borrow().iter().map(|finding| (finding.kind, finding.outcome)).collect();
    assert!(told.contains(&(FindingKind::Unreadable, Outcome::Lost)), "{told:?}");
    let next = Extent::new(1, 1);
    assert_eq!(bench.read(next).expect("the others are as they were"), *run(1, next));
    bench.disk(0).stuck.borrow_mut().clear();
    let _ = bench.write(0, run(3, one)).expect("it can be written again");
    assert_eq!(bench.read(one).expect("and read"), *run(3, one));
}
