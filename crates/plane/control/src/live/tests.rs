//! Tests of rates computed from two samples.

use super::*;
use crate::tests::Array;
use model::histogram::{BUCKETS, bucket_of};
use model::{
    Activity, DiskCounters, Histogram, SessionActivity, Size, Timestamp, Took, VolumeActivity, VolumeCounters,
    VolumeId, VolumePolicy,
};

fn histogram(times_us: &[u64]) -> Histogram {
    let mut counts = [0; BUCKETS];
    times_us.iter().for_each(|&us| counts[bucket_of(us)] += 1);
    Histogram::new(counts.into_iter())
}

fn volume(name: &str, id: u8, reads_us: &[u64]) -> VolumeActivity {
    let reads = reads_us.len() as u64;
    VolumeActivity {
        name: name.parse().expect("a name"),
        id: VolumeId::from_bytes([id; 16]),
        counters: VolumeCounters { reads, read_bytes: reads * 4096, ..VolumeCounters::default() },
        policy: VolumePolicy::default(),
        cache: None,
        took: Took { reads: histogram(reads_us), ..Took::default() },
    }
}

fn session(id: u32, host: &str, reads_us: &[u64]) -> SessionActivity {
    SessionActivity {
        id,
        host: Some(host.parse().expect("a name")),
        initiator: format!("iqn.2001-04.com.example:{host}"),
        address: "10.0.0.9:4000".parse().expect("an address"),
        portal: "10.0.0.1:3260".parse().expect("an address"),
        commands: reads_us.len() as u64,
        read_bytes: reads_us.len() as u64 * 4096,
        written_bytes: 0,
        took: Took { reads: histogram(reads_us), ..Took::default() },
    }
}

fn moment(before: &Activity, now: &Activity) -> LiveRates {
    LiveRates::between(Timestamp::from_unix(1), Duration::from_secs(2), (before, now), &[])
}

#[test]
fn moment_tells_what_moved_the_slowest_volume_first() {
    let before =
        Activity { volumes: vec![volume("tank/a", 1, &[5]), volume("tank/b", 2, &[5])], ..Activity::default() };
    let now = Activity {
        volumes: vec![volume("tank/a", 1, &[5, 100, 100]), volume("tank/b", 2, &[5]), volume("tank/c", 3, &[5000; 4])],
        ..Activity::default()
    };
    let moment = moment(&before, &now);
    let told: Vec<(String, f64, u64)> =
        moment.volumes.iter().map(|v| (v.volume.to_string(), v.rates.reads, v.rates.p50_us)).collect();
    assert_eq!(told[0].0, "tank/c");
    assert!(told[0].2.abs_diff(5000) <= 5000 / 8);
    assert_eq!((told[1].0.as_str(), told[1].1), ("tank/a", 1.0), "two reads in two seconds");
    assert!(told[1].2.abs_diff(100) <= 100 / 8, "what came before does not count");
    assert_eq!(told.len(), 2, "tank/b stood still");
    assert_eq!((moment.total.reads, moment.total.read_bytes, moment.span_ms), (3.0, 12288.0, 2000));
    assert_eq!(moment.total.latency_histogram.iter().sum::<u64>(), 6);
}

#[test]
fn volume_that_was_opened_anew_and_session_whose_number_was_taken_count_from_nothing() {
    let before = Activity {
        volumes: vec![volume("tank/a", 1, &[5; 100])],
        sessions: vec![session(1, "web", &[5; 100])],
        ..Activity::default()
    };
    let now = Activity {
        volumes: vec![volume("tank/a", 1, &[5; 10])],
        sessions: vec![session(1, "db", &[5; 200]), session(2, "db", &[7; 2])],
        ..Activity::default()
    };
    let moment = moment(&before, &now);
    assert_eq!((moment.volumes[0].rates.reads, moment.volumes[0].rates.read_bytes), (5.0, 20480.0));
    assert_eq!((moment.sessions[0].id, moment.sessions[0].rates.reads), (1, 100.0));
    assert_eq!((moment.hosts.len(), moment.hosts[0].sessions, moment.hosts[0].rates.reads), (1, 2, 101.0));
    assert_eq!((moment.portals[0].sessions, moment.portals[0].commands), (2, 101.0));
}

#[test]
fn disk_tells_how_long_it_took_and_how_much_of_the_time() {
    let disk = |reads, busy_ns, waited_ns| {
        let name = "d0".parse().expect("a name");
        (name, DiskCounters { reads, busy_ns, waited_ns, read_bytes: reads * 512, ..DiskCounters::default() })
    };
    let before = Activity { disks: vec![disk(10, 0, 0)], ..Activity::default() };
    let now = Activity { disks: vec![disk(110, 1_000_000_000, 4_000_000_000)], ..Activity::default() };
    let told = &moment(&before, &now).disks[0];
    assert_eq!((told.reads, told.mean_us, told.busy, told.depth), (50.0, 40_000.0, 0.5, 4.0));
    assert!(moment(&now, &now).disks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_watches_hears_every_second_and_nobody_is_looked_for_afterwards() {
    let array = Array::new().await;
    array.add_disks(&["d0"]).await;
    array.create_pool("tank", model::Level::Raid0, &["d0"]).await.expect("a pool");
    array.create_volume("tank/a", Size::mib(8)).await.expect("a volume");
    let mut watching = array.control.live.watch();
    let first = watching.next().await.expect("goes on").expect("a moment");
    assert!(first.volumes.is_empty(), "nobody does anything");
    let mut other = array.control.live.watch();
    let at_once = other.next().await.expect("goes on").expect("a moment");
    assert_eq!(at_once, first, "others share what was seen");
    drop((watching, other));
    tokio::time::sleep(SAMPLE_INTERVAL * 4).await;
    assert!(array.control.live.watched.lock().expect("not poisoned").is_none(), "nobody looks any more");
    let mut again = array.control.live.watch();
    assert!(again.next().await.is_some());
    array.control.core.announce_stop();
    assert!(again.next().await.is_none());
}

#[tokio::test]
async fn slow_volume_says_what_it_waits_for() {
    let disk = DiskRates {
        disk: "d3".parse().expect("a name"),
        reads: 80.0,
        writes: 0.0,
        read_bytes: 0.0,
        written_bytes: 0.0,
        mean_us: 11_200.0,
        busy: 0.97,
        depth: 1.0,
        errors: 0,
    };
    let rates = Rates { reads: 80.0, p50_us: 12_000, p99_us: 15_000, ..Rates::default() };
    let array = Array::new().await;
    array.add_disks(&["d2", "d3"]).await;
    let pool = array.create_pool("tank", model::Level::Raid1, &["d2", "d3"]).await.expect("a pool");
    let free = VolumePolicy::default();
    let told = |rates: &Rates, policy, pool| {
        cause::cause(rates, policy, pool, std::slice::from_ref(&disk)).map(|c| c.to_string())
    };
    assert_eq!(told(&rates, &free, Some(&pool)).as_deref(), Some("disk d3: 11.2 ms each, 97 % busy"));
    let limited = VolumePolicy { iops: Some(80), ..free };
    assert_eq!(told(&rates, &limited, Some(&pool)).as_deref(), Some("its IOPS limit of 80"));
    let quick = Rates { p99_us: 100, ..rates.clone() };
    assert_eq!(told(&quick, &free, Some(&pool)), None);
    assert_eq!(told(&rates, &free, None), None, "of a volume without a pool nothing is known");
    let mut lost = pool.clone();
    lost.groups[0].members[0].state = model::MemberState::Rebuilding;
    assert_eq!(told(&rates, &free, Some(&lost)).as_deref(), Some("the rebuild of pool tank"));
}
