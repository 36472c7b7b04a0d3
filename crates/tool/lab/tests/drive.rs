//! Loads over simulated disks: counting and verification.

use block::medium::Medium;
use lab::drive::{self, Transport};
use lab::meter::Meter;
use lab::point::{BackgroundLoad, Pattern, Point};
use lab::run::Sample;
use model::{Size, Span};
use sim::{DiskFaults, DiskShape, Sim};
use std::net::Ipv4Addr;

fn measured(point: Point, faults: DiskFaults) -> Sample {
    measured_on(point, faults, None)
}

fn measured_on(point: Point, faults: DiskFaults, medium: Option<Medium>) -> Sample {
    tried(point, faults, medium).expect("it is measured")
}

fn tried(point: Point, faults: DiskFaults, medium: Option<Medium>) -> anyhow::Result<Sample> {
    let world = Sim::new(5);
    world.run(async move |world| {
        let node = world.add_node(Ipv4Addr::LOCALHOST.into());
        let disk = node.add_disk("/disk", DiskShape::of(if point.verify { 4 << 20 } else { 64 << 20 }));
        disk.set_faults(faults);
        medium.iter().for_each(|&medium| disk.behave_like(medium));
        let way = Transport::Device(vec!["/disk".to_owned()]);
        drive::run(&node, &point, &way, &Meter::default(), true, 7).await
    })
}

fn mixed() -> Point {
    Point {
        unit: Size::mib(4),
        reads: 50,
        verify: true,
        pattern: Pattern::Zipf,
        sessions: 2,
        depth: 8,
        warm_up: Span::from_millis(10),
        span: Span::from_millis(200),
        ..Point::default()
    }
}

#[test]
fn load_on_an_honest_disk_proves_every_block() {
    let sample = measured(mixed(), DiskFaults::default());
    let proof = sample.proof.as_ref().expect("it was to be proved");
    assert_eq!((proof.faults, proof.words.len()), (0, 0));
    assert!(proof.judged > (4 << 20) / 512, "{}", proof.judged);
    assert!(sample.reads.commands > 100 && sample.writes.commands > 100, "{sample:?}");
    assert_eq!(sample.sessions.iter().sum::<u64>(), sample.reads.commands + sample.writes.commands);
    assert_eq!(sample.reads.bytes, sample.reads.commands * 4096);
    assert!(sample.latency().quantile(0.5) > Some(0));
}

#[test]
fn load_that_no_unit_can_have_is_refused() {
    let refused = |point: Point, why: &str| {
        let error = tried(point, DiskFaults::default(), None).expect_err(why);
        assert!(error.to_string().contains(why), "{error:#}");
    };
    refused(Point { block: Size::new(1000), ..mixed() }, "no number of blocks of 512 bytes");
    refused(Point { block: Size::mib(8), ..mixed() }, "does not fit the unit");
    refused(Point { depth: 0, ..mixed() }, "one or more");
}

#[test]
fn load_beside_another_is_counted_apart_and_what_both_did_is_proved() {
    let beside =
        BackgroundLoad { sessions: 3, depth: 16, reads: 20, block: Size::new(16 << 10), ..BackgroundLoad::default() };
    let sample = measured(Point { reads: 100, beside: Some(beside), ..mixed() }, DiskFaults::default());
    let proof = sample.proof.as_ref().expect("it was to be proved");
    assert_eq!((proof.faults, proof.words.len()), (0, 0));
    let own = (sample.writes.commands, sample.sessions.len(), sample.sessions.iter().sum::<u64>());
    assert_eq!(own, (0, 2, sample.reads.commands));
    let other = sample.beside.expect("it was there");
    assert!(other.commands > 100 && other.bytes == other.commands << 14 && other.latency.quantile(0.5) > Some(0));
    assert_eq!(measured(mixed(), DiskFaults::default()).beside, None);
}

#[test]
fn load_on_a_disk_that_an_earlier_one_has_written_to_proves_its_own_blocks_only() {
    Sim::new(6).run(async move |world| {
        let node = world.add_node(Ipv4Addr::LOCALHOST.into());
        node.add_disk("/disk", DiskShape::of(4 << 20));
        let way = Transport::Device(vec!["/disk".to_owned()]);
        for _ in 0..3 {
            let sample = drive::run(&node, &mixed(), &way, &Meter::default(), false, 7).await.expect("it is measured");
            let proof = sample.proof.expect("it was to be proved");
            assert!(proof.faults == 0 && proof.judged > 0, "{:?}", proof.words);
        }
    });
}

#[test]
fn load_on_a_lying_disk_finds_every_kind_of_lie() {
    let often = 20_000;
    for (what, faults) in [
        ("lost write", DiskFaults { lost_write_per_million: often, ..DiskFaults::default() }),
        ("misdirected write", DiskFaults { misdirected_write_per_million: often, ..DiskFaults::default() }),
        ("misdirected read", DiskFaults { misdirected_read_per_million: often, ..DiskFaults::default() }),
        ("rotten bit", DiskFaults { bit_rot_per_million: often, ..DiskFaults::default() }),
    ] {
        let proof = measured(mixed(), faults).proof.expect("it was to be proved");
        assert!(proof.faults > 0 && !proof.words.is_empty(), "{what}: {proof:?}");
    }
}

#[test]
fn open_loop_sends_what_is_due_and_charges_a_slow_disk() {
    let point = Point { rate: 10_000, reads: 100, verify: false, depth: 64, ..mixed() };
    let sample = measured(point.clone(), DiskFaults::default());
    assert!((sample.iops() / 10_000.0 - 1.0).abs() < 0.1, "{}", sample.iops());
    let slow = std::time::Duration::from_millis(2);
    // Each of two sessions has two commands in flight: 2,000 per second complete, 10,000 are due, and the wait is
    // charged.
    let late = measured(Point { depth: 2, ..point }, DiskFaults { latency: slow..=slow, ..DiskFaults::default() });
    assert!(late.latency().quantile(0.99) > Some(100_000_000), "{:?}", late.latency().quantile(0.99));
}

#[test]
fn load_on_modelled_disks_has_their_rates_and_loses_nothing() {
    let reads = Point { reads: 100, verify: false, sessions: 1, pattern: Pattern::Random, ..mixed() };
    let rate = |depth, medium| {
        let point = Point { depth, span: Span::from_millis(4000), ..reads.clone() };
        measured_on(point, DiskFaults::default(), Some(medium)).iops()
    };
    let sas = rate(1, Medium::Sas15k);
    assert!((160.0..205.0).contains(&sas), "{sas}");
    let (one, many) = (rate(1, Medium::Sata), rate(32, Medium::Sata));
    assert!((65.0..90.0).contains(&one) && many > one * 1.8, "{one} {many}");
    assert!((5_000.0..7_000.0).contains(&rate(1, Medium::Ssd)));
    for medium in Medium::ALL {
        let proof = measured_on(mixed(), DiskFaults::default(), Some(medium)).proof.expect("it was to be proved");
        assert!(proof.judged > 0 && proof.faults == 0, "{medium}: {:?}", proof.words);
    }
}
