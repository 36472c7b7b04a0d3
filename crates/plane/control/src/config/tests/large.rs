//! Tests of documents with thousands of volumes and hosts.

use super::apply;
use crate::config::{ApplyConfig, Document, VolumeEntry};
use crate::tests::Array;
use crate::{State, Store};
use model::{Provision, Size, VolumeName, VolumePolicy, code};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Instant;
use testbed::Testbed;

const VOLUMES: usize = 4096;
const HOSTS: usize = 3586;

/// State with many hosts, each with a volume of its own; every eighth volume is also presented to the first
/// host.
fn large() -> State {
    let id = |n: usize| format!("ffffffff-ffff-4fff-bfff-{n:012x}");
    let volume = |n| {
        (format!("v{n:05}"), json!({"id": id(n), "size": 1 << 20, "block_bytes": 512, "backend": {"kind": "null"}}))
    };
    let host = |n: usize| {
        let initiators = [format!("iqn.2001-04.com.example:h{n:05}")];
        (format!("h{n:05}"), json!({"any": false, "initiators": initiators, "networks": []}))
    };
    let shown = |volume: usize, host: usize, lun: usize| {
        json!({"volume": format!("v{volume:05}"), "volume_id": id(volume), "host": format!("h{host:05}"), "target": "default",
            "lun": lun, "read_only": false})
    };
    let own = (0..HOSTS).map(|n| shown(n, n, 0));
    let first = (1..VOLUMES / 8).map(|n| shown(n * 8, 0, n));
    let presentations: Vec<Value> = own.chain(first).collect();
    let state = json!({"disks": {}, "pools": {}, "pending": {},
        "volumes": (0..VOLUMES).map(volume).collect::<serde_json::Map<_, _>>(),
        "hosts": (0..HOSTS).map(host).collect::<serde_json::Map<_, _>>(),
        "targets": {"default": {"iqn": "iqn.2026-11.io.blockyard:node1"}}, "presentations": presentations});
    serde_json::from_value(state).expect("a state")
}

/// Prints the time taken. Quadratic behavior took minutes, and is all that this judges.
#[tokio::test]
async fn document_of_thousands_is_planned_and_applied_in_seconds() {
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(&dir.path().join("state")).expect("a store").commit(large()).expect("is kept");
    let array = Array::on(dir, Testbed::default()).await;
    let mut document = array.control.config.export(&()).await.expect("a document");
    assert_eq!((document.volume.len(), document.host.len()), (VOLUMES, HOSTS));
    let begun = Instant::now();
    let told = array.control.config.plan(&ApplyConfig { prune: true, ..apply(&document) }, &()).await.expect("a plan");
    let planned = begun.elapsed();
    assert!(told.steps.is_empty() && told.kept.is_empty(), "{:?}", told.steps);
    document.volume.values_mut().take(50).for_each(|entry| entry.size = Some(Size::mib(2)));
    let begun = Instant::now();
    let applied = array.control.config.apply(apply(&document), &()).await.expect("is applied");
    let took = begun.elapsed();
    assert_eq!(applied.steps.len(), 50);
    println!("{VOLUMES} volumes, {HOSTS} hosts: planned in {planned:?}, 50 of them grown in {took:?}");
    assert!(planned.as_secs() < 20, "{planned:?}");
}

/// Regression: each volume that grew read all volumes and wrote the state.
#[tokio::test]
async fn volumes_that_grow_are_not_read_one_by_one_and_the_state_is_written_once() {
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(&dir.path().join("state")).expect("a store").commit(large()).expect("is kept");
    let testbed = Testbed::default();
    let volumes_read = testbed.volumes_read.clone();
    let array = Array::on(dir, testbed).await;
    let mut document = array.control.config.export(&()).await.expect("a document");
    let mut grown_to = async |size: u64, count: usize| {
        document.volume.values_mut().take(count).for_each(|entry| entry.size = Some(Size::mib(size)));
        let before = (volumes_read.load(Ordering::Relaxed), array.control.core.store.version());
        let applied = array.control.config.apply(apply(&document), &()).await.expect("is applied");
        assert_eq!(applied.steps.len(), count);
        (volumes_read.load(Ordering::Relaxed) - before.0, array.control.core.store.version() - before.1)
    };
    let (of_one, of_fifty) = (grown_to(2, 1).await, grown_to(3, 50).await);
    assert_eq!(of_one, of_fifty, "volumes read, and versions of the state");
    assert!(of_one.0 <= 2 * VOLUMES && of_one.1 == 1, "{of_one:?}");
    let sizes = |all: &[model::VolumeReport]| all.iter().filter(|volume| volume.size == Size::mib(3)).count();
    assert_eq!(sizes(&array.control.volumes.list().await.expect("volumes")), 50);
    let array = array.restarted().await;
    assert_eq!(sizes(&array.control.volumes.list().await.expect("volumes")), 50, "and they have grown for good");
}

#[tokio::test]
async fn one_volume_is_read_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(&dir.path().join("state")).expect("a store").commit(large()).expect("is kept");
    let testbed = Testbed::default();
    let volumes_read = testbed.volumes_read.clone();
    let array = Array::on(dir, testbed).await;
    let before = volumes_read.load(Ordering::Relaxed);
    let name = "v00007".parse().expect("a name");
    assert_eq!(array.control.volumes.report(&name).await.expect("is there").size, Size::mib(1));
    array.control.volumes.resize(&name, crate::request::Resize { size: Size::mib(2) }).await.expect("grows");
    array.control.volumes.report(&"v99999".parse().expect("a name")).await.expect_err("there is none");
    assert_eq!(volumes_read.load(Ordering::Relaxed) - before, 2);
}

/// Adds `count` thin volumes to the pool in the document, each with a setting of its own.
fn with_volumes(document: &Document, count: u64) -> Document {
    let mut document = document.clone();
    for n in 0..count {
        let settings = [("iops".to_owned(), (100 + n).to_string())].into();
        let (size, provision) = (Some(Size::mib(1)), Some(Provision::Thin));
        let entry = VolumeEntry { size, provision, settings, ..VolumeEntry::default() };
        document.volume.insert(format!("tank/more{n}").parse().expect("a name"), entry);
    }
    document
}

/// Regression: each volume wrote the state, when it was set and when it was rolled back.
#[tokio::test]
async fn settings_of_many_volumes_write_the_state_as_often_as_those_of_one() {
    let mut written = Vec::new();
    for count in [1, 20] {
        let array = Array::new().await;
        array.furnish().await;
        let document = with_volumes(&array.control.config.export(&()).await.expect("a document"), count);
        let before = array.control.core.store.version();
        array.control.config.apply(apply(&document), &()).await.expect("is applied");
        written.push(array.control.core.store.version() - before);
        let array = array.restarted().await;
        let all = array.control.volumes.list().await.expect("volumes");
        let set = all.iter().filter(|one| one.policy.is_some_and(|policy| policy != VolumePolicy::default()));
        assert_eq!(set.count() as u64, count, "every one has its setting, for good");
    }
    assert_eq!(written[0], written[1], "versions of the state");
}

/// A rollback is one batch as well: here an awaited initiator does not log in again.
#[tokio::test]
async fn many_volumes_that_are_taken_back_write_the_state_as_often_as_one() {
    let mut written = Vec::new();
    for count in [1, 20] {
        let array = Array::new().await;
        array.furnish().await;
        let document = array.control.config.export(&()).await.expect("a document");
        let (names, state) = (array.control.volumes.list().await.expect("volumes").len(), array.control.core.state());
        let before = array.control.core.store.version();
        let request = ApplyConfig {
            initiators: vec!["iqn.2001-04.com.example:nobody".parse().expect("a name")],
            within: Some("1ms".parse().expect("a span")),
            ..apply(&with_volumes(&document, count))
        };
        let refusal = array.control.config.apply(request, &()).await.expect_err("nobody comes back");
        assert_eq!((refusal.code, refusal.message.contains("could not roll back")), (code::INITIATOR_LATE, false));
        written.push(array.control.core.store.version() - before);
        assert_eq!(array.control.volumes.list().await.expect("volumes").len(), names, "all of them are gone");
        assert_eq!(array.control.core.state().policies, state.policies, "and what was set for them");
    }
    assert_eq!(written[0], written[1], "versions of the state");
}

/// The data plane refuses the last one, whose pool has no log for write-back.
#[tokio::test]
async fn settings_that_are_refused_for_one_volume_hold_for_none() {
    let array = Array::new().await;
    array.furnish().await;
    let document = with_volumes(&array.control.config.export(&()).await.expect("a document"), 8);
    array.control.config.apply(apply(&document), &()).await.expect("is applied");
    let policies = async || {
        let all = array.control.volumes.list().await.expect("volumes");
        all.into_iter().map(|one| (one.name, one.policy)).collect::<Vec<_>>()
    };
    let (before, state) = (policies().await, array.control.core.state());
    let wanted = |n: u64| {
        let (key, value) = if n == 7 { ("write-policy", "back") } else { ("iops", "77") };
        (format!("tank/more{n}").parse::<VolumeName>().expect("a name"), [(key.to_owned(), value.to_owned())].into())
    };
    let refusal = array.control.volumes.set_all(&(0..8).map(wanted).collect::<Vec<_>>()).await.err().expect("no log");
    assert_eq!(refusal.code, code::POLICY_IMPOSSIBLE);
    assert_eq!(policies().await, before, "every one is as it was");
    assert_eq!(array.control.core.state(), state);
}

#[tokio::test]
async fn volumes_that_cannot_be_deleted_are_told_and_the_others_go() {
    let array = Array::new().await;
    array.furnish().await;
    let document = with_volumes(&array.control.config.export(&()).await.expect("a document"), 3);
    array.control.config.apply(apply(&document), &()).await.expect("is applied");
    let names =
        ["tank/more0", "tank/vm1", "tank/none", "tank/more2"].map(|name| name.parse::<VolumeName>().expect("a name"));
    let before = array.control.core.store.version();
    let left = array.control.volumes.delete_all(&names, false).await;
    let told: Vec<_> = left.iter().map(|(name, refusal)| (name.to_string(), refusal.code)).collect();
    assert_eq!(told, [("tank/vm1".to_owned(), code::VOLUME_IN_USE), ("tank/none".to_owned(), code::VOLUME_UNKNOWN)]);
    assert_eq!(array.control.core.store.version() - before, 1, "what was set for both is forgotten together");
    let more = array
        .control
        .volumes
        .list()
        .await
        .expect("volumes")
        .into_iter()
        .filter(|one| one.name.to_string().contains("more"));
    assert_eq!(more.map(|one| one.name.to_string()).collect::<Vec<_>>(), ["tank/more1"]);
}
