//! Blocks that cannot be read or written: served from redundancy, healed, or refused exactly.

use crate::bench::{Bench, noise};
use crate::disk::Operation;
use block::{BlockDevice, Extent, IoErrorKind, Lba, Written};
use raid::geometry::Role;
use raid::plan::Kind;
use raid::{Level, MemberState};

const REDUNDANT: [(Level, usize); 4] = [(Level::Raid1, 3), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];

#[test]
fn read_of_a_bad_block_is_served_from_redundancy_and_heals_it() {
    for (level, members) in REDUNDANT {
        let bench = Bench::new(level, members, 8, 4);
        let data = noise(1, 32.min(bench.layout().blocks().0));
        let _ = bench.write(0, data.clone()).expect("healthy");
        let (member, block) = bench.home(5);
        let copies = bench.layout().copies();
        bench.disk(member).bad.borrow_mut().insert(block);
        // Mirrors are read in turn, so the bad copy is met within that many reads.
        for _ in 0..copies * 2 {
            assert_eq!(bench.read(Extent::new(4, 3)).expect("redundant"), data[4 * 4096..7 * 4096], "{level}");
        }
        let status = bench.status();
        assert_eq!(status.counters.heals, 1, "{level}");
        assert_eq!(status.members[usize::from(member)].heals, 1);
        assert_eq!(status.members[usize::from(member)].errors, 1);
        assert_eq!(status.members[usize::from(member)].state, MemberState::InService);
        assert!(bench.disk(member).bad.borrow().is_empty(), "the block was written back");
        assert_eq!(bench.mismatches(), 0);
    }
}

#[test]
fn read_of_a_bad_block_without_redundancy_is_a_medium_error_for_exactly_that_extent() {
    let bench = Bench::new(Level::Raid5, 3, 8, 4);
    let data = noise(1, 16);
    let _ = bench.write(0, data.clone()).expect("healthy");
    // The same row of both data columns: blocks 5 and 13.
    for lba in [5, 13] {
        let (member, block) = bench.home(lba);
        bench.disk(member).bad.borrow_mut().extend([block, block + 1]);
    }
    let error = bench.read(Extent::new(0, 16)).expect_err("two losses, one parity");
    assert_eq!((error.kind, error.extent), (IoErrorKind::Medium, Extent::new(5, 2)));
    assert_eq!(bench.read(Extent::new(0, 5)).expect("beside it"), data[..5 * 4096]);
    assert_eq!(bench.read(Extent::new(7, 6)).expect("beside it"), data[7 * 4096..13 * 4096]);
    assert!(bench.status().stopped.is_none());
    assert!(bench.log.recorded.borrow().is_empty(), "nobody has failed");
    let _ = bench.write(5, noise(2, 1)).expect_err("its parity needs the other lost block");
    let _ = bench.write(0, noise(3, 16)).expect("a full stripe needs nothing");
    assert_eq!(bench.read(Extent::new(0, 16)).expect("written anew"), *noise(3, 16));
}

#[test]
fn raid0_medium_error_is_returned_and_fails_no_member() {
    let bench = Bench::new(Level::Raid0, 3, 8, 4);
    let data = noise(1, 24);
    let _ = bench.write(0, data.clone()).expect("healthy");
    bench.disk(1).bad.borrow_mut().insert(3);
    let error = bench.read(Extent::new(0, 24)).expect_err("no redundancy");
    assert_eq!((error.kind, error.extent, error.member), (IoErrorKind::Medium, Extent::new(8, 8), Some(1)));
    bench.disk(1).stuck.borrow_mut().insert(4);
    let error = bench.write(12, noise(2, 1)).expect_err("no other copy");
    assert_eq!((error.kind, error.member), (IoErrorKind::Medium, Some(1)));
    assert_eq!(bench.state(1), MemberState::InService);
    assert_eq!(bench.read(Extent::new(0, 8)).expect("served on"), data[..8 * 4096]);
    let _ = bench.write(16, noise(2, 8)).expect("served on");
}

#[test]
fn write_that_meets_a_bad_block_plans_without_it() {
    let bench = Bench::new(Level::Raid5, 8, 8, 4);
    let mut data = noise(1, 56).to_vec();
    let _ = bench.write(0, noise(1, 56)).expect("healthy");
    let (member, block) = bench.home(5);
    bench.disk(member).bad.borrow_mut().insert(block);
    let _ = bench.write(5, noise(2, 1)).expect("the other columns tell the parity");
    data[5 * 4096..6 * 4096].copy_from_slice(&noise(2, 1));
    assert_eq!(bench.status().counters.plan(Kind::Reconstruct).times, 1);
    assert_eq!(bench.read(Extent::new(0, 56)).expect("redundant"), data);
    assert_eq!((bench.mismatches(), bench.state(member)), (0, MemberState::InService));
    // Bad parity: the same, from the other columns.
    bench.disk(bench.layout().member_of(0, Role::P)).bad.borrow_mut().insert(6);
    let _ = bench.write(6, noise(3, 1)).expect("the other columns tell the parity");
    assert_eq!(bench.mismatches(), 0);
}

#[test]
fn write_that_a_member_refuses_fails_the_member_not_the_write() {
    for (level, members) in REDUNDANT {
        let bench = Bench::new(level, members, 8, 4);
        let (member, block) = bench.home(5);
        bench.disk(member).stuck.borrow_mut().insert(block);
        let _ = bench.write(4, noise(1, 3)).expect("redundant");
        assert_eq!(bench.state(member), MemberState::Failed, "{level}");
        assert_eq!(*bench.log.recorded.borrow(), [member]);
        assert_eq!(bench.read(Extent::new(4, 3)).expect("redundant"), *noise(1, 3));
    }
}

#[test]
fn heal_that_a_member_refuses_fails_it_only_if_the_array_can_spare_it() {
    let bench = Bench::new(Level::Raid6, 5, 8, 4);
    let _ = bench.write(0, noise(1, 24)).expect("healthy");
    for lba in [5, 13] {
        let (member, block) = bench.home(lba);
        bench.disk(member).bad.borrow_mut().insert(block);
        bench.disk(member).stuck.borrow_mut().insert(block);
    }
    let last = bench.home(21).0;
    for (lba, lost) in [(5, true), (13, true), (21, false)] {
        assert_eq!(bench.read(Extent::new(lba, 1)).expect("redundant"), noise(1, 24)[lba as usize * 4096..][..4096]);
        assert_eq!(bench.state(bench.home(lba).0) == MemberState::Failed, lost);
    }
    bench.disk(last).stuck.borrow_mut().insert(0);
    assert!(bench.status().stopped.is_none());
}

#[test]
fn healthy_read_does_not_wait_for_a_write_of_its_stripe() {
    let bench = Bench::new(Level::Raid5, 5, 8, 4);
    let _ = bench.write(0, noise(1, 32)).expect("healthy");
    let (written, _) = bench.home(0);
    bench.disk(written).hold();
    let array = bench.array.clone();
    let write = bench.begin(async move { array.write(Lba(0), noise(2, 1)).await });
    bench.settle();
    assert_eq!(bench.read(Extent::new(8, 1)).expect("another member"), noise(1, 32)[8 * 4096..9 * 4096]);
    assert!(write.take().is_none());
    bench.disk(written).release();
    bench.settle();
    assert!(write.take().is_some_and(|write| write.is_ok()));
}

#[test]
fn member_operations_of_a_stripe_and_stripes_of_a_command_run_at_once() {
    let bench = Bench::new(Level::Raid6, 6, 4, 8);
    bench.disks.borrow().iter().for_each(|disk| disk.hold());
    let array = bench.array.clone();
    let write = bench.begin(async move { array.write(Lba(0), noise(2, 64)).await });
    bench.settle();
    let waiting = |bench: &Bench| bench.status().members.iter().map(|member| member.in_flight).sum::<u32>();
    assert_eq!(waiting(&bench), 4 * 6, "four full stripes");
    bench.disks.borrow().iter().for_each(|disk| disk.release());
    bench.settle();
    assert!(write.take().is_some_and(|write| write.is_ok()));
}

#[test]
fn write_that_is_dropped_half_way_leaves_right_parity_and_free_locks() {
    for (level, members) in REDUNDANT {
        let bench = Bench::new(level, members, 8, 4);
        let columns = u64::from(bench.layout().columns());
        let _ = bench.write(0, noise(1, 8 * columns)).expect("healthy");
        let (slow, _) = bench.home(3);
        bench.disk(slow).hold();
        {
            let mut write = Box::pin(bench.array.write(Lba(3), noise(2, 1)));
            assert!(futures_util::FutureExt::now_or_never(&mut write).is_none());
            // Reads before the writes, where the level has them, also wait for the slow disk.
            bench.disk(slow).release();
            let _ = futures_util::FutureExt::now_or_never(&mut write);
        }
        bench.disk(slow).release();
        let _ = bench.write(4, noise(3, 1)).expect("the stripe is free");
        assert_eq!(bench.mismatches(), 0, "{level}");
        let found = bench.read(Extent::new(3, 1)).expect("healthy");
        assert!(found == *noise(2, 1) || found == noise(1, 8)[3 * 4096..4 * 4096]);
    }
}

#[test]
fn write_that_is_dropped_with_its_disks_stuck_is_finished_by_the_next_command() {
    let bench = Bench::new(Level::Raid5, 4, 8, 4);
    bench.disks.borrow().iter().for_each(|disk| disk.hold());
    let mut write = Box::pin(bench.array.write(Lba(0), noise(2, 24)));
    assert!(futures_util::FutureExt::now_or_never(&mut write).is_none());
    drop(write);
    let array = bench.array.clone();
    let next = bench.begin(async move { array.write(Lba(1), noise(3, 1)).await });
    bench.settle();
    assert!(next.take().is_none(), "the stripe is still held");
    bench.disks.borrow().iter().for_each(|disk| disk.release());
    bench.settle();
    assert!(next.take().is_some_and(|next| next.is_ok()));
    let mut expected = noise(2, 24).to_vec();
    expected[4096..8192].copy_from_slice(&noise(3, 1));
    assert_eq!(bench.read(Extent::new(0, 24)).expect("healthy"), expected);
    assert_eq!(bench.mismatches(), 0);
}

#[test]
fn extents_that_are_not_on_the_array_are_refused() {
    let bench = Bench::new(Level::Raid5, 3, 8, 4);
    let blocks = bench.layout().blocks().0;
    bench.forget();
    let refused = |kind| kind == IoErrorKind::OutOfRange;
    assert!(bench.read(Extent::new(blocks, 1)).is_err_and(|error| refused(error.kind)));
    assert!(bench.write(blocks - 1, noise(1, 2)).is_err_and(|error| refused(error.kind)));
    assert!(bench.write(u64::MAX, noise(1, 2)).is_err_and(|error| refused(error.kind)));
    assert!(bench.write(0, noise(1, 1).slice(..100)).is_err_and(|error| refused(error.kind)));
    let array = bench.array.clone();
    assert!(bench.run(async move { array.discard(Extent::new(blocks, 1)).await }).is_err_and(|e| refused(e.kind)));
    assert_eq!(bench.seen(), (0, 0));
    let _ = bench.write(3, noise(1, 0)).expect("nothing is written");
    assert!(bench.read(Extent::new(3, 0)).expect("nothing is read").is_empty());
}

#[test]
fn flush_of_a_member_that_fails_costs_the_member() {
    let bench = Bench::new(Level::Raid5, 4, 8, 4);
    let _ = bench.write(0, noise(1, 24)).expect("healthy");
    bench.disk(1).flush_fails.set(true);
    let _ = bench.flush().expect("the others hold it");
    assert_eq!((bench.state(1), bench.log.recorded.borrow().as_slice()), (MemberState::Failed, &[1][..]));
    bench.disk(1).flush_fails.set(false);
    let _ = bench.write(0, noise(2, 24)).expect("degraded");
    bench.disk(1).take_seen();
    let _ = bench.flush().expect("degraded");
    assert!(!bench.disk(1).take_seen().contains(&Operation::Flush), "it is never asked again");
    assert_eq!(bench.read(Extent::new(0, 24)).expect("degraded"), *noise(2, 24));
    let _ = bench.write(0, noise(3, 24)).expect("degraded");
    bench.disk(2).flush_fails.set(true);
    let array = bench.array.clone();
    let error = bench.run(async move { array.flush(Written::attest()).await }).expect_err("two are too many");
    assert_eq!(error.kind, IoErrorKind::Gone);
    assert_eq!(*bench.log.recorded.borrow(), [1], "the last is needed, so it is not failed");
}
