//! Cost of protection in member operations: the textbook's numbers, and shared batches.

use crate::bench::{Bench, Plan, is_clean};
use crate::disk::Disk;
use crate::oracle::run;
use block::{BlockDevice, Extent, Lba};
use raid::{Level, Repair};

/// Reads, writes and flushes of all disks.
fn seen(bench: &Bench) -> (u64, u64, u64, u64) {
    let disks = bench.rack.disks.borrow();
    let sum = |of: fn(&Disk) -> u64| disks.iter().map(of).sum::<u64>();
    (
        sum(|disk| disk.counts.reads.get()),
        sum(|disk| disk.counts.writes.get()),
        sum(|disk| disk.counts.flushes.get()),
        sum(|disk| disk.counts.blocks_written.get()),
    )
}

fn cost(bench: &Bench, work: impl FnOnce(&Bench)) -> (u64, u64, u64, u64) {
    let before = seen(bench);
    work(bench);
    let after = seen(bench);
    (after.0 - before.0, after.1 - before.1, after.2 - before.2, after.3 - before.3)
}

fn full(level: Level, members: usize, volatile: bool) -> Bench {
    let plan = Plan { chunk_blocks: 4, stripes: 32, ring_blocks: 512, ..Plan::small(level, members, volatile) };
    let bench = Bench::format(plan, 7);
    let stripe = bench.array.stripe_blocks();
    for first in (0..bench.blocks()).step_by(stripe as usize) {
        let _ = bench.write_unlogged(first, run(1, Extent::new(first, stripe))).expect("well");
    }
    bench.close();
    bench
}

#[test]
fn small_write_costs_the_textbook_operations_and_one_write_per_log_mirror() {
    println!("4 KiB overwrite: reads + writes in place + writes to lanes, flushes, blocks written");
    let rows = [
        // Header and records of the batch go to another member, too.
        (Level::Raid0, 3, true, (0, 1, 2, 2)),
        (Level::Raid0, 3, false, (0, 1, 2, 0)),
        (Level::Raid1, 2, true, (0, 2, 2, 2)),
        (Level::Raid1, 2, false, (0, 2, 2, 0)),
        (Level::Raid10, 4, false, (0, 2, 2, 0)),
        (Level::Raid5, 8, true, (2, 2, 2, 2)),
        (Level::Raid6, 8, true, (3, 3, 3, 3)),
        (Level::Raid6, 8, false, (3, 3, 3, 0)),
    ];
    for (level, members, volatile, (reads, in_place, lanes, flushes)) in rows {
        let bench = full(level, members, volatile);
        let found = cost(&bench, |bench| {
            let _ = bench.write(5, run(2, Extent::new(5, 1))).expect("well");
            bench.flush();
        });
        println!(
            "{level:>7} of {members}, volatile {volatile:>5}: {reads} + {in_place} + {lanes}, {flushes}, {}",
            found.3
        );
        assert_eq!((found.0, found.1, found.2), (reads, in_place + lanes, flushes), "{level} of {members}");
    }
}

#[test]
fn full_stripe_write_without_old_content_costs_each_member_one_write() {
    for (level, members) in [(Level::Raid5, 5), (Level::Raid6, 6), (Level::Raid10, 4)] {
        let plan = Plan { chunk_blocks: 4, stripes: 8, ring_blocks: 512, ..Plan::small(level, members, true) };
        let bench = Bench::format(plan, 7);
        let stripe = bench.array.stripe_blocks();
        let found = cost(&bench, |bench| {
            let _ = bench.write_unlogged(0, run(1, Extent::new(0, stripe))).expect("well");
        });
        assert_eq!((found.0, found.1, found.2, found.3), (0, members as u64, 0, 4 * members as u64), "{level}");
        let flush = cost(&bench, Bench::flush);
        assert!(flush.1 <= 3, "{level}: its sums are one write to each lane, {flush:?}");
    }
}

#[test]
fn commands_that_wait_together_share_a_batch() {
    let bench = full(Level::Raid6, 8, true);
    let batches = |bench: &Bench| bench.array.status().protection.expect("protected").batches;
    let before = batches(&bench);
    bench.rack.disks.borrow().iter().for_each(|disk| disk.patient.set(false));
    for n in 0..32 {
        let array = bench.array.clone();
        bench.begin(async move { array.write(Lba(n * 13), run(3, Extent::new(n * 13, 1))).await });
    }
    // In the order in which a shard runs ready tasks.
    (0..64).for_each(|_| bench.executor.run_ready());
    assert_eq!(bench.executor.task_count(), 0);
    let shared = batches(&bench) - before;
    println!("32 writes of 4 KiB at once: {shared} batches");
    assert!(shared <= 2, "{shared} batches, though all became ready in the same turn");
}

#[test]
fn read_costs_one_operation_per_chunk_and_nothing_where_nothing_was_written() {
    let bench = full(Level::Raid6, 8, true);
    assert_eq!(cost(&bench, |bench| drop(bench.read(Extent::new(3, 1)).expect("well"))).0, 1);
    assert_eq!(cost(&bench, |bench| drop(bench.read(Extent::new(0, 24)).expect("well"))).0, 6);
    let plan = Plan { chunk_blocks: 4, stripes: 8, ring_blocks: 64, ..Plan::small(Level::Raid6, 5, true) };
    let blank = Bench::format(plan, 7);
    let found = cost(&blank, |bench| {
        assert!(bench.read(Extent::new(0, bench.blocks())).expect("well").iter().all(|&byte| byte == 0));
    });
    assert_eq!((found.0, found.1), (0, 0));
    let found = cost(&blank, |bench| drop(bench.write(5, run(1, Extent::new(5, 1))).expect("well")));
    assert_eq!(found.0, 0, "what was never written is not read to be changed");
}

#[test]
fn discard_reads_as_zeros_and_marks_whole_stripes_unwritten() {
    for (level, members) in
        [(Level::Raid0, 3), (Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)]
    {
        let bench = full(level, members, true);
        let (stripe, all) = (bench.array.stripe_blocks(), Extent::new(0, bench.blocks()));
        assert!(bench.array.geometry().discard_zeroes);
        let discarded = Extent::new(stripe / 2 + 1, 3 * stripe);
        let found = cost(&bench, |bench| bench.discard(discarded));
        let mut expected = run(1, all).to_vec();
        expected[discarded.start.0 as usize * 4096..discarded.end().0 as usize * 4096].fill(0);
        assert!(bench.read(all).expect("well") == expected, "{level}");
        assert!(is_clean(&bench.scrub(Repair::Report)), "{level}");
        let (bench, _) = bench.reopen();
        assert!(bench.read(all).expect("well") == expected, "{level} after a restart");
        println!("{level:>7}: {found:?}");
    }
}

#[test]
fn full_log_delays_writers_and_never_fails_them() {
    for volatile in [true, false] {
        let plan = Plan { chunk_blocks: 4, stripes: 16, ring_blocks: 32, ..Plan::small(Level::Raid6, 5, volatile) };
        let bench = Bench::format(plan, 11);
        let blocks = bench.blocks();
        for round in 1..5 {
            let writes: Vec<_> = (0..blocks)
                .map(|lba| {
                    let array = bench.array.clone();
                    bench.begin(async move { array.write(Lba(lba), run(round, Extent::new(lba, 1))).await })
                })
                .collect();
            bench.settle();
            assert!(writes.into_iter().all(|write| write.take().is_some_and(|write| write.is_ok())), "round {round}");
        }
        assert!(bench.array.status().protection.expect("protected").checkpoints > 10);
        assert!(bench.read(Extent::new(0, blocks)).expect("well") == *run(4, Extent::new(0, blocks)));
        assert!(is_clean(&bench.scrub(Repair::Report)));
    }
}

#[test]
fn write_larger_than_a_batch_is_split() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)] {
        let plan = Plan { chunk_blocks: 16, stripes: 4, ring_blocks: 32, ..Plan::small(level, members, true) };
        let bench = Bench::format(plan, 11);
        let all = Extent::new(0, bench.blocks());
        for name in 1..3 {
            let _ = bench.write(0, run(name, all)).expect("well");
        }
        let middle = Extent::new(5, bench.blocks() - 9);
        let _ = bench.write(5, run(3, middle)).expect("well");
        let mut expected = run(2, all).to_vec();
        expected[5 * 4096..middle.end().0 as usize * 4096].copy_from_slice(&run(3, middle));
        assert!(bench.read(all).expect("well") == expected, "{level}");
        assert!(is_clean(&bench.scrub(Repair::Report)), "{level}");
    }
}

/// Blocks read and written, and flushes, of adding a member and reshaping.
fn reshaped(bench: &Bench) -> (u64, u64, u64) {
    let read = |bench: &Bench| bench.rack.disks.borrow().iter().map(|disk| disk.counts.blocks_read.get()).sum::<u64>();
    bench.rack.disks.borrow().iter().for_each(|disk| disk.patient.set(false));
    let before = read(bench);
    let cost = cost(bench, |bench| {
        bench.add_member().expect("well");
        bench.reshape().expect("well");
    });
    (read(bench) - before, cost.3, cost.2)
}

#[test]
fn reshape_reads_and_writes_written_blocks_once_with_parity() {
    let plan =
        Plan { chunk_blocks: 4, stripes: 1024, ring_blocks: 512, spare: true, ..Plan::small(Level::Raid5, 4, true) };
    let bench = Bench::format(plan, 7);
    let blocks = bench.blocks();
    let _ = bench.write_unlogged(0, run(1, Extent::new(0, blocks))).expect("well");
    bench.close();
    let (read, written, flushes) = reshaped(&bench);
    println!("{blocks} blocks on 4 + 1 members: {read} read, {written} written, {flushes} flushes");
    // Four pages fit into the memory of the test.
    assert!(read < blocks * 12 / 10, "{read} of {blocks} blocks are read");
    assert!(written < blocks * 5 / 4 * 11 / 10, "{written} blocks are written for {blocks} and their parity");
    assert!(flushes < 1024, "a step is of as many stripes as have room, {flushes} flushes");
}

#[test]
fn reshape_skips_unwritten_stripes() {
    let plan = Plan { stripes: 1 << 20, ring_blocks: 512, spare: true, ..Plan::small(Level::Raid5, 4, true) };
    let bench = Bench::format(plan, 7);
    let _ = bench.write(0, run(1, Extent::new(0, 5))).expect("well");
    bench.close();
    let (read, written, flushes) = reshaped(&bench);
    println!("5 of {} blocks: {read} read, {written} written, {flushes} flushes", bench.blocks());
    assert!(read + written < 4 << 10, "{read} blocks read, {written} written");
}
