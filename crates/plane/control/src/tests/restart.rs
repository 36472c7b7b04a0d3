//! Tests of restarts of the daemon, with and without missing parts.

use super::{Array, new_presentation};
use crate::request::{ImportPool, NewBackend, NewDisk, NewVolume, Removal, Replace, Unpresent};
use model::{
    DiskState, Level, MemberState, Name, Order, PoolState, RefusedLogin, RefusedWhy, Severity, Size, Timestamp,
    VolumeState, code,
};
use std::fs;
use std::path::Path;
use testbed::Testbed;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

#[tokio::test]
async fn array_comes_back_as_it_was() {
    let array = Array::new().await;
    array.furnish().await;
    let ram = NewVolume { backend: Some(NewBackend::Ram {}), ..super::new_volume("scratch", Some(Size::mib(1))) };
    array.control.volumes.create(ram).await.expect("a volume");
    // The report of a volume names its granule only after the pool was opened again.
    let array = array.restarted().await;
    let (state, access) = (array.control.core.state(), array.access());
    let volumes = array.control.volumes.list().await.expect("volumes");

    let array = array.restarted().await;
    assert_eq!(array.control.core.state(), state);
    assert_eq!(array.access(), access);
    assert_eq!(array.control.volumes.list().await.expect("volumes"), volumes);
    let status = array.control.status.report().await.expect("a status");
    assert_eq!((status.severity, status.summary.as_str()), (Severity::Good, "All good"));
}

/// The reconcile loop writes them down, so that they survive a kill of the daemon as well.
#[tokio::test]
async fn who_was_not_let_in_is_known_after_a_restart() {
    let login = |number: u64| RefusedLogin {
        initiator: Some(format!("iqn.2001-04.com.example:h{number}")),
        address: "10.0.0.9".parse().expect("an address"),
        target: None,
        reason: RefusedWhy::NoMapping { host: name("web"), target: name("default") },
        status: "authorization failure (0202)".to_owned(),
        delay_ms: 0,
        count: number,
        last: Timestamp::from_unix(1_700_000_000 - number),
    };
    let refused: Vec<_> = (1..=3).map(login).collect();
    let mut testbed = Testbed::default();
    testbed.hosts.refused.clone_from(&refused);
    let array = Array::on(tempfile::tempdir().expect("a folder"), testbed).await;
    array.control.reconciler.handle_events(Vec::new()).await.expect("seen to");
    let array = array.restarted().await;
    assert_eq!(array.control.refused_logins.list().await.expect("told"), refused);
    array.control.core.keep_document("refused-logins", "what another version kept".into()).expect("kept");
    let array = array.restarted().await;
    assert_eq!(array.control.refused_logins.list().await.expect("told"), [], "it starts all the same");
}

#[tokio::test]
async fn disks_that_a_killed_daemon_still_holds_are_waited_for() {
    let array = Array::new().await;
    array.furnish().await;
    // More often than each disk is tried once at its path and once elsewhere.
    let testbed = Testbed { busy: 12, ..Testbed::default() };
    let array = array.restarted_on(testbed).await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert_eq!(pool.state, PoolState::Healthy);
}

#[tokio::test]
async fn pool_is_found_under_other_names_in_any_order() {
    let array = Array::new().await;
    array.furnish().await;
    let folder = array.folder();
    let shuffle =
        [("d0.img", "x"), ("d1.img", "d0.img"), ("d2.img", "d1.img"), ("x", "d2.img"), ("d3.img", "else.raw")];
    for (from, to) in shuffle {
        fs::rename(folder.join(from), folder.join(to)).expect("renames");
    }
    let array = array.restarted().await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert_eq!(pool.state, PoolState::Healthy);
    let state = array.control.core.state();
    for (disk, file) in [("d0", "d2.img"), ("d1", "d0.img"), ("d2", "d1.img"), ("d3", "else.raw")] {
        assert!(state.disks[&name(disk)].path.ends_with(file), "{disk} is remembered where it was found");
    }
}

#[tokio::test]
async fn pool_is_found_from_its_disks_alone_by_a_node_that_never_saw_it() {
    let array = Array::new().await;
    array.furnish().await;
    let array = array.restarted().await;
    let volume = array.control.volumes.list().await.expect("volumes").remove(0);
    fs::remove_dir_all(array.dir.path().join("state")).expect("forgets everything");
    let array = array.restarted().await;
    assert!(array.control.pools.list().await.expect("pools").is_empty());
    for disk in ["d3", "d1", "d0"] {
        let path = array.folder().join(format!("{disk}.img")).to_string_lossy().into_owned();
        array
            .control
            .disks
            .add(NewDisk { path, name: None, create: None, force: false, ..NewDisk::default() })
            .await
            .expect("a disk");
    }
    let asked = array.control.pools.import(&name("tank"), ImportPool::default()).await.expect_err("d2 was not added");
    assert!(asked.code == code::UNCONFIRMED && asked.message.contains("group 0 slot 2"), "{asked}");
    let confirmed = ImportPool { confirmed: true, ..ImportPool::default() };
    let pool = array.control.pools.import(&name("tank"), confirmed).await.expect("found");
    assert_eq!(pool.state, PoolState::Degraded, "d2 was not added");
    assert_eq!(array.control.volumes.list().await.expect("volumes"), vec![volume]);
    assert!(array.control.pools.import(&name("tank"), ImportPool::default()).await.is_err(), "it is open already");
}

#[tokio::test]
async fn pool_that_was_exported_stays_closed_until_it_is_imported() {
    let array = Array::new().await;
    array.furnish().await;
    let array = array.restarted().await;
    let refusal = array.control.pools.export(&name("tank"), Removal::default()).await.expect_err("a host sees it");
    assert_eq!(refusal.code, code::POOL_IN_USE);
    let seen = Unpresent { volume: "tank/vm1".parse().expect("a name"), host: name("web"), target: None, force: false };
    array.control.presentations.unpresent(&seen).await.expect("no more");
    let volume = array.control.volumes.list().await.expect("volumes").remove(0);
    array.control.pools.export(&name("tank"), Removal::default()).await.expect("exported");
    assert_eq!(
        array.control.pools.export(&name("tank"), Removal::default()).await.expect_err("it is gone").code,
        code::POOL_UNKNOWN
    );
    let array = array.restarted().await;
    assert!(array.control.pools.list().await.expect("pools").is_empty());
    let disk = array.control.disks.report(&name("d0")).await.expect("a disk");
    assert_eq!((disk.state, disk.label.pool().map(|(_, pool)| pool.clone())), (DiskState::Free, Some(name("tank"))));
    let pool = array.control.pools.import(&name("tank"), ImportPool::default()).await.expect("found");
    assert_eq!(pool.state, PoolState::Healthy);
    assert_eq!(array.control.volumes.list().await.expect("volumes"), vec![volume]);
}

#[tokio::test]
async fn pool_that_was_imported_read_only_is_opened_so_until_it_is_imported_for_writing() {
    let array = Array::new().await;
    array.furnish().await;
    let read_only = || ImportPool { read_only: true, ..ImportPool::default() };
    let refusal = array.control.pools.import(&name("tank"), read_only()).await.expect_err("it is open for writing");
    assert_eq!(refusal.code, code::NAME_TAKEN);
    assert!(refusal.hint.contains("export it first with blockyard pool export tank"), "{refusal}");
    array.control.pools.export(&name("tank"), Removal { force: true }).await.expect("exported");
    array.control.pools.import(&name("tank"), read_only()).await.expect("imported");

    let array = array.restarted().await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert!(pool.read_only.is_some() && pool.imported_read_only);
    let refusal = array.control.pools.import(&name("tank"), read_only()).await.expect_err("it is open so");
    assert!(refusal.hint.contains("export it first with blockyard pool export tank"), "{refusal}");
    let action = &array.control.status.report().await.expect("a status").problems[0].action;
    assert_eq!(action, "to write to it, run blockyard pool import tank");

    // A disk that cannot be opened must not be written either.
    let away = array.dir.path().join("away");
    fs::create_dir(&away).expect("a folder");
    let disks = ["d0.img", "d1.img", "d2.img"];
    disks.iter().for_each(|disk| fs::rename(array.folder().join(disk), away.join(disk)).expect("takes away"));
    let array = array.restarted().await;
    let action = &array.control.status.report().await.expect("a status").problems[0].action;
    assert!(action.contains("blockyard pool import tank --read-only"), "{action}");
    disks.iter().for_each(|disk| fs::rename(away.join(disk), array.folder().join(disk)).expect("brings back"));

    let pool = array.control.pools.import(&name("tank"), ImportPool::default()).await.expect("imported");
    assert!(pool.read_only.is_none() && !pool.imported_read_only);
    let array = array.restarted().await;
    assert!(array.control.pools.report(&name("tank")).await.expect("a pool").read_only.is_none());
}

/// A refused import leaves everything as it was.
#[tokio::test]
async fn import_that_is_refused_leaves_the_choice_as_it_was() {
    let array = Array::new().await;
    array.furnish().await;
    let away = array.dir.path().join("away");
    fs::create_dir(&away).expect("a folder");
    let disks = ["d0.img", "d1.img", "d2.img"];
    disks.iter().for_each(|disk| fs::rename(array.folder().join(disk), away.join(disk)).expect("takes away"));
    let array = array.restarted().await;
    let before = array.control.core.state();
    let read_only = ImportPool { read_only: true, ..ImportPool::default() };
    let refusal = array.control.pools.import(&name("tank"), read_only).await.expect_err("its disks are away");
    assert_eq!(refusal.code, code::POOL_INCOMPLETE);
    assert_eq!(array.control.core.state(), before);
}

#[tokio::test]
async fn missing_disk_degrades_and_is_named() {
    let array = Array::new().await;
    array.furnish().await;
    array.wait_for_no_disk("tank").await;
    fs::rename(array.folder().join("d2.img"), array.dir.path().join("away")).expect("takes away");
    let array = array.restarted().await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert_eq!(pool.state, PoolState::Degraded);
    let lost = pool.members().find(|member| member.state == MemberState::Missing).expect("one is missing");
    assert_eq!(lost.disk, Some(name("d2")), "a missing member keeps its name");
    let disk = array.control.disks.report(&name("d2")).await.expect("known");
    assert_eq!(disk.state, DiskState::Missing);
    let status = array.control.status.report().await.expect("a status");
    assert_eq!(status.severity, Severity::Warning);
    assert_eq!(status.summary, "pool tank is degraded: replace the lost disk with blockyard disk replace d2 NEW");
    assert_eq!(status.problems[0].meaning, "online; survives one more disk failure");

    array.add_disks(&["spare"]).await;
    let by = Replace { replacement: name("spare"), force: false, confirmed: false };
    let pool =
        array.control.pools.replace_disk(&name("d2"), by).await.expect("a disk that is not there can be replaced");
    assert_eq!(pool.state, PoolState::Rebuilding);
}

#[tokio::test]
async fn missing_disk_that_is_back_takes_its_place_again() {
    let array = Array::new().await;
    array.furnish().await;
    array.wait_for_no_disk("tank").await;
    let (here, away) = (array.folder().join("d2.img"), array.dir.path().join("away"));
    fs::rename(&here, &away).expect("renames");
    let array = array.restarted().await;
    let again = || Replace { replacement: name("d2"), force: false, confirmed: false };
    let absent = array.control.pools.replace_disk(&name("d2"), again()).await.expect_err("it is not there");
    assert_eq!(absent.code, code::DISK_MISSING);

    fs::rename(&away, &here).expect("renames");
    let pool = array.control.pools.replace_disk(&name("d2"), again()).await.expect("it is back");
    assert_eq!(pool.state, PoolState::Rebuilding);
}

#[tokio::test]
async fn missing_pool_is_reported_and_blocks_nothing_else() {
    let array = Array::new().await;
    array.furnish().await;
    array.add_disks(&["e0", "e1"]).await;
    array.create_pool("pond", Level::Raid1, &["e0", "e1"]).await.expect("a pool");
    let away = array.dir.path().join("away");
    fs::create_dir(&away).expect("a folder");
    for disk in ["d0.img", "d1.img", "d2.img"] {
        fs::rename(array.folder().join(disk), away.join(disk)).expect("takes away");
    }
    let array = array.restarted().await;
    let states: Vec<_> =
        array.control.pools.list().await.expect("pools").into_iter().map(|pool| (pool.name, pool.state)).collect();
    assert_eq!(states, [(name("pond"), PoolState::Healthy), (name("tank"), PoolState::Missing)]);
    assert_eq!(array.control.presentations.list().len(), 1, "a pool that is not open proves nothing");
    let status = array.control.status.report().await.expect("a status");
    assert_eq!(status.severity, Severity::Critical);
    assert_eq!(status.problems.len(), 1, "its disks are not told one by one: {:?}", status.problems);

    for disk in ["d0.img", "d1.img", "d2.img"] {
        fs::rename(away.join(disk), array.folder().join(disk)).expect("brings back");
    }
    let pool = array.control.pools.import(&name("tank"), ImportPool::default()).await.expect("is back");
    assert_eq!(pool.state, PoolState::Healthy);
    assert_eq!(array.access().presentations.len(), 1);
}

#[tokio::test]
async fn presentation_of_a_vanished_volume_is_dropped_and_never_shows_another() {
    let array = Array::new().await;
    array.furnish().await;
    // The volume is deleted and recreated, and then an old copy of the state is restored.
    let control = &array.control;
    let unpresent = crate::request::Unpresent {
        volume: "tank/vm1".parse().expect("a name"),
        host: name("web"),
        target: None,
        force: false,
    };
    let kept = array.dir.path().join("kept");
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copies");
        }
    };
    copy(&array.dir.path().join("state/state"), &kept);
    control.presentations.unpresent(&unpresent).await.expect("no longer seen");
    control.volumes.delete(&unpresent.volume, Removal::default()).await.expect("deleted");
    array.create_volume("tank/vm1", Size::mib(4)).await.expect("another of the same name");
    let dir = array.killed();
    let versions = dir.path().join("state/state");
    fs::remove_dir_all(&versions).expect("removes");
    copy(&kept, &versions);
    let array = Array::on(dir, Testbed::default()).await;
    assert!(array.control.presentations.list().is_empty(), "the old presentation does not show the new volume");
    assert!(array.access().presentations.is_empty());
    array.control.presentations.present(new_presentation("tank/vm1", "web")).await.expect("the new one can be shown");
}

#[tokio::test]
async fn file_volume_that_vanished_is_missing_and_the_rest_serves() {
    let array = Array::new().await;
    array.furnish().await;
    let path = array.dir.path().join("image.raw").to_string_lossy().into_owned();
    let file = NewVolume {
        backend: Some(NewBackend::File { path: path.clone() }),
        ..super::new_volume("image", Some(Size::mib(2)))
    };
    let made = array.control.volumes.create(file).await.expect("a volume and its file");
    assert_eq!(fs::metadata(&path).expect("is there").len(), made.size.bytes());
    for more in ["tank/vm2", "tank/vm3"] {
        array.create_volume(more, Size::mib(4)).await.expect("a volume");
        let open = array.control.core.engine.volume_names(Order::VolumeNames).await.expect("looked at");
        assert_eq!(array.control.volumes.away(&open).await.expect("looked at"), [], "beside {more}");
    }
    fs::remove_file(&path).expect("removes");
    let array = array.restarted().await;
    let volume = array.control.volumes.report(&made.name).await.expect("known");
    assert_eq!(volume.state, VolumeState::Missing);
    assert_eq!(array.control.status.report().await.expect("a status").severity, Severity::Critical);
    array.control.volumes.delete(&made.name, Removal::default()).await.expect("can be forgotten");
}
