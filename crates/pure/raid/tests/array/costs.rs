//! Cost of commands in member operations, compared with the textbook's numbers.

use crate::bench::{Bench, noise};
use crate::disk::Operation;
use block::{BlockDevice, Extent};
use raid::geometry::Role;
use raid::plan::Kind;
use raid::{Level, PlanCount};

fn cost_of_write(bench: &Bench, start: u64, blocks: u64) -> (usize, usize) {
    bench.forget();
    let _ = bench.write(start, noise(start, blocks)).expect("healthy");
    bench.seen()
}

#[test]
fn raid5_small_write_costs_four_operations_and_raid6_six() {
    let bench = Bench::new(Level::Raid5, 8, 16, 8);
    assert_eq!(cost_of_write(&bench, 5, 1), (2, 2));
    let expected = PlanCount { times: 1, reads: 2, writes: 2 };
    assert_eq!(bench.status().counters.plan(Kind::ReadModifyWrite), expected);
    let bench = Bench::new(Level::Raid6, 8, 16, 8);
    assert_eq!(cost_of_write(&bench, 5, 1), (3, 3));
    let bench = Bench::new(Level::Raid6, 6, 16, 8);
    assert_eq!(cost_of_write(&bench, 5, 1), (3, 3));
}

#[test]
fn full_stripe_write_reads_nothing() {
    for (level, members) in [(Level::Raid5, 5), (Level::Raid6, 6)] {
        let bench = Bench::new(level, members, 16, 8);
        assert_eq!(cost_of_write(&bench, 64, 64), (0, members), "{level}");
        assert_eq!(bench.status().counters.plan(Kind::FullStripe).times, 1);
    }
}

#[test]
fn mirrored_write_costs_one_operation_per_copy_also_over_many_chunks() {
    let bench = Bench::new(Level::Raid1, 3, 16, 32);
    assert_eq!(cost_of_write(&bench, 5, 1), (0, 3));
    assert_eq!(cost_of_write(&bench, 5, 256), (0, 3));
    let bench = Bench::new(Level::Raid10, 6, 16, 8);
    assert_eq!(cost_of_write(&bench, 5, 1), (0, 2));
    assert_eq!(cost_of_write(&bench, 0, 48), (0, 6));
    let bench = Bench::new(Level::Raid0, 4, 16, 8);
    assert_eq!(cost_of_write(&bench, 15, 2), (0, 2));
}

#[test]
fn small_write_touches_its_own_rows_of_parity_only() {
    let bench = Bench::new(Level::Raid6, 8, 16, 8);
    bench.forget();
    let _ = bench.write(21, noise(1, 1)).expect("healthy");
    for role in [Role::P, Role::Q, Role::Data { column: 1, copy: 0 }] {
        let seen = bench.disk(bench.layout().member_of(0, role)).take_seen();
        assert_eq!(seen, [Operation::Read(Extent::new(5, 1)), Operation::Write(Extent::new(5, 1))], "{role:?}");
    }
}

#[test]
fn healthy_read_costs_one_operation_per_chunk_and_degraded_read_one_per_survivor() {
    for (level, members, degraded) in [(Level::Raid5, 5, 4), (Level::Raid6, 6, 4), (Level::Raid10, 4, 1)] {
        let bench = Bench::new(level, members, 16, 8);
        let data = noise(7, 1);
        let _ = bench.write(3, data.clone()).expect("healthy");
        bench.forget();
        assert_eq!(bench.read(Extent::new(3, 1)).expect("healthy"), *data);
        assert_eq!(bench.seen(), (1, 0));
        let array = bench.array.clone();
        let (member, _) = bench.home(3);
        bench.run(async move { array.fail(member).await }).expect("spared");
        bench.forget();
        assert_eq!(bench.read(Extent::new(3, 1)).expect("degraded"), *data);
        assert_eq!(bench.seen(), (degraded, 0), "{level}");
    }
}

#[test]
fn sequential_mirror_reads_stay_on_one_disk_and_parallel_ones_spread() {
    let bench = Bench::new(Level::Raid1, 2, 16, 8);
    (0..8).for_each(|n| drop(bench.read(Extent::new(n * 4, 4)).expect("healthy")));
    let reads = |bench: &Bench| bench.status().members.iter().map(|member| member.reads).collect::<Vec<_>>();
    assert_eq!(reads(&bench), [8, 0], "one stream, one disk");
    bench.disks.borrow().iter().for_each(|disk| disk.hold());
    for n in 0..32 {
        let array = bench.array.clone();
        bench.begin(async move { array.read(Extent::new(n * 37 % 128, 1)).await });
    }
    bench.settle();
    let busy: Vec<u32> = bench.status().members.iter().map(|member| member.in_flight).collect();
    assert!(busy.iter().all(|&busy| busy >= 12), "{busy:?}");
    bench.disks.borrow().iter().for_each(|disk| disk.release());
    bench.settle();
}

#[test]
fn flush_asks_only_members_that_were_written_since_their_last() {
    let bench = Bench::new(Level::Raid5, 5, 16, 8);
    let _ = bench.write(0, noise(1, 1)).expect("healthy");
    let flushed = |bench: &Bench| bench.status().members.iter().map(|member| member.flushes).collect::<Vec<_>>();
    let _ = bench.flush().expect("healthy");
    assert_eq!(flushed(&bench), [1, 0, 0, 0, 1], "data on the first, P on the last");
    let _ = bench.flush().expect("healthy");
    assert_eq!(flushed(&bench), [1, 0, 0, 0, 1]);
}

#[test]
fn flush_covers_a_write_that_ended_while_the_last_flush_ran() {
    let bench = Bench::new(Level::Raid0, 1, 16, 8);
    let _ = bench.write(0, noise(1, 1)).expect("healthy");
    bench.disk(0).hold_flushes();
    let array = bench.array.clone();
    let first = bench.begin(async move { array.flush(block::Written::attest()).await });
    bench.settle();
    let _ = bench.write(1, noise(2, 1)).expect("healthy");
    bench.disk(0).release();
    bench.settle();
    assert!(first.take().is_some_and(|flushed| flushed.is_ok()));
    let _ = bench.flush().expect("healthy");
    bench.disk(0).cut_power(|| false);
    assert_eq!(bench.read(Extent::new(1, 1)).expect("healthy"), *noise(2, 1));
}

#[test]
fn parity_on_disk_is_what_an_independent_implementation_says() {
    let bench = Bench::new(Level::Raid6, 6, 4, 7);
    for (seed, start, blocks) in [(1, 0, 112), (2, 3, 1), (3, 20, 9), (4, 47, 2), (5, 64, 16), (6, 70, 30)] {
        let _ = bench.write(start, noise(seed, blocks)).expect("healthy");
    }
    for stripe in 0..7 {
        let data: Vec<Vec<u8>> = (0..4).map(|column| bench.chunk(stripe, Role::Data { column, copy: 0 })).collect();
        let columns: Vec<&[u8]> = data.iter().map(|column| &column[..]).collect();
        let (mut p, mut q) = (vec![0; data[0].len()], vec![0; data[0].len()]);
        rusty_erasure::raid::pq_gen(&columns, &mut p, &mut q).expect("well-formed");
        assert!(p == bench.chunk(stripe, Role::P) && q == bench.chunk(stripe, Role::Q), "stripe {stripe}");
    }
}

#[test]
fn discard_passes_whole_stripes_where_zeros_keep_parity_right() {
    let bench = Bench::new(Level::Raid5, 4, 4, 4);
    let _ = bench.write(0, noise(1, 48)).expect("healthy");
    let array = bench.array.clone();
    let discard = move |extent| {
        let array = array.clone();
        async move { array.discard(extent).await }
    };
    let _ = bench.run(discard(Extent::new(6, 24))).expect("healthy");
    let zeros =
        |bench: &Bench, start, len| bench.read(Extent::new(start, len)).expect("healthy").iter().all(|&b| b == 0);
    assert!(zeros(&bench, 12, 12), "the whole stripe within");
    assert_eq!(bench.read(Extent::new(6, 6)).expect("healthy"), noise(1, 48)[6 * 4096..12 * 4096]);
    assert_eq!(bench.mismatches(), 0);
    bench.disk(1).discard_zeroes.set(false);
    let _ = bench.run(discard(Extent::new(24, 12))).expect("healthy");
    assert!(!zeros(&bench, 24, 12), "a member that keeps its content would break parity");
    assert!(!bench.array.geometry().discard_zeroes);
    let bench = Bench::new(Level::Raid10, 4, 4, 4);
    let _ = bench.write(0, noise(1, 16)).expect("healthy");
    let array = bench.array.clone();
    let _ = bench.run(async move { array.discard(Extent::new(1, 9)).await }).expect("healthy");
    assert!(zeros(&bench, 1, 9) && !zeros(&bench, 0, 1) && !zeros(&bench, 10, 1));
    assert!(bench.array.geometry().discard_zeroes);
}
