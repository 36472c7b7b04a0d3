use super::*;
use crate::point::{BackgroundLoad, Backing, Peer};
use crate::run::{Latency, Tally, Usage};
use crate::seen::{Core, Disk, Line, Readings, Sockets, Thread};
use model::{Level, Size, Span, WritePolicy};

/// Returns a sample of ten seconds of `iops` commands per second of `us` each, with idle CPUs and nothing else known.
fn sample(iops: u64, us: u64) -> Sample {
    let commands = iops * 10;
    let latency = Latency { buckets: vec![(us * 1000, commands)] };
    let seen = Readings {
        load: Some(thread("load", 2.0)),
        threads: vec![thread("shard-0", 3.0)],
        cores: vec![Core { core: 0, busy_seconds: 3.0, stolen_seconds: 0.0 }],
        sockets: vec![Sockets { server: true, count: 1, busy_seconds: 5.0, ..Sockets::default() }],
        ..Readings::default()
    };
    Sample {
        seconds: 10.0,
        reads: Tally { commands, bytes: commands * 4096, errors: 0, latency },
        server: Some(Usage { cpu_seconds: 3.0, resident_bytes: 1 }),
        seen: Some(seen),
        ..Sample::default()
    }
}

fn thread(name: &str, cpu_seconds: f64) -> Thread {
    Thread { process: 0, name: name.into(), cpu_seconds, queued_seconds: 0.1 }
}

fn member(name: &str, busy_seconds: f64, operations: u64) -> Disk {
    let (name, member, seconds) = (name.into(), true, 10.0);
    Disk { name, member, seconds, busy_seconds, waited_seconds: busy_seconds * 4.0, reads: operations, writes: 0 }
}

fn changed(mut sample: Sample, change: impl FnOnce(&mut Readings)) -> Sample {
    change(sample.seen.as_mut().expect("it was metered"));
    sample
}

fn found(point: &Point, sample: Sample) -> Explanation {
    let measured = Measured { labels: [].into(), point: point.clone(), samples: vec![sample], untried: None };
    explain(&measured, &Machine::default()).expect("it was measured")
}

#[test]
fn idle_machine_at_a_small_depth_lacks_depth() {
    let point = Point { depth: 4, ..Point::default() };
    let found = found(&point, sample(10_000, 400));
    assert_eq!(found.limit, Limit::Depth);
    assert_eq!(found.evidence[0], "4 under way at once, 400 µs each: 10000 a second, and no more can be");
    assert!(found.change[0].contains("3.3 times"), "{:?}", found.change);
    assert_eq!((found.unseen.len(), found.rounds), (0, (1, 1)));
}

#[test]
fn machine_that_gives_idle_cores_back_is_told_so_where_more_depth_would_help() {
    let (labels, point) = ([].into(), Point { depth: 4, ..Point::default() });
    let measured = Measured { labels, point, samples: vec![sample(10_000, 400)], untried: None };
    let told = |idle: &str| {
        let machine = Machine { facts: [("idle".to_owned(), idle.to_owned())].into() };
        let found = explain(&measured, &machine).expect("it was measured");
        found.change.iter().any(|change| change.contains("blockyard tune"))
    };
    assert_eq!(
        ["haltpoll, guest_halt_poll_ns 0", "haltpoll, guest_halt_poll_ns 200000", "menu"].map(told),
        [true, false, false]
    );
}

#[test]
fn initiator_that_polls_is_not_said_to_be_full() {
    let point = Point { client_polls: true, ..Point::default() };
    let found = found(&point, changed(sample(50_000, 640), |seen| seen.load = Some(thread("load", 9.9))));
    assert_eq!(found.limit, Limit::Depth);
    assert!(found.unseen[0].contains("initiator's CPU"), "{found:?}");
}

#[test]
fn full_threads_are_named() {
    let point = Point { depth: 32, ..Point::default() };
    let client = changed(sample(50_000, 640), |seen| seen.load = Some(thread("load", 9.8)));
    assert_eq!(found(&point, client).limit, Limit::Initiator);
    let busy = |seen: &mut Readings| seen.threads = vec![thread("shard-0", 1.0), thread("shard-1", 9.9)];
    let shard = found(&point, changed(sample(50_000, 640), busy));
    assert_eq!(shard.limit, Limit::Thread { name: "shard-1".into() });
    assert_eq!(shard.evidence[0], "shard-1 of the target ran 99 % of the time");
    assert!(shard.evidence[1].contains("6.0 µs"), "{:?}", shard.evidence);
    let second = |seen: &mut Readings| seen.threads.push(Thread { process: 1, ..thread("tgtd", 9.5) });
    let daemon = found(&point, changed(sample(50_000, 640), second));
    assert_eq!(daemon.limit, Limit::Thread { name: "tgtd of daemon 1".into() });
    // A polling shard is busy without work.
    let polling = Point { arguments: vec!["--busy-poll".into()], ..point };
    let polled = found(&polling, changed(sample(50_000, 640), busy));
    assert!(polled.limit == Limit::Depth && polled.unseen[0].contains("without sleeping"), "{polled:?}");
}

#[test]
fn threads_that_queue_for_a_full_core_are_told_from_full_threads() {
    let point = Point { depth: 32, daemons: 2, luns: 2, ..Point::default() };
    let queue = changed(sample(50_000, 640), |seen| {
        let queued = |process| Thread { process, queued_seconds: 4.5, ..thread("tgtd", 5.2) };
        (seen.load, seen.threads) = (Some(thread("load", 7.5)), vec![queued(0), queued(1)]);
        seen.cores =
            [(0, 9.8), (1, 9.9)].map(|(core, busy_seconds)| Core { core, busy_seconds, stolen_seconds: 0.0 }).into();
    });
    let core = found(&point, queue.clone());
    assert_eq!(core.limit, Limit::Core { core: 1 });
    assert_eq!(
        core.evidence[0],
        "core 1 ran 99 % of the time, and tgtd of daemon 1 waited 45 % of the time for a core"
    );
    // The owner of the core that they queue for is not part of the measurement.
    let disturbed = found(&point, changed(queue, |seen| drop(seen.threads.pop())));
    assert_eq!(disturbed.limit, Limit::Others);
    assert!(
        disturbed.evidence[0].starts_with("programs that are neither target nor client had 0.7 cores"),
        "{disturbed:?}"
    );
}

#[test]
fn full_disk_is_named_unless_a_cpu_is_full_before() {
    let point = Point { depth: 32, backing: Backing::Pool, level: Level::Raid10, ..Point::default() };
    let disks = |seen: &mut Readings| seen.disks = vec![member("d0", 6.0, 1000), member("d3", 9.7, 1800)];
    let slow = found(&point, changed(sample(200, 160_000), disks));
    assert_eq!(slow.limit, Limit::Disk { name: "d3".into() });
    assert!(
        slow.evidence[0].starts_with("disk d3 was busy 97 % of the time, with 4.0 operations"),
        "{:?}",
        slow.evidence
    );
    let both = changed(changed(sample(200, 160_000), disks), |seen| seen.threads = vec![thread("shard-0", 9.9)]);
    assert_eq!(found(&point, both).limit, Limit::Thread { name: "shard-0".into() });
    let alone = Point { depth: 1, ..point };
    let one = changed(sample(200, 5_000), |seen| {
        seen.disks = vec![Disk { waited_seconds: 9.7, ..member("d3", 9.7, 2000) }];
    });
    assert!(found(&alone, one).change[0].starts_with("more depth"));
}

#[test]
fn parity_is_what_fills_disks_when_each_write_makes_many_operations() {
    let point = Point { depth: 32, backing: Backing::Pool, level: Level::Raid6, reads: 0, ..Point::default() };
    let disks = |seen: &mut Readings| seen.disks = vec![member("d0", 9.5, 6_000), member("d1", 9.0, 6_000)];
    let mut written = changed(sample(200, 160_000), disks);
    std::mem::swap(&mut written.reads, &mut written.writes);
    let parity = found(&point, written.clone());
    assert_eq!(parity.limit, Limit::Parity { of: "d0".into() });
    assert!(parity.evidence.iter().any(|said| said.contains("6.0 operations")), "{:?}", parity.evidence);
    assert!(parity.change.iter().any(|said| said.contains("log device")));
    let mirrored = Point { level: Level::Raid10, ..point.clone() };
    assert_eq!(found(&mirrored, written.clone()).limit, Limit::Disk { name: "d0".into() });
    let back = Point { write: WritePolicy::Back, ..point };
    assert!(!found(&back, written).change.iter().any(|said| said.contains("log device")));
}

#[test]
fn full_line_and_full_windows_are_named() {
    let point = Point { depth: 32, block: Size::mib(1), ..Point::default() };
    let lines = |seen: &mut Readings| {
        let (received_bytes, bytes_per_second) = (1_180_000_000, Some(125_000_000));
        seen.lines = vec![Line { name: "eth0".into(), received_bytes, sent_bytes: 9, bytes_per_second }];
    };
    assert_eq!(found(&point, changed(sample(110, 290_000), lines)).limit, Limit::Nic { name: "eth0".into() });
    let held = changed(sample(110, 290_000), |seen| seen.held_seconds = 8.0);
    assert_eq!(found(&point, held).limit, Limit::CommandWindow);
    let end = Sockets { server: true, count: 1, busy_seconds: 8.0, ..Sockets::default() };
    let window = changed(sample(110, 290_000), |seen| seen.sockets = vec![Sockets { window_seconds: 6.0, ..end }]);
    assert_eq!(found(&point, window).limit, Limit::ReceiveWindow { server: false });
    let buffer = changed(sample(110, 290_000), |seen| seen.sockets = vec![Sockets { buffer_seconds: 6.0, ..end }]);
    assert_eq!(found(&point, buffer).limit, Limit::SendBuffer { server: true });
    // A window that is full because the target's CPU is saturated is no cause.
    let busy = |seen: &mut Readings| (seen.held_seconds, seen.threads) = (8.0, vec![thread("shard-0", 9.9)]);
    let busy = found(&point, changed(sample(110, 290_000), busy));
    assert_eq!(busy.limit, Limit::Thread { name: "shard-0".into() });
}

#[test]
fn load_that_asks_for_no_more_is_its_own_limit() {
    let open = Point { rate: 10_000, ..Point::default() };
    assert_eq!(found(&open, sample(9_990, 100)).limit, Limit::Load);
    assert_eq!(found(&open, sample(6_000, 100)).limit, Limit::NotShown);
    let thinks = Point { depth: 10, think: Span::from_millis(10), ..Point::default() };
    assert_eq!(found(&thinks, sample(985, 100)).limit, Limit::Load);
}

#[test]
fn what_the_figures_do_not_show_is_said() {
    let point = Point { depth: 32, peer: Peer::Given, ..Point::default() };
    let nearly = changed(sample(50_000, 640), |seen| seen.load = Some(thread("load", 8.2)));
    let nearly = found(&point, Sample { server: None, ..nearly });
    assert_eq!(nearly.limit, Limit::NotShown);
    assert!(nearly.evidence[0].contains("82 %") && nearly.unseen[0].contains("did not start it"), "{nearly:?}");
    let old = found(&point, Sample { seen: None, ..sample(50_000, 640) });
    assert!(old.limit == Limit::NotShown && old.evidence[0].contains("measure it again"));
    let dead = found(&point, Sample { reads: Tally::default(), ..sample(1, 1) });
    assert!(dead.limit == Limit::NotShown && dead.evidence[0].contains("no command"));
    let starved = |seen: &mut Readings| seen.load = Some(Thread { queued_seconds: 8.3, ..thread("load", 0.1) });
    let starved = found(&point, changed(Sample { reads: Tally::default(), ..sample(1, 1) }, starved));
    assert!(starved.evidence[1].starts_with("load waited 83 % of the time for a core"), "{starved:?}");
}

#[test]
fn rounds_that_differ_are_counted() {
    let point = Point { depth: 4, ..Point::default() };
    let busy = changed(sample(9_000, 444), |seen| seen.load = Some(thread("load", 9.9)));
    let samples = vec![sample(10_000, 400), busy, sample(10_100, 396)];
    let measured = Measured { labels: [].into(), point, samples, untried: None };
    let found = explain(&measured, &Machine::default()).expect("it was measured");
    assert_eq!((found.limit, found.rounds), (Limit::Depth, (2, 3)));
    let empty = Measured { samples: Vec::new(), ..measured };
    assert_eq!(explain(&empty, &Machine::default()), None);
}

#[test]
fn load_beside_it_is_told_of() {
    let latency = Latency { buckets: vec![(2_000_000, 1000)] };
    let beside = Some(Tally { commands: 1000, bytes: 4_096_000, errors: 2, latency });
    let busy = changed(sample(50_000, 80), |seen| seen.threads = vec![thread("shard-0", 9.9)]);
    let point = Point { depth: 4, luns: 2, beside: Some(BackgroundLoad::default()), ..Point::default() };
    let found = found(&point, Sample { beside, ..busy });
    let told = |wanted: &str, of: &[String]| assert!(of.iter().any(|said| said.contains(wanted)), "{of:?}");
    told("another load had 100 commands a second beside it, 2.00 ms each", &found.evidence);
    told("2 commands ended otherwise than well", &found.evidence);
    told("a limit for the volumes of the load beside it", &found.change);
}
