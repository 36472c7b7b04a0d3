//! Tests that each invalid request gets its message and changes nothing.

use super::{Array, new_host, new_pool, new_presentation, new_volume};
use crate::request::{
    NewBackend, NewChap, NewDisk, NewHost, NewPresentation, NewVolume, Removal, Replace, Resize, SecretText, Unpresent,
};
use model::{Code, Level, MemberState, Refusal, Size, code};
use std::fmt::Debug;
use std::fs;

/// Asserts that the outcome is a refusal with this code and one full sentence.
#[track_caller]
fn refused<T: Debug>(outcome: Result<T, Refusal>, code: Code) -> Refusal {
    let refusal = refused_by_the_pool(outcome, code);
    assert!(!refusal.hint.is_empty(), "{refusal:?}");
    refusal
}

/// Asserts as [`refused`] does, for refusals by the pool, whose sentence contains the remedy.
fn refused_by_the_pool<T: Debug>(outcome: Result<T, Refusal>, code: Code) -> Refusal {
    let refusal = outcome.expect_err("is refused");
    assert_eq!(refusal.code, code, "{refusal}");
    assert!(!refusal.message.is_empty(), "{refusal:?}");
    assert!(!refusal.to_string().ends_with('.') && !refusal.to_string().contains('\n'), "{refusal}");
    refusal
}

fn name(text: &str) -> model::Name {
    text.parse().expect("a name")
}

#[tokio::test]
async fn disk_that_cannot_be_added_leaves_nothing_behind() {
    let array = Array::new().await;
    array.add_disks(&["d0"]).await;
    let before = array.control.core.state();
    let control = &array.control;
    let folder = array.folder();
    let disk = |file: &str, name_: Option<&str>, create| NewDisk {
        path: folder.join(file).to_string_lossy().into_owned(),
        name: name_.map(name),
        create,
        force: false,
        ..NewDisk::default()
    };

    refused(control.disks.add(disk("d1.img", Some("d0"), Some(Size::mib(1)))).await, code::NAME_TAKEN);
    refused(control.disks.add(disk("d0.img", Some("d1"), None)).await, code::DISK_KNOWN);
    refused(control.disks.add(disk("d0.img", Some("d1"), Some(Size::mib(1)))).await, code::NAME_TAKEN);
    refused(control.disks.add(disk("none.img", None, None)).await, code::DISK_UNREADABLE);
    std::os::unix::fs::symlink(folder.join("d0.img"), folder.join("alias")).expect("links");
    refused(control.disks.add(disk("alias", None, None)).await, code::DISK_KNOWN);
    fs::hard_link(folder.join("d0.img"), folder.join("link")).expect("links");
    refused(control.disks.add(disk("link", None, None)).await, code::DISK_KNOWN);
    // Disks that can never be members: too small, even with `force`; not empty, without it.
    let small = refused(control.disks.add(disk("e0.img", None, Some(Size::mib(63)))).await, code::DISK_TOO_SMALL);
    assert_eq!(small.hint, "use a disk or file of at least 64 MiB");
    let passwd = NewDisk { path: "/etc/passwd".into(), name: None, create: None, force: true, ..NewDisk::default() };
    refused(control.disks.add(passwd).await, code::DISK_TOO_SMALL);
    fs::write(folder.join("e1.img"), vec![7; 64 << 20]).expect("writes");
    let full = refused(control.disks.add(disk("e1.img", None, None)).await, code::DISK_FOREIGN);
    assert!(full.message.ends_with("is not blank: it contains unrecognized data"), "{full}");
    let relative = NewDisk { path: "d9.img".into(), name: None, create: None, force: false, ..NewDisk::default() };
    refused(control.disks.add(relative).await, code::PATH_INVALID);
    refused(control.disks.add(disk("../d9.img", None, Some(Size::mib(1)))).await, code::PATH_INVALID);

    assert_eq!(array.control.core.state(), before);
    assert!(!folder.join("d1.img").exists(), "a file that was made for a refused disk is gone");
    assert!(folder.join("d0.img").exists(), "a file that was there before stays");
}

#[tokio::test]
async fn pool_that_cannot_be_made_changes_nothing() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2", "d3", "d4"]).await;
    let control = &array.control;
    fs::write(array.folder().join("used.img"), vec![7; 128 << 20]).expect("writes");
    super::make_foreign(array.folder().join("used.img"));
    let used = array.folder().join("used.img").to_string_lossy().into_owned();
    control
        .disks
        .add(NewDisk { path: used, name: None, create: None, force: true, ..NewDisk::default() })
        .await
        .expect("a disk");
    let before = control.core.state();
    let create = |level, disks: &[&str]| control.pools.create(new_pool("tank", level, disks));

    let few = refused(create(Level::Raid6, &["d0", "d1", "d2"]).await, code::TOO_FEW_MEMBERS);
    assert_eq!(few.to_string(), "raid6 of 3 disks is not possible; give at least 4 disks or choose another level");
    refused(create(Level::Raid1, &["d0", "d0"]).await, code::DISK_IN_USE);
    refused(create(Level::Raid1, &["d0", "d9"]).await, code::DISK_UNKNOWN);
    refused_by_the_pool(create(Level::Raid1, &["d0", "used"]).await, code::DISK_FOREIGN);
    assert_eq!(control.core.state(), before, "what was refused left no record");

    create(Level::Raid1, &["d0", "d1"]).await.expect("a pool");
    refused(create(Level::Raid1, &["d2", "d3"]).await, code::NAME_TAKEN);
    let other = control.pools.create(new_pool("other", Level::Raid1, &["d1", "d2"])).await;
    refused(other, code::DISK_IN_USE);
    assert!(control.core.state().pending.is_empty());
}

#[tokio::test]
async fn disk_that_a_plan_names_twice_under_two_names_is_refused() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2"]).await;
    let folder = array.folder();
    let create = |disks: &[&str]| array.control.pools.create(new_pool("tank", Level::Raid1, disks));
    for kind in ["hard", "symbolic"] {
        fs::remove_file(folder.join("d1.img")).expect("removes");
        let (real, name) = (folder.join("d0.img"), folder.join("d1.img"));
        if kind == "hard" { fs::hard_link(real, name) } else { std::os::unix::fs::symlink(real, name) }.expect("links");
        let twice = refused(create(&["d0", "d1"]).await, code::DISK_IN_USE);
        assert_eq!(twice.message, "d0 and d1 are the same disk", "a {kind} link");
    }
    assert!(array.control.core.state().pools.is_empty() && array.control.core.state().pending.is_empty());
    create(&["d1", "d2"]).await.expect("one of the names will do");
}

#[tokio::test]
async fn pool_and_volume_in_use_are_not_destroyed() {
    let array = Array::new().await;
    array.furnish().await;
    let control = &array.control;
    let before = control.core.state();
    let volume = "tank/vm1".parse().expect("a name");

    refused(control.pools.destroy(&name("tank")).await, code::POOL_IN_USE);
    refused(control.volumes.delete(&volume, Removal::default()).await, code::VOLUME_IN_USE);
    refused(control.hosts.remove(&name("web"), Removal::default()).await, code::HOST_IN_USE);
    refused(control.disks.remove(&name("d0")).await, code::DISK_IN_USE);
    refused(control.targets.remove(&name("default"), Removal::default()).await, code::TARGET_IN_USE);
    refused(control.pools.destroy(&name("pond")).await, code::POOL_UNKNOWN);
    assert_eq!(control.core.state(), before);

    let unpresent = Unpresent { volume: volume.clone(), host: name("web"), target: None, force: false };
    control.presentations.unpresent(&unpresent).await.expect("no longer seen");
    control.volumes.delete(&volume, Removal::default()).await.expect("deleted");
    control.pools.destroy(&name("tank")).await.expect("destroyed");
    control.disks.remove(&name("d0")).await.expect("removed");
}

#[tokio::test]
async fn volume_that_cannot_be_made_changes_nothing() {
    let array = Array::new().await;
    array.furnish().await;
    let control = &array.control;
    let before = control.core.state();
    let create = |name: &str, size| control.volumes.create(new_volume(name, size));

    refused(create("tank/vm1", Some(Size::mib(1))).await, code::NAME_TAKEN);
    refused(create("pond/vm1", Some(Size::mib(1))).await, code::POOL_UNKNOWN);
    refused_by_the_pool(create("tank/big", Some(Size::gib(1))).await, code::POOL_FULL);
    refused(create("tank/none", Some(Size::ZERO)).await, code::VOLUME_SIZE);
    refused(create("tank/none", None).await, code::VOLUME_SIZE);
    refused(create("loose", Some(Size::mib(1))).await, code::VOLUME_WITHOUT_POOL);
    let odd = NewVolume { block_bytes: Some(520), ..new_volume("tank/odd", Some(Size::mib(1))) };
    refused(control.volumes.create(odd).await, code::BLOCK_SIZE_INVALID);
    let both = NewVolume { backend: Some(NewBackend::Ram {}), ..new_volume("tank/both", Some(Size::mib(1))) };
    refused(control.volumes.create(both).await, code::OPTIONS_CONFLICT);
    let disk = array.folder().join("d0.img").to_string_lossy().into_owned();
    let link = array.folder().join("link").to_string_lossy().into_owned();
    fs::hard_link(&disk, &link).expect("links");
    for path in [disk, link] {
        let stolen = NewVolume { backend: Some(NewBackend::File { path: path.clone() }), ..new_volume("stolen", None) };
        let refusal = refused(control.volumes.create(stolen).await, code::DISK_IN_USE);
        assert_eq!(refusal.message, format!("{path} is disk d0"));
    }

    let shrunk = control.volumes.resize(&"tank/vm1".parse().expect("a name"), Resize { size: Size::mib(4) }).await;
    refused(shrunk, code::VOLUME_SHRINK);
    let absent = control.volumes.resize(&"tank/vm9".parse().expect("a name"), Resize { size: Size::mib(4) }).await;
    refused(absent, code::VOLUME_UNKNOWN);
    assert_eq!(control.core.state(), before);
}

#[tokio::test]
async fn disk_is_failed_once_and_replaced_only_when_it_failed() {
    let array = Array::new().await;
    array.furnish().await;
    array.add_disks(&["d4", "d5"]).await;
    let control = &array.control;
    let by = |replacement: &str, force| Replace { replacement: name(replacement), force, confirmed: false };
    let replace = |disk: &'static str, how| async move { control.pools.replace_disk(&name(disk), how).await };

    refused(replace("d0", by("d4", false)).await, code::DISK_HEALTHY);
    refused(replace("d0", by("d4", true)).await, code::UNCONFIRMED);
    refused(replace("d0", Replace { confirmed: true, ..by("d4", false) }).await, code::DISK_HEALTHY);
    refused(replace("d0", Replace { confirmed: true, ..by("d0", true) }).await, code::DISK_HEALTHY);
    refused(replace("d0", by("d1", false)).await, code::DISK_IN_USE);
    refused(replace("d0", by("d9", false)).await, code::DISK_UNKNOWN);
    refused(replace("d9", by("d4", false)).await, code::DISK_UNKNOWN);
    refused(control.pools.fail_disk(&name("d4")).await, code::DISK_NOT_MEMBER);

    control.pools.fail_disk(&name("d0")).await.expect("failed");
    refused(control.pools.fail_disk(&name("d0")).await, code::DISK_FAILED_ALREADY);
    control.pools.fail_disk(&name("d1")).await.expect("failed");
    refused(control.pools.fail_disk(&name("d2")).await, code::POOL_WOULD_FAIL);
    let pool = replace("d0", by("d4", false)).await.expect("replaced");
    assert!(pool.members().any(|member| member.disk == Some(name("d4"))));
    assert!(control.core.state().disks[&name("d4")].id.is_some(), "the replacement is known by its identity");

    while control.pools.report(&name("tank")).await.expect("a pool").rebuild().is_some() {}
    let twice = replace("d2", Replace { confirmed: true, ..by("d5", true) }).await.expect("it was said twice");
    assert!(twice.members().any(|member| member.disk == Some(name("d5"))));
}

#[tokio::test]
async fn disk_takes_its_own_place_only_when_it_had_lost_it() {
    let array = Array::new().await;
    array.furnish().await;
    let control = &array.control;
    let again = || Replace { replacement: name("d0"), force: false, confirmed: false };

    let healthy = refused(control.pools.replace_disk(&name("d0"), again()).await, code::DISK_HEALTHY);
    assert!(healthy.message.ends_with("healthy and in use"), "{healthy}");
    control.pools.fail_disk(&name("d0")).await.expect("failed");
    let pool = control.pools.replace_disk(&name("d0"), again()).await.expect("it is tried again");
    let member = pool.members().find(|member| member.disk == Some(name("d0"))).expect("it is a member");
    assert_eq!(member.state, MemberState::Rebuilding);
    assert_eq!(control.core.state().disks[&name("d0")].id, Some(member.id), "under its new identity");
    refused(control.pools.replace_disk(&name("d0"), again()).await, code::DISK_IN_USE);
}

#[tokio::test]
async fn host_that_does_not_fit_is_refused() {
    let array = Array::new().await;
    let control = &array.control;
    control.hosts.add(new_host("web", &["iqn.2001-04.com.example:web"])).await.expect("a host");
    let before = control.core.state();
    let secret = |text: &str| NewChap { secret: Some(SecretText::Text(text.to_owned())), ..NewChap::default() };

    refused(control.hosts.add(new_host("web", &["iqn.2001-04.com.example:x"])).await, code::NAME_TAKEN);
    let stolen = control.hosts.add(new_host("thief", &["IQN.2001-04.com.Example:WEB"])).await;
    let taken = refused(stolen, code::IQN_TAKEN);
    let hint = "blockyard host change web --remove-initiator iqn.2001-04.com.example:web";
    assert!(taken.hint.ends_with(hint), "{taken}");
    refused(control.hosts.add(new_host("empty", &[])).await, code::HOST_EMPTY);
    let twice = control.hosts.add(new_host("twice", &["iqn.2001-04.com.example:a", "iqn.2001-04.com.example:a"])).await;
    refused(twice, code::IQN_TAKEN);
    let db = || new_host("db", &["iqn.2001-04.com.example:db"]);
    let short = NewHost { chap: Some(secret("short")), ..db() };
    refused(control.hosts.add(short).await, code::SECRET_INVALID);
    let (own, mutual) = (Some(secret("the same secret")), Some(secret("the same secret")));
    let equal = NewHost { chap: own, mutual_chap: mutual.clone(), ..db() };
    refused(control.hosts.add(equal).await, code::SECRETS_EQUAL);
    refused(control.hosts.add(NewHost { mutual_chap: mutual, ..db() }).await, code::CHAP_INVALID);
    let both = NewHost { any: true, ..db() };
    refused(control.hosts.add(both).await, code::HOST_EMPTY);
    assert_eq!(control.core.state(), before);

    control.hosts.add(NewHost { any: true, ..new_host("guests", &[]) }).await.expect("open access");
    let second = NewHost { any: true, ..new_host("others", &[]) };
    refused(control.hosts.add(second).await, code::IQN_TAKEN);
}

#[tokio::test]
async fn presentation_that_does_not_fit_is_refused() {
    let array = Array::new().await;
    array.furnish().await;
    array.create_volume("tank/vm2", Size::mib(8)).await.expect("a volume");
    let control = &array.control;
    let before = control.core.state();
    let at = |lun| NewPresentation { lun: Some(lun), ..new_presentation("tank/vm2", "web") };

    let taken = refused(control.presentations.present(at(0)).await, code::LUN_TAKEN);
    assert!(taken.hint.ends_with("such as 1"), "{taken}");
    refused(control.presentations.present(at(16_384)).await, code::LUN_INVALID);
    let again = control.presentations.present(new_presentation("tank/vm1", "web")).await;
    refused(again, code::PRESENTED_ALREADY);
    refused(control.presentations.present(new_presentation("tank/vm9", "web")).await, code::VOLUME_UNKNOWN);
    refused(control.presentations.present(new_presentation("tank/vm2", "nobody")).await, code::HOST_UNKNOWN);
    let nowhere = NewPresentation { target: Some(name("nowhere")), ..new_presentation("tank/vm2", "web") };
    refused(control.presentations.present(nowhere).await, code::TARGET_UNKNOWN);
    let unseen =
        Unpresent { volume: "tank/vm2".parse().expect("a name"), host: name("web"), target: None, force: false };
    refused(control.presentations.unpresent(&unseen).await, code::PRESENTATION_UNKNOWN);
    assert_eq!(control.core.state(), before);
}

/// Regression: `100GB` is no multiple of 4 KiB, and the help gave it as an example.
#[tokio::test]
async fn size_in_decimal_units_is_rounded_up_to_whole_blocks() {
    let array = Array::new().await;
    array.furnish().await;
    let size = |text: &str| text.parse::<Size>().expect("a size");
    let thin = crate::request::NewVolume {
        provision: Some(model::Provision::Thin),
        ..new_volume("tank/gb", Some(size("10MB")))
    };
    let made = array.control.volumes.create(thin).await.expect("a volume");
    assert_eq!(made.size, Size::new(2442 * 4096));
    let grown = array.control.volumes.resize(&made.name, crate::request::Resize { size: size("10.001MB") }).await;
    assert_eq!(grown.expect("grows").size, Size::new(2442 * 4096));
    let grown = array.control.volumes.resize(&made.name, crate::request::Resize { size: size("11MB") }).await;
    assert_eq!(grown.expect("grows").size, Size::new(2686 * 4096));
    let mut document = array.control.config.export(&()).await.expect("a document");
    document.volume.get_mut(&made.name).expect("is there").size = Some(size("11MB"));
    let request = crate::config::ApplyConfig { document, prune: true, ..Default::default() };
    assert!(array.control.config.plan(&request, &()).await.expect("a plan").steps.is_empty());
}
