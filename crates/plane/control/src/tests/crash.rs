//! Crash tests: a crash at any instant leaves the old state or the new one.
//!
//! The whole folder is copied before and after each order, and at each flush of a disk. Each copy is then
//! started as if the daemon had died there.

use super::{Array, boot, disks, new_disk, new_host, new_pool, new_volume};
use crate::Control;
use crate::request::{NewBackend, NewVolume, PoolSettings, Removal, Replace, Resize, Unpresent};
use model::{Level, Name, Refusal, Size};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use testbed::{Testbed, Watch};

/// Returns the state that an operator can see, without what may differ from start to start.
async fn seen(control: &Control) -> String {
    let state = control.core.state();
    let pools = control.pools.list().await.expect("pools");
    let pools: Vec<_> = pools
        .iter()
        .map(|pool| {
            (&pool.name, &pool.policy, pool.members().map(|member| (&member.disk, member.state)).collect::<Vec<_>>())
        })
        .collect();
    let volumes = control.volumes.list().await.expect("volumes");
    let volumes: Vec<_> = volumes.iter().map(|volume| (&volume.name, volume.size)).collect();
    let disks = control.disks.list().await.expect("disks");
    let disks: Vec<_> = disks
        .iter()
        .map(|disk| {
            (&disk.name, disk.state, disk.label.pool().map(|(_, name)| name), disk.label.disk().is_some(), &disk.spare)
        })
        .collect();
    let presentations: Vec<_> = control.presentations.list().into_iter().map(|seen| (seen.volume, seen.host)).collect();
    assert!(state.pending.is_empty(), "nothing stays pending");
    assert!(disks.iter().all(|(name, ..)| name.as_ref().is_some_and(|name| state.disks.contains_key(name))));
    format!("{disks:?} {pools:?} {volumes:?} {:?} {presentations:?}", state.hosts.keys())
}

/// Copies a folder, keeping holes of sparse files: disks consist mostly of those.
fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--archive", "--sparse=auto"]).args([from, to]).status();
    assert!(copied.expect("cp runs").success(), "the array is copied");
}

/// Runs `change` on a furnished array and starts every crash image that it leaves.
async fn old_or_new<F>(change: impl FnOnce(Arc<Control>, PathBuf) -> F)
where
    F: Future<Output = Result<(), Refusal>>,
{
    let array = Array::new().await;
    array.furnish().await;
    array.add_disks(&["e0", "e1", "h0", "h1"]).await;
    array.create_pool("spare", Level::Raid1, &["e0", "e1"]).await.expect("a pool");
    array.create_pool("twin", Level::Raid1, &["h0", "h1"]).await.expect("a pool");
    array.create_volume("twin/old", Size::mib(4)).await.expect("a volume");
    array.control.volumes.create(null("loose")).await.expect("a volume");
    array.add_disks(&["f0", "f1"]).await;
    let dir = array.killed();

    let root = dir.path().join("live");
    let images = dir.path().join("images");
    for folder in [&root, &images] {
        fs::create_dir(folder).expect("a folder");
    }
    // The array moves into a folder of its own, so that its images do not collide.
    for part in ["state", "disks"] {
        fs::rename(dir.path().join(part), root.join(part)).expect("moves");
    }
    rehome(dir.path(), &root).await;
    let taken = Arc::new(Mutex::new(0));
    let (counter, from, to) = (taken.clone(), root.clone(), images.clone());
    let watching = Arc::new(Mutex::new(false));
    let on = watching.clone();
    let watch: Watch = Arc::new(move |_| {
        if *on.lock().expect("not poisoned") {
            let mut count = counter.lock().expect("not poisoned");
            copy_all(&from, &to.join(count.to_string()));
            *count += 1;
        }
    });
    let testbed = Testbed { watch: Some(watch), ..Testbed::default() };
    let control = Arc::new(boot(&root, testbed).await);
    let old = seen(&control).await;
    *watching.lock().expect("not poisoned") = true;
    change(control.clone(), disks(&root)).await.expect("the change is made");
    *watching.lock().expect("not poisoned") = false;
    let new = seen(&control).await;
    assert_ne!(old, new, "the change can be seen");
    drop(control);

    let count = *taken.lock().expect("not poisoned");
    assert!(count >= 2, "there are instants to die at");
    for image in 0..count {
        fs::remove_dir_all(&root).expect("removes");
        fs::rename(images.join(image.to_string()), &root).expect("puts the image there");
        let found = seen(&boot(&root, Testbed::default()).await).await;
        assert!(
            found == old || found == new,
            "image {image} of {count}:\n{found}\nis neither old\n{old}\nnor new\n{new}"
        );
    }
}

/// Request for a volume without a pool and without data.
fn null(name: &str) -> NewVolume {
    NewVolume { backend: Some(NewBackend::Null {}), ..new_volume(name, Some(Size::mib(4))) }
}

/// Rewrites the recorded paths of disks from below `from` to below `to`.
async fn rehome(from: &Path, to: &Path) {
    let store = crate::Store::open(&to.join("state")).expect("a store");
    let mut state = crate::State::clone(&store.state());
    for record in state.disks.values_mut() {
        let inside = Path::new(&record.path).strip_prefix(from).expect("was inside").to_path_buf();
        record.path = to.join(inside).to_string_lossy().into_owned();
    }
    store.commit(state).expect("commits");
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

#[tokio::test]
async fn crash_while_a_disk_is_added_or_removed() {
    old_or_new(|control, folder| async move {
        control.disks.add(new_disk(&folder, "g0", Size::mib(128))).await.map(|_| ())
    })
    .await;
    old_or_new(|control, _| async move { control.disks.remove(&name("f0")).await }).await;
}

#[tokio::test]
async fn crash_while_a_pool_is_made_or_destroyed() {
    old_or_new(|control, _| async move {
        control.pools.create(new_pool("pond", Level::Raid1, &["f0", "f1"])).await.map(|_| ())
    })
    .await;
    old_or_new(|control, _| async move { control.pools.destroy(&name("spare")).await }).await;
}

#[tokio::test]
async fn crash_while_a_volume_is_made_grown_or_deleted() {
    old_or_new(|control, _| async move {
        control.volumes.create(new_volume("tank/vm2", Some(Size::mib(4)))).await.map(|_| ())
    })
    .await;
    old_or_new(|control, _| async move {
        let name = "tank/vm1".parse().expect("a name");
        control.volumes.resize(&name, Resize { size: Size::mib(16) }).await.map(|_| ())
    })
    .await;
    old_or_new(|control, _| async move {
        let seen =
            Unpresent { volume: "tank/vm1".parse().expect("a name"), host: name("web"), target: None, force: false };
        control.presentations.unpresent(&seen).await
    })
    .await;
    old_or_new(|control, _| async move {
        control.volumes.delete(&"twin/old".parse().expect("a name"), Removal::default()).await
    })
    .await;
}

#[tokio::test]
async fn crash_while_hosts_and_loose_volumes_change() {
    old_or_new(|control, _| async move {
        control.hosts.add(new_host("db", &["iqn.2001-04.com.example:db"])).await.map(|_| ())
    })
    .await;
    old_or_new(|control, _| async move { control.volumes.create(null("more")).await.map(|_| ()) }).await;
}

#[tokio::test]
async fn crash_while_a_loose_volume_is_deleted() {
    old_or_new(|control, _| async move {
        control.volumes.delete(&"loose".parse().expect("a name"), Removal::default()).await
    })
    .await;
}

#[tokio::test]
async fn crash_while_a_pool_is_exported() {
    old_or_new(|control, _| async move { control.pools.export(&name("spare"), Removal::default()).await }).await;
}

#[tokio::test]
async fn crash_while_a_pool_gets_other_settings() {
    old_or_new(|control, _| async move {
        let settings = [("rebuild".to_owned(), "fast".to_owned()), ("scrub".to_owned(), "weekly".to_owned())].into();
        control.pools.set(&name("tank"), PoolSettings { settings }).await.map(|_| ())
    })
    .await;
}

#[tokio::test]
async fn crash_while_a_disk_fails() {
    old_or_new(|control, _| async move { control.pools.fail_disk(&name("d0")).await.map(|_| ()) }).await;
}

#[tokio::test]
async fn crash_while_a_disk_is_replaced() {
    let array = Array::new().await;
    array.furnish().await;
    array.add_disks(&["f0"]).await;
    array.control.pools.fail_disk(&name("d0")).await.expect("failed");
    let replace = Replace { replacement: name("f0"), force: false, confirmed: false };
    array.control.pools.replace_disk(&name("d0"), replace).await.expect("replaced");
    let array = array.restarted().await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert!(pool.members().any(|member| member.disk == Some(name("f0"))));
}
