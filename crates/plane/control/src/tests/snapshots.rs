//! Tests of snapshots and clones: deletion rules and invalid requests.

use super::Array;
use crate::request::{
    LockSnapshot, LockWish, NewBackend, NewClone, NewCopy, NewSnapshots, NewVolume, Removal, RollBack,
};
use model::{Refusal, Size, SnapshotLock, SnapshotName, SnapshotReport, Timestamp, code};

fn snapshot(text: &str) -> SnapshotName {
    text.parse().expect("a name")
}

async fn furnished() -> Array {
    let array = Array::new().await;
    array.furnish().await;
    array.create_volume("tank/log", Size::mib(1)).await.expect("a volume");
    array
}

async fn create(
    array: &Array,
    volumes: &[&str],
    name: &str,
    lock: SnapshotLock,
) -> Result<Vec<SnapshotReport>, Refusal> {
    let volumes = volumes.iter().map(|name| name.parse().expect("a name")).collect();
    array
        .control
        .snapshots
        .create(NewSnapshots { volumes, name: name.parse().expect("a name"), lock: lock.into() })
        .await
}

#[tokio::test]
async fn snapshots_of_several_volumes_are_one_set() {
    let array = furnished().await;
    let made = create(&array, &["tank/vm1", "tank/log"], "noon", SnapshotLock::Unlocked).await.expect("two");
    let names: Vec<String> = made.iter().map(|one| one.name.to_string()).collect();
    assert_eq!(names, ["tank/vm1@noon", "tank/log@noon"]);
    assert!(made[0].set.is_some() && made[0].set == made[1].set);
    let refusal = create(&array, &["tank/log"], "noon", SnapshotLock::Unlocked).await.expect_err("taken");
    assert_eq!((refusal.code, refusal.message.as_str()), (code::NAME_TAKEN, "snapshot tank/log@noon already exists"));
    let refusal = create(&array, &["tank/log", "tank/none"], "two", SnapshotLock::Unlocked).await.expect_err("unknown");
    assert_eq!(refusal.code, code::VOLUME_UNKNOWN);
    assert_eq!(array.control.snapshots.list().await.expect("snapshots").len(), 2, "all or none");
}

#[tokio::test]
async fn snapshot_that_is_locked_or_cloned_is_not_deleted() {
    let array = furnished().await;
    let control = &array.control;
    create(&array, &["tank/vm1"], "kept", SnapshotLock::Unlocked).await.expect("one");
    create(&array, &["tank/vm1"], "cloned", SnapshotLock::Unlocked).await.expect("one");
    let until = SnapshotLock::Until(Timestamp::from_unix(4_000_000_000));
    control.snapshots.lock(&snapshot("tank/vm1@kept"), LockSnapshot { lock: until.into() }).await.expect("locked");
    let refusal = control.snapshots.delete(&snapshot("tank/vm1@kept")).await.expect_err("locked");
    assert_eq!(refusal.code, code::SNAPSHOT_LOCKED);
    assert_eq!(refusal.message, "snapshot tank/vm1@kept is locked until 2096-10-02T07:06:40Z");
    let past = LockSnapshot { lock: LockWish::Until(Timestamp::from_unix(1)) };
    let refusal = control.snapshots.lock(&snapshot("tank/vm1@kept"), past).await.expect_err("over");
    assert_eq!(refusal.code, code::TIME_INVALID);

    let name = "tank/test".parse().expect("a name");
    let clone = NewClone { snapshot: snapshot("tank/vm1@cloned"), name, thick: false, zero_detection: false };
    let volume = control.snapshots.create_clone(clone.clone()).await.expect("a clone");
    assert_eq!(control.snapshots.create_clone(clone).await.expect_err("taken").code, code::NAME_TAKEN);
    let refusal = control.snapshots.delete(&snapshot("tank/vm1@cloned")).await.expect_err("cloned");
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (code::SNAPSHOT_IN_USE, "volume tank/test is a clone of snapshot tank/vm1@cloned")
    );
    control.volumes.delete(&volume.name, Removal::default()).await.expect("nobody sees it");
    // The space of the clone is freed in the background.
    while control.snapshots.delete(&snapshot("tank/vm1@cloned")).await.is_err() {}
    assert_eq!(
        control.snapshots.delete(&snapshot("tank/vm1@cloned")).await.expect_err("deleted").code,
        code::SNAPSHOT_UNKNOWN
    );
}

#[tokio::test]
async fn roll_back_is_confirmed() {
    let array = furnished().await;
    create(&array, &["tank/vm1"], "noon", SnapshotLock::Unlocked).await.expect("one");
    let back = |confirmed| RollBack { snapshot: snapshot("tank/vm1@noon"), force: false, confirmed };
    assert_eq!(
        array.control.snapshots.roll_back(back(false)).await.expect_err("not confirmed").code,
        code::UNCONFIRMED
    );
    array.control.snapshots.roll_back(back(true)).await.expect("done");
    let other = RollBack { snapshot: snapshot("tank/vm1@none"), force: false, confirmed: true };
    assert_eq!(array.control.snapshots.roll_back(other).await.expect_err("unknown").code, code::SNAPSHOT_UNKNOWN);
}

#[tokio::test]
async fn copy_is_of_a_volume_or_a_snapshot_of_a_pool_to_a_new_name_in_one() {
    let array = furnished().await;
    let image = NewVolume {
        backend: Some(NewBackend::Ram {}),
        ..NewVolume::new("image".parse().expect("a name"), Some(Size::mib(1)))
    };
    array.control.volumes.create(image).await.expect("a volume");
    create(&array, &["tank/log"], "noon", SnapshotLock::Unlocked).await.expect("one");
    let copy = |source: &str, name: &str| {
        let request = NewCopy { source: source.parse().expect("a name"), name: name.parse().expect("a name") };
        let control = array.control.clone();
        async move { control.copies.start(request).await }
    };
    for (source, name, refused) in [
        ("tank/none", "tank/x", code::VOLUME_UNKNOWN),
        ("tank/log@never", "tank/x", code::SNAPSHOT_UNKNOWN),
        ("image", "tank/x", code::VOLUME_NO_MAP),
        ("tank/log", "x", code::VOLUME_WITHOUT_POOL),
        ("tank/log", "tonk/x", code::POOL_UNKNOWN),
        ("tank/log", "tank/vm1", code::NAME_TAKEN),
    ] {
        assert_eq!(copy(source, name).await.expect_err(name).code, refused, "{source} to {name}");
    }
    assert_eq!(copy("tank/log@noon", "tank/old").await.expect("copied").size, Size::mib(1));
    let unknown = array.control.copies.cancel(&"tank/old".parse().expect("a name")).await;
    assert_eq!(unknown.expect_err("it has ended").code, code::COPY_UNKNOWN);
}

#[tokio::test]
async fn span_of_a_lock_counts_from_the_arrays_clock() {
    let array = furnished().await;
    create(&array, &["tank/vm1"], "kept", SnapshotLock::Unlocked).await.expect("one");
    let asked: LockSnapshot = serde_json::from_str(r#"{"lock":{"for":"30d"}}"#).expect("a request");
    let before = crate::system::now();
    let locked = array.control.snapshots.lock(&snapshot("tank/vm1@kept"), asked).await.expect("locked");
    let SnapshotLock::Until(until) = locked.lock else { panic!("{:?}", locked.lock) };
    assert!(until.since(before) >= 30 * 86400 && until.since(before) < 30 * 86400 + 60, "{until}");
}
