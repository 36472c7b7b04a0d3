//! Resync after an unclean stop, and checks that repair nothing.

use crate::bench::{Bench, noise};
use block::Extent;
use raid::geometry::Role;
use raid::{Level, Progress, Verified};
use std::cell::RefCell;
use std::rc::Rc;

fn check(bench: &Bench) -> Verified {
    let (array, stripes) = (bench.array.clone(), bench.layout().stripes());
    bench.run(async move { array.scrub_check(0..stripes, async |_| {}).await }).expect("serving")
}

fn resync(bench: &Bench) -> (Verified, Vec<Progress>) {
    let (array, stripes) = (bench.array.clone(), bench.layout().stripes());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tell = seen.clone();
    let verified = bench
        .run(async move { array.resync(0..stripes, async |progress| tell.borrow_mut().push(progress)).await })
        .expect("serving");
    (verified, seen.take())
}

#[test]
fn resync_makes_parity_agree_with_the_data_and_scrub_only_counts() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let bench = Bench::new(level, members, 4, 200);
        let data = noise(1, bench.layout().blocks().0);
        let _ = bench.write(0, data.clone()).expect("healthy");
        for (stripe, role) in [(3, Role::P), (3, Role::Data { column: 0, copy: 0 }), (150, Role::P)] {
            let member = bench.layout().member_of(stripe, role);
            bench.disk(member).overwrite(Extent::new(stripe * 4 + 1, 1), 0x55);
        }
        if level == Level::Raid6 {
            bench.disk(bench.layout().member_of(7, Role::Q)).overwrite(Extent::new(28, 1), 0x55);
        }
        let wrong = if level == Level::Raid6 { 3 } else { 2 };
        let found = check(&bench);
        assert_eq!(found, Verified { stripes: 200, mismatches: wrong, ..Verified::default() }, "{level}");
        assert_eq!(check(&bench), found, "a check repairs nothing");
        let (verified, progress) = resync(&bench);
        assert_eq!(verified, found);
        assert_eq!(progress.last().map(|progress| (progress.done, progress.total)), Some((200, 200)));
        assert!(progress.len() > 1);
        assert_eq!(check(&bench).mismatches, 0);
    }
}

#[test]
fn resync_copies_mirrors_from_the_first_member() {
    for (level, members) in [(Level::Raid1, 3), (Level::Raid10, 4)] {
        let bench = Bench::new(level, members, 4, 8);
        let _ = bench.write(0, noise(1, bench.layout().blocks().0)).expect("healthy");
        bench.disk(1).overwrite(Extent::new(5, 1), 0x55);
        assert_eq!(check(&bench).mismatches, 1);
        resync(&bench);
        assert_eq!(check(&bench).mismatches, 0);
        assert_eq!(bench.disk(1).bytes(Extent::new(0, 32)), bench.disk(0).bytes(Extent::new(0, 32)));
    }
}

/// Regression: a read that the first copy failed after it had answered an earlier one returned the other copy.
#[test]
fn suspect_mirrors_agree_before_a_host_reads_them() {
    for (level, members) in [(Level::Raid1, 3), (Level::Raid10, 4)] {
        let bench = Bench::new(level, members, 4, 8);
        let _ = bench.write(0, noise(1, bench.layout().blocks().0)).expect("healthy");
        bench.disk(1).overwrite(Extent::new(5, 1), 0x55);
        bench.disk(1).overwrite(Extent::new(25, 1), 0x55);
        bench.array.mark_suspect(0..8);
        let lba = if level == Level::Raid1 { 5 } else { 9 };
        let first = bench.read(Extent::new(lba, 1)).expect("healthy");
        assert_eq!(check(&bench).mismatches, 1, "{level}: only the stripe that was read agrees");
        bench.disk(0).bad.borrow_mut().insert(5);
        for _ in 0..4 {
            assert!(bench.read(Extent::new(lba, 1)).expect("one copy is readable") == first, "{level}");
        }
    }
}

#[test]
fn resync_leaves_stripes_whose_data_is_lost_and_keeps_the_parity_that_is_there() {
    let bench = Bench::new(Level::Raid5, 4, 4, 8);
    let data = noise(1, bench.layout().blocks().0);
    let _ = bench.write(0, data.clone()).expect("healthy");
    let array = bench.array.clone();
    bench.run(async move { array.fail(0).await }).expect("spared");
    let (verified, _) = resync(&bench);
    assert_eq!((verified.stripes, verified.skipped, verified.mismatches), (0, 8, 0), "P or data, one is lost");
    assert!(bench.read(Extent::new(0, bench.layout().blocks().0)).expect("degraded") == *data);
    let bench = Bench::new(Level::Raid6, 5, 4, 10);
    let _ = bench.write(0, noise(1, 120)).expect("healthy");
    let array = bench.array.clone();
    bench.run(async move { array.fail(0).await }).expect("spared");
    let (verified, _) = resync(&bench);
    assert_eq!((verified.stripes, verified.skipped), (4, 6), "where P or Q is lost, the other is kept");
}

#[test]
fn scrub_counts_stripes_that_it_cannot_read() {
    let bench = Bench::new(Level::Raid6, 5, 4, 10);
    bench.disk(2).bad.borrow_mut().insert(13);
    let verified = check(&bench);
    assert_eq!((verified.stripes, verified.unreadable, verified.mismatches), (9, 1, 0));
    let bench = Bench::new(Level::Raid0, 2, 4, 10);
    assert_eq!(check(&bench).skipped, 10, "there is nothing to compare");
}
