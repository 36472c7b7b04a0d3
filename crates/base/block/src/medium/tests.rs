use super::*;

const GIB: u64 = 1 << 30;

/// Returns the operations per second of `count` operations at queue depth `depth`, each at the address that `place`
/// returns.
fn rate(medium: Medium, depth: usize, count: u64, place: impl Fn(u64) -> Transfer) -> f64 {
    let mut timing = Timing::new(medium, GIB);
    let (mut now, mut submitted) = (0, 0);
    let mut under_way: Vec<OperationHandle> = Vec::new();
    let mut ended = 0;
    while ended < count {
        while under_way.len() < depth {
            under_way.push(timing.submit(now, place(submitted)));
            submitted += 1;
        }
        let mut next = u64::MAX;
        under_way.retain(|&ticket| match timing.poll(now, ticket) {
            Progress::Ended => {
                ended += 1;
                false
            }
            Progress::Until(then) => {
                next = next.min(then);
                true
            }
        });
        if under_way.len() == depth {
            assert!(next > now, "time goes on");
            now = next;
        }
    }
    ended as f64 * 1e9 / now as f64
}

/// Pseudo-random addresses from Weyl's sequence.
fn scattered(bytes: u64, write: bool) -> impl Fn(u64) -> Transfer {
    let places = GIB / bytes;
    move |number| {
        let part = (number as f64 * 0.618_033_988_749_894_9 + (number * number % 97) as f64 / 97.0).fract();
        Transfer { offset: (part * places as f64) as u64 * bytes, bytes, write }
    }
}

fn in_order(bytes: u64, write: bool) -> impl Fn(u64) -> Transfer {
    move |number| Transfer { offset: number * bytes % GIB, bytes, write }
}

#[track_caller]
fn assert_between(rate: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&rate), "{rate:.0} is not from {low} to {high}");
}

#[test]
fn spindles_do_as_many_random_reads_as_the_papers_reckon_with() {
    assert_between(rate(Medium::Sas15k, 1, 2_000, scattered(4096, false)), 170.0, 205.0);
    assert_between(rate(Medium::Sata, 1, 2_000, scattered(4096, false)), 70.0, 90.0);
    assert_between(rate(Medium::Sas15k, 1, 2_000, scattered(4096, true)), 170.0, 205.0);
}

#[test]
fn spindles_choose_among_what_waits() {
    let (one, many) = (scattered(4096, false), scattered(4096, false));
    let alone = rate(Medium::Sata, 1, 2_000, one);
    assert_between(rate(Medium::Sata, 32, 2_000, many) / alone, 1.8, 4.0);
    assert_between(rate(Medium::Sas15k, 32, 2_000, scattered(4096, false)), 320.0, 650.0);
}

#[test]
fn spindles_stream_what_follows_and_miss_a_turn_for_a_late_write() {
    let bytes = 128 << 10;
    assert_between(rate(Medium::Sas15k, 1, 1_000, in_order(bytes, false)) * bytes as f64 / 1e6, 140.0, 151.0);
    assert_between(rate(Medium::Sata, 4, 1_000, in_order(bytes, true)) * bytes as f64 / 1e6, 120.0, 133.0);
    // Alone, each write arrives when its sector has just passed: one revolution for each, 120 a second.
    assert_between(rate(Medium::Sata, 1, 500, in_order(4096, true)), 100.0, 121.0);
}

#[test]
fn flash_has_the_rates_of_its_data_sheet() {
    for (medium, one, depth, reads, writes, megabytes) in [
        (Medium::Ssd, (6_000.0, 7_500.0), 32, (68_000.0, 77_000.0), (33_000.0, 37_000.0), (480.0, 501.0)),
        (Medium::Nvme, (8_400.0, 9_500.0), 128, (420_000.0, 460_000.0), (140_000.0, 155_000.0), (2_600.0, 2_801.0)),
    ] {
        let (first, last) = one;
        assert_between(rate(medium, 1, 5_000, scattered(4096, false)), first, last);
        assert_between(rate(medium, depth, 20_000, scattered(4096, false)), reads.0, reads.1);
        assert_between(rate(medium, depth, 20_000, scattered(4096, true)), writes.0, writes.1);
        let bytes = 128 << 10;
        let stream = rate(medium, 32, 5_000, in_order(bytes, false)) * f64::from(bytes as u32) / 1e6;
        assert_between(stream, megabytes.0, megabytes.1);
    }
}

#[test]
fn media_are_ordered_as_people_pay_for_them() {
    let rates = Medium::ALL.map(|medium| rate(medium, 32, 2_000, scattered(4096, false)));
    assert!(rates.is_sorted(), "{rates:?}");
    assert_eq!("nvme".parse(), Ok(Medium::Nvme));
    assert!("tape".parse::<Medium>().is_err_and(|error| error.contains("sas15k")));
}

#[test]
fn nothing_waits_for_ever_and_what_is_forgotten_is_done() {
    let mut timing = Timing::new(Medium::Sata, GIB);
    let near = |number: u64| Transfer { offset: number % 64 * 4096, bytes: 4096, write: false };
    // The arm is already moving when the others arrive.
    let _first = timing.submit(0, near(9));
    let far = timing.submit(0, Transfer { offset: GIB - 4096, bytes: 4096, write: false });
    let mut now = 0;
    let mut others: Vec<OperationHandle> = (0..8).map(|number| timing.submit(0, near(number))).collect();
    for number in 8.. {
        let Progress::Until(then) = timing.poll(now, far) else { break };
        assert!(then < 900_000_000, "it waits for {then} ns");
        now = then;
        let before = others.len();
        others.retain(|&ticket| timing.poll(now, ticket) != Progress::Ended);
        others.extend((others.len()..before).map(|_| timing.submit(now, near(number))));
    }
    let forgotten = timing.submit(now, near(0));
    timing.forget(forgotten);
    let behind = timing.submit(now, near(1));
    let Progress::Until(then) = timing.poll(now, behind) else { panic!("it takes time") };
    assert!(then > now);
}
