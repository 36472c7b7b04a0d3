//! Failures of members: durable before anything is acknowledged, recorded once, and never more than the array
//! survives.

use crate::bench::{Bench, SharedLog, noise};
use crate::disk::Disk;
use block::{BlockDevice, Blocks, Extent, IoErrorKind, Lba};
use raid::{Array, ArrayError, FailError, Layout, Level, MemberState, ReplaceError};
use std::rc::Rc;

#[test]
fn write_is_not_acknowledged_before_the_failure_it_met_is_recorded() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)] {
        let bench = Bench::new(level, members, 4, 4);
        bench.log.held.set(true);
        bench.disk(0).gone.set(true);
        let columns = u64::from(bench.layout().columns());
        let array = bench.array.clone();
        let write = bench.begin(async move { array.write(Lba(0), noise(1, 4 * columns)).await });
        let array = bench.array.clone();
        bench.settle();
        // Neither is a write that finds the member failed already and does not use it.
        let later = bench.begin(async move { array.write(Lba(0), noise(2, 1)).await });
        let array = bench.array.clone();
        let flush = bench.begin(async move { array.flush(block::Written::attest()).await });
        bench.settle();
        assert_eq!(bench.state(0), MemberState::Failed);
        assert!(write.take().is_none() && later.take().is_none() && flush.take().is_none(), "{level}");
        assert_eq!(bench.read(Extent::new(0, 1)).expect("reads need no record"), *noise(2, 1));
        bench.log.release();
        bench.settle();
        assert!(write.take().is_some_and(|write| write.is_ok()), "{level}");
        assert!(later.take().is_some_and(|write| write.is_ok()));
        assert!(flush.take().is_some_and(|flush| flush.is_ok()));
        assert_eq!(*bench.log.recorded.borrow(), [0]);
    }
}

#[test]
fn flush_drives_the_record_of_a_failure_that_its_members_may_wait_for() {
    for level in [Level::Raid1, Level::Raid10] {
        let bench = Bench::new(level, 4, 4, 4);
        let _ = bench.write(0, noise(1, 1)).expect("healthy");
        bench.log.held.set(true);
        bench.disk(0).gone.set(true);
        assert_eq!(bench.read(Extent::new(0, 1)).expect("there is a copy"), *noise(1, 1));
        bench.disk(1).hold_flushes();
        *bench.log.lets_go.borrow_mut() = Some(bench.disk(1));
        let array = bench.array.clone();
        let flush = bench.begin(async move { array.flush(block::Written::attest()).await });
        bench.settle();
        assert!(flush.take().is_none());
        bench.log.release();
        bench.settle();
        assert!(flush.take().is_some_and(|flush| flush.is_ok()), "{level}: nobody else drives the record");
    }
}

#[test]
fn failure_that_many_commands_meet_is_recorded_once() {
    let bench = Bench::new(Level::Raid6, 6, 4, 16);
    for member in [2, 4] {
        bench.disk(member).hold();
        bench.disk(member).gone.set(true);
    }
    let writes: Vec<_> = (0..16)
        .map(|n| {
            let array = bench.array.clone();
            bench.begin(async move { array.write(Lba(n * 16), noise(n, 16)).await })
        })
        .collect();
    bench.settle();
    assert!(bench.status().members[2].in_flight > 1, "several commands are about to meet it");
    for member in [2, 4] {
        bench.disk(member).release();
    }
    bench.settle();
    assert!(writes.iter().all(|write| write.take().is_some_and(|write| write.is_ok())));
    let mut recorded = bench.log.recorded.take();
    recorded.sort_unstable();
    assert_eq!(recorded, [2, 4]);
    assert_eq!(bench.read(Extent::new(0, 16)).expect("two may be lost"), *noise(0, 16));
}

#[test]
fn late_error_of_a_device_that_was_replaced_does_not_fail_its_successor() {
    let bench = Bench::new(Level::Raid5, 4, 4, 4);
    let old = bench.disk(1);
    old.hold();
    let array = bench.array.clone();
    let write = bench.begin(async move { array.write(Lba(0), noise(1, 12)).await });
    bench.settle();
    let array = bench.array.clone();
    bench.run(async move { array.fail(1).await }).expect("spared");
    bench.replace(1);
    old.gone.set(true);
    old.release();
    bench.settle();
    assert!(write.take().is_some_and(|write| write.is_ok()));
    assert_eq!(bench.state(1), MemberState::Rebuilding { front_stripe: 0 });
    assert!(bench.rebuild(1).is_ok());
    assert_eq!(bench.mismatches(), 0);
}

#[test]
fn failure_beyond_tolerance_stops_the_array_and_fails_nobody_more() {
    for (level, members, spared) in
        [(Level::Raid0, 2, 0), (Level::Raid1, 2, 1), (Level::Raid5, 4, 1), (Level::Raid6, 5, 2), (Level::Raid10, 4, 1)]
    {
        let bench = Bench::new(level, members, 4, 4);
        let blocks = u64::from(bench.layout().columns()) * 4;
        let _ = bench.write(0, noise(1, blocks)).expect("healthy");
        (0..=spared).for_each(|member| bench.disk(member).gone.set(true));
        let error = bench.write(0, noise(2, blocks)).expect_err("too many are gone");
        assert_eq!(error.kind, IoErrorKind::Gone, "{level}");
        assert_eq!(bench.log.recorded.borrow().len(), usize::from(spared), "{level}");
        assert!(bench.status().stopped.is_some());
        (0..=spared).for_each(|member| bench.disk(member).gone.set(false));
        let error = bench.write(0, noise(3, blocks)).expect_err("it has stopped for good");
        assert_eq!(error.kind, IoErrorKind::Gone);
        assert!(bench.flush().is_err_and(|error| error.kind == IoErrorKind::Gone));
    }
}

#[test]
fn failure_that_cannot_be_recorded_stops_the_array() {
    let bench = Bench::new(Level::Raid5, 4, 4, 4);
    bench.log.fails.set(true);
    bench.disk(0).gone.set(true);
    let error = bench.write(0, noise(1, 12)).expect_err("it could come back stale");
    assert_eq!(error.kind, IoErrorKind::Gone);
    assert!(bench.write(0, noise(1, 12)).is_err());
}

#[test]
fn read_of_a_member_that_is_gone_fails_it_and_is_served() {
    let bench = Bench::new(Level::Raid5, 4, 4, 4);
    let _ = bench.write(0, noise(1, 12)).expect("healthy");
    let (member, _) = bench.home(5);
    bench.disk(member).gone.set(true);
    assert_eq!(bench.read(Extent::new(0, 12)).expect("redundant"), *noise(1, 12));
    assert_eq!(bench.state(member), MemberState::Failed);
    assert_eq!(*bench.log.recorded.borrow(), [member]);
}

#[test]
fn degraded_writes_of_every_shape_keep_the_data() {
    for (level, members, lost) in [
        (Level::Raid5, 5, vec![1]),
        (Level::Raid6, 6, vec![2]),
        (Level::Raid6, 6, vec![0, 3]),
        (Level::Raid6, 4, vec![1, 2]),
    ] {
        let bench = Bench::new(level, members, 4, 12);
        let blocks = bench.layout().blocks().0;
        let mut expected = noise(0, blocks).to_vec();
        let _ = bench.write(0, noise(0, blocks)).expect("healthy");
        for member in lost {
            let array = bench.array.clone();
            bench.run(async move { array.fail(member).await }).expect("spared");
        }
        for n in 0..blocks {
            let len = (1 + n * 7 % 19).min(blocks - n);
            let _ = bench.write(n, noise(n + 1, len)).expect("degraded");
            expected[n as usize * 4096..(n + len) as usize * 4096].copy_from_slice(&noise(n + 1, len));
        }
        assert!(bench.read(Extent::new(0, blocks)).expect("degraded") == expected, "{level}");
    }
}

#[test]
fn fail_and_replace_refuse_harmful_requests() {
    let bench = Bench::new(Level::Raid5, 3, 4, 4);
    let fail = |member| {
        let array = bench.array.clone();
        bench.run(async move { array.fail(member).await })
    };
    assert_eq!(fail(3), Err(FailError::NoSuchMember(3)));
    assert_eq!(bench.array.replace(1, Disk::new(16)), Err(ReplaceError::InUse(1)));
    bench.array.drop_device(1);
    assert!(bench.array.device(1).is_some(), "a member in service keeps its device");
    assert_eq!(fail(1), Ok(()));
    assert!(bench.array.device(1).is_some());
    bench.array.drop_device(1);
    assert!(bench.array.device(1).is_none());
    assert_eq!(fail(1), Err(FailError::NotInService(1)));
    assert_eq!(fail(2), Err(FailError::Needed(2)));
    assert_eq!(bench.state(2), MemberState::InService);
    let unfit = |error| Err(ReplaceError::Unfit(error));
    let too_small = ArrayError::MemberTooSmall { member: 1, blocks: 15, needed: 16 };
    assert_eq!(bench.array.replace(1, Disk::new(15)), unfit(too_small));
    let narrow = Disk::new(16);
    narrow.block_bytes.set(512);
    assert_eq!(bench.array.replace(1, narrow), unfit(ArrayError::BlockSize { member: 1, block_bytes: 512 }));
    assert_eq!(bench.array.replace(1, Disk::new(16)), Ok(()));
    assert_eq!(bench.state(1), MemberState::Rebuilding { front_stripe: 0 });
    assert_eq!(fail(0), Err(FailError::Needed(0)), "a replacement that is not rebuilt is no help");
}

#[test]
fn array_is_assembled_without_missing_members_as_far_as_the_level_allows() {
    let layout = Layout::new(Level::Raid6, 4, 4096, Blocks(8)).expect("a valid shape");
    let assemble = |present: [bool; 4]| {
        let disks = present.into_iter().map(|there| there.then(|| Disk::new(8))).collect();
        Array::new(layout, disks, Rc::new(SharedLog(Rc::default()))).map(|array| array.status().members[0].state)
    };
    assert_eq!(assemble([false, true, false, true]), Ok(MemberState::Missing));
    let missing = ArrayError::TooManyMissing { level: Level::Raid6, missing: 3 };
    assert_eq!(assemble([false, true, false, false]), Err(missing));
    let disks = vec![Some(Disk::new(8))];
    let refused = Array::new(layout, disks, Rc::new(SharedLog(Rc::default()))).map(|_| ());
    assert_eq!(refused, Err(ArrayError::MemberCount { expected: 4, members: 1 }));
}

#[test]
fn answer_of_a_member_that_has_failed_meanwhile_is_not_passed_on() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        let bench = Bench::new(level, members, 4, 4);
        let (member, at) = bench.home(0);
        let _ = bench.write(0, noise(1, 1)).expect("healthy");
        bench.disk(member).hold();
        // Mirrors take turns: some of these reads go to the late member.
        let reads: Vec<_> = (0..8)
            .map(|_| {
                let array = bench.array.clone();
                bench.begin(async move { array.read(Extent::new(0, 1)).await })
            })
            .collect();
        bench.settle();
        assert!(bench.status().members[usize::from(member)].in_flight > 0, "{level}");
        let array = bench.array.clone();
        bench.run(async move { array.fail(member).await }).expect("spared");
        // State left by a refused write.
        bench.disk(member).overwrite(Extent::new(at, 1), 0xee);
        bench.disk(member).release();
        bench.settle();
        for read in reads {
            let found = read.take().expect("ended").expect("there is redundancy").into_view();
            assert_eq!(*found, *noise(1, 1), "{level}");
        }
    }
}
