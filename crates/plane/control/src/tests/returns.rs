//! Tests of pools whose disks appear after the start, or under other names.

use super::Array;
use crate::request::PoolSettings;
use model::{Absence, DiskName, Name, PoolState, VolumeName, VolumeState};
use std::fs;

const DISKS: [&str; 4] = ["d0", "d1", "d2", "d3"];

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

async fn round(array: &Array) {
    array.control.reconciler.handle_events(Vec::new()).await.expect("looked at");
}

fn take_away(array: &Array, disks: &[&str]) {
    let moved = |disk| fs::rename(array.folder().join(format!("{disk}.img")), array.dir.path().join(disk));
    disks.iter().for_each(|disk| moved(disk).expect("renames"));
}

fn bring_back(array: &Array, disk: &str, called: &str) {
    fs::rename(array.dir.path().join(disk), array.folder().join(called)).expect("renames");
}

#[tokio::test]
async fn pool_opens_by_itself_when_its_disks_are_there_again_whatever_they_are_called() {
    let array = Array::new().await;
    array.furnish().await;
    take_away(&array, &DISKS);
    let array = array.restarted().await;
    round(&array).await;
    let waiting = array.control.pools.report(&name("tank")).await.expect("known").waiting.expect("it waits");
    assert_eq!(waiting.disks, DISKS.map(|disk| disk.parse::<DiskName>().expect("a name")));
    assert_eq!((waiting.needs_operator, waiting.degraded_in_s), (false, None), "nothing of it is there");
    let volume: VolumeName = "tank/vm1".parse().expect("a name");
    let missing = array.control.volumes.report(&volume).await.expect("presented");
    assert_eq!(missing.state, VolumeState::Missing);
    assert!(missing.reason.expect("why").contains("it waits for disks d0, d1, d2"), "what it waits for");
    let problem = array.control.status.report().await.expect("a status").summary;
    assert!(problem.contains("attach disks d0, d1, d2") && problem.contains("opens by itself"), "{problem}");

    for (disk, called) in DISKS[..3].iter().zip(["z.img", "d1.img", "y.img"]) {
        bring_back(&array, disk, called);
    }
    round(&array).await;
    let pool = array.control.pools.report(&name("tank")).await.expect("known");
    assert_eq!(pool.state, PoolState::Missing, "the fourth may come, too");
    assert!(pool.waiting.expect("it waits").degraded_in_s.is_some_and(|left| left > 20));
    bring_back(&array, "d3", "d3.img");
    // Folders are searched every few seconds only.
    for _ in 0..100 {
        round(&array).await;
        if array.control.pools.report(&name("tank")).await.expect("known").state == PoolState::Healthy {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let pool = array.control.pools.report(&name("tank")).await.expect("known");
    assert_eq!((pool.state, pool.waiting), (PoolState::Healthy, None));
    assert_eq!(array.control.volumes.report(&volume).await.expect("open").state, VolumeState::Online);
}

#[tokio::test]
async fn access_has_the_shape_of_what_is_presented_and_of_nothing_else() {
    let array = Array::new().await;
    array.furnish().await;
    array.create_volume("tank/hidden", model::Size::mib(8)).await.expect("a volume");
    let absent = |array: &Array| array.control.core.state().access(&[]).absent;
    let shown = absent(&array);
    assert_eq!(shown.values().map(|volume| volume.name.to_string()).collect::<Vec<_>>(), ["tank/vm1"]);
    let first = shown.values().next().expect("one").clone();
    assert_eq!(
        (first.attributes.size, first.attributes.block_bytes, first.absence),
        (model::Size::mib(8), 512, Absence::Waits)
    );
    let grown = crate::request::Resize { size: model::Size::mib(16) };
    array.control.volumes.resize(&"tank/vm1".parse().expect("a name"), grown).await.expect("grows");
    round(&array).await;
    assert_eq!(absent(&array).values().next().expect("one").attributes.size, model::Size::mib(16));
    let array = array.restarted().await;
    assert_eq!(absent(&array).len(), 1, "the state keeps it");
    let settings = [("disk.wait".to_owned(), "1h".to_owned())].into();
    let pool = array.control.pools.set(&name("tank"), PoolSettings { settings }).await.expect("a setting");
    assert_eq!(pool.policy.wait.map(|span| span.millis()), Some(3_600_000));
}
