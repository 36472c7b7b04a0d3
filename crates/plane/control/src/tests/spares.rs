//! Tests of hot spares: admission, and automatic replacement of failed disks.

use super::{Array, new_disk, new_pool};
use crate::EventFilter;
use crate::change::spares::SpareMonitor;
use crate::request::{NewDisk, NewPool, NewSpare, Removal};
use model::{Level, MemberState, Name, Order, PoolState, Refusal, Severity, Size, code, event};
use std::time::Duration;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn of(pool: &str) -> NewSpare {
    NewSpare { pool: Some(name(pool)), force: false }
}

/// Creates four disks in a RAID-6 pool `tank`, two in a RAID-1 pool `pond`, and four more.
async fn furnished() -> Array {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2", "d3", "e0", "e1", "f0", "f1", "f2", "f3"]).await;
    array.create_pool("tank", Level::Raid6, &["d0", "d1", "d2", "d3"]).await.expect("a pool");
    array.create_pool("pond", Level::Raid1, &["e0", "e1"]).await.expect("a pool");
    for volume in ["tank/data", "pond/data"] {
        array.create_volume(volume, Size::mib(16)).await.expect("a volume");
    }
    array
}

async fn members(array: &Array, pool: &str) -> Vec<(String, MemberState)> {
    let pool = array.control.pools.report(&name(pool)).await.expect("a pool");
    pool.members().map(|member| (member.disk.as_ref().expect("a name").to_string(), member.state)).collect()
}

/// Runs rounds of the reconcile loop until no spare is placed any more and every rebuild has finished.
async fn rounds(array: &Array) {
    for _ in 0..6 {
        array.control.reconciler.handle_events(Vec::new()).await.expect("looked at");
        while array.control.pools.list().await.expect("pools").iter().any(|pool| pool.rebuild().is_some()) {}
    }
}

#[tokio::test]
async fn spare_takes_the_place_of_a_failed_member_by_itself() {
    let array = furnished().await;
    array.control.spares.add(&name("f0"), NewSpare::default()).await.expect("a spare");
    array.control.spares.add(&name("f1"), of("tank")).await.expect("a spare");
    array.control.pools.pause(&name("tank"), true).await.expect("paused");
    array.control.pools.fail_disk(&name("d1")).await.expect("failed");
    array.control.reconciler.handle_events(Vec::new()).await.expect("looked at");
    assert_eq!(members(&array, "tank").await[1], ("f1".to_owned(), MemberState::Rebuilding), "its own goes first");
    array.control.pools.pause(&name("tank"), false).await.expect("resumed");
    rounds(&array).await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert_eq!((pool.state, pool.spares), (PoolState::Healthy, vec![name("f0")]));

    let array = array.restarted().await;
    rounds(&array).await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert_eq!(pool.groups[0].members[1].replaces.as_deref(), Some("d1"), "this is remembered");
    let status = array.control.status.report().await.expect("a status");
    assert_eq!(status.severity, Severity::Warning);
    assert!(
        status.summary.contains("hot spare f1") && status.summary.contains("a new disk for d1"),
        "{}",
        status.summary
    );
    assert!(status.problems[0].meaning.contains("one more hot spare is ready"), "{:?}", status.problems);

    array.control.spares.add(&name("f2"), of("tank")).await.expect("a spare");
    let status = array.control.status.report().await.expect("a status");
    assert_eq!(status.summary, "All good", "with another spare the story is over");
}

#[tokio::test]
async fn spares_are_not_spent_twice_for_one_place() {
    let array = furnished().await;
    for spare in ["f0", "f1", "f2"] {
        array.control.spares.add(&name(spare), NewSpare::default()).await.expect("a spare");
    }
    array.control.pools.fail_disk(&name("d0")).await.expect("failed");
    array.control.pools.fail_disk(&name("e1")).await.expect("failed");
    let (one, other) =
        (array.control.reconciler.handle_events(Vec::new()), array.control.reconciler.handle_events(Vec::new()));
    let (one, other) = tokio::join!(one, other);
    one.and(other).expect("looked at");
    rounds(&array).await;
    let names = |members: Vec<(String, MemberState)>| members.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(members(&array, "pond").await), ["e0", "f0"]);
    assert_eq!(names(members(&array, "tank").await), ["f1", "d1", "d2", "d3"]);
    assert_eq!(array.control.pools.report(&name("tank")).await.expect("a pool").spares, [name("f2")]);
}

#[tokio::test]
async fn spare_that_fits_nowhere_is_said_once() {
    let array = furnished().await;
    array.control.spares.add(&name("f0"), of("pond")).await.expect("a spare");
    array.control.disks.add(new_disk(&array.folder(), "tiny", Size::mib(64))).await.expect("a disk");
    array.control.spares.add(&name("tiny"), NewSpare::default()).await.expect("a spare");
    array.control.pools.fail_disk(&name("d0")).await.expect("failed");
    rounds(&array).await;
    assert_eq!(members(&array, "tank").await[0].1, MemberState::Failed);
    let told = array.control.reconciler.events(EventFilter::default()).await;
    let told: Vec<_> = told.iter().filter(|told| told.code == event::SPARE_NONE).collect();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].count, told[0].subject.name.as_str()), (1, "tank"));
    array.control.spares.add(&name("f1"), NewSpare::default()).await.expect("a spare");
    rounds(&array).await;
    assert_eq!(members(&array, "tank").await[0], ("f1".to_owned(), MemberState::InSync), "a later one is used");
}

#[tokio::test]
async fn spare_that_cannot_be_used_makes_way_for_the_next() {
    let array = furnished().await;
    array.control.spares.add(&name("f0"), NewSpare::default()).await.expect("a spare");
    array.control.spares.add(&name("f1"), NewSpare::default()).await.expect("a spare");
    // The first spare got a file system in the meantime.
    super::make_foreign(array.folder().join("f0.img"));
    array.control.pools.fail_disk(&name("d0")).await.expect("failed");
    rounds(&array).await;
    assert_eq!(members(&array, "tank").await[0], ("f1".to_owned(), MemberState::InSync));
    let told = array.control.reconciler.events(EventFilter::default()).await;
    assert!(told.iter().any(|told| told.code == event::SPARE_REFUSED && told.subject.name == "f0"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn spare_waits_a_while_for_a_member_that_was_not_found() {
    let array = furnished().await;
    array.wait_for_no_disk("tank").await;
    array.control.spares.add(&name("f0"), NewSpare::default()).await.expect("a spare");
    std::fs::remove_file(array.folder().join("d2.img")).expect("removes");
    let array = array.restarted().await;
    rounds(&array).await;
    assert_eq!(members(&array, "tank").await[2], ("d2".to_owned(), MemberState::Missing));
    let next = async || {
        let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
        pool.groups[0].members[2].next_spare.clone()
    };
    let first = next().await.expect("it is said which spare comes, and when");
    assert!(first.disk.to_string() == "f0" && (295..=300).contains(&first.seconds_left), "{first:?}");
    let sentence = format!("hot spare f0 replaces disk d2 at {} unless the disk returns", first.at);
    let status = array.control.status.report().await.expect("a status");
    assert!(status.problems.iter().any(|problem| problem.action == sentence), "{:?}", status.problems);
    let conditions = array.control.status.conditions().await.expect("conditions").active;
    let details: Vec<&String> = conditions.iter().flat_map(|condition| &condition.details).collect();
    assert!(details.iter().any(|detail| detail.contains("hot spare f0 replaces it at")), "{details:?}");
    let told = array.control.reconciler.events(EventFilter::default()).await;
    assert_eq!(told.iter().filter(|told| told.code == event::SPARE_WAITS).map(|told| told.count).sum::<u64>(), 1);
    tokio::time::advance(std::time::Duration::from_secs(100)).await;
    rounds(&array).await;
    let later = next().await.expect("still");
    assert!(later.at == first.at && (195..=200).contains(&later.seconds_left), "{later:?}");
    tokio::time::advance(std::time::Duration::from_secs(201)).await;
    rounds(&array).await;
    assert_eq!(next().await, None);
    assert_eq!(members(&array, "tank").await[2], ("f0".to_owned(), MemberState::InSync));
}

#[tokio::test]
async fn spare_that_a_crash_left_half_entered_is_a_member_and_no_spare() {
    let array = furnished().await;
    array.control.spares.add(&name("f0"), NewSpare::default()).await.expect("a spare");
    array.control.pools.fail_disk(&name("d0")).await.expect("failed");
    let (failed, replacement) = (name("d0"), name("f0"));
    let order = Order::ReplaceDisk { failed, member: None, replacement, force: false };
    array.control.core.engine.pool(order).await.expect("the disks know it, and the store does not");
    let array = array.restarted().await;
    rounds(&array).await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert_eq!((pool.state, pool.spares), (PoolState::Healthy, Vec::new()));
    assert_eq!(array.control.disks.report(&name("f0")).await.expect("a disk").spare, None);
}

#[tokio::test]
async fn pool_is_made_with_its_spares_or_not_at_all() {
    let array = furnished().await;
    let with = |spares: &[&str]| NewPool {
        spares: spares.iter().map(|spare| name(spare)).collect(),
        ..new_pool("lake", Level::Raid1, &["f0", "f1"])
    };
    let before = array.control.core.state();
    for (spares, code) in [(["f1"], code::DISK_IN_USE), (["d0"], code::DISK_IN_USE), (["nobody"], code::DISK_UNKNOWN)] {
        let refusal: Refusal = array.control.pools.create(with(&spares)).await.expect_err("is refused");
        assert_eq!(refusal.code, code, "{refusal}");
    }
    assert_eq!(array.control.core.state(), before);
    array.control.pools.create(with(&["f2"])).await.expect("a pool");
    let disk = array.control.disks.report(&name("f2")).await.expect("a disk");
    assert_eq!(disk.spare.and_then(|spare| spare.pool), Some(name("lake")));
    let refusal = array.create_pool("more", Level::Raid1, &["f2", "f3"]).await.expect_err("it is a spare");
    assert_eq!(refusal.code, code::DISK_IN_USE);
}

#[tokio::test]
async fn spare_is_blank_free_and_large_enough() {
    let array = furnished().await;
    let control = &array.control;
    control.disks.add(new_disk(&array.folder(), "tiny", Size::mib(64))).await.expect("a disk");
    let refused =
        async |disk: &str, spare: NewSpare| control.spares.add(&name(disk), spare).await.expect_err("no").code;
    assert_eq!(refused("d0", NewSpare::default()).await, code::DISK_IN_USE);
    assert_eq!(refused("tiny", of("tank")).await, code::DISK_TOO_SMALL);
    assert_eq!(refused("f0", of("lake")).await, code::POOL_UNKNOWN);
    assert_eq!(refused("g9", NewSpare::default()).await, code::DISK_UNKNOWN);
    control.pools.fail_disk(&name("d0")).await.expect("failed");
    assert_eq!(refused("d0", NewSpare::default()).await, code::DISK_FOREIGN, "it bears the label of its pool");
    assert_eq!(control.spares.remove(&name("f0")).await.expect_err("no").code, code::DISK_NOT_SPARE);
    control.spares.add(&name("f0"), NewSpare::default()).await.expect("a spare");
    assert_eq!(refused("f0", NewSpare::default()).await, code::DISK_IN_USE);
    control.spares.remove(&name("f0")).await.expect("no spare any more");
}

#[tokio::test]
async fn disk_that_holds_something_is_a_spare_only_by_force_and_takes_over_then() {
    let array = furnished().await;
    // The disk was in a pool of another array.
    array.create_pool("old", Level::Raid1, &["f0", "f1"]).await.expect("a pool");
    let label = std::fs::read(array.folder().join("f0.img")).expect("reads");
    array.control.pools.destroy(&name("old")).await.expect("destroyed");
    array.control.disks.remove(&name("f0")).await.expect("removed");
    std::fs::write(array.folder().join("f0.img"), label).expect("writes");
    let path = array.folder().join("f0.img").to_string_lossy().into_owned();
    let again = NewDisk { path, name: Some(name("f0")), force: true, ..NewDisk::default() };
    array.control.disks.add(again).await.expect("a disk");
    let refused = array.control.spares.add(&name("f0"), of("tank")).await.expect_err("it is not blank");
    assert_eq!(refused.code, code::DISK_FOREIGN);
    array.control.spares.add(&name("f0"), NewSpare { force: true, ..of("tank") }).await.expect("a spare");
    array.control.pools.pause(&name("tank"), true).await.expect("paused");
    array.control.pools.fail_disk(&name("d1")).await.expect("failed");
    array.control.reconciler.handle_events(Vec::new()).await.expect("looked at");
    assert_eq!(members(&array, "tank").await[1], ("f0".to_owned(), MemberState::Rebuilding));
}

/// Regression: the record of a finished copy, from a list of before the export, made the pool known again.
#[tokio::test]
async fn pool_that_is_exported_before_its_copy_is_recorded_stays_exported() {
    let array = Array::new().await;
    for disk in ["e0", "e1", "f0"] {
        array.control.disks.add(new_disk(&array.folder(), disk, Size::mib(128))).await.expect("a disk");
    }
    array.create_pool("pond", Level::Raid1, &["e0", "e1"]).await.expect("a pool");
    let (control, pond) = (&array.control, name("pond"));
    control.spares.add(&name("f0"), NewSpare::default()).await.expect("a spare");
    let copy = Order::CopyMember { disk: name("e0"), replacement: name("f0"), force: false };
    control.core.engine.pool(copy).await.expect("a copy");
    while members(&array, "pond").await[0] != ("f0".to_owned(), MemberState::InSync) {}
    assert_eq!(control.pools.report(&pond).await.expect("a pool").spares, [name("f0")], "nothing is recorded yet");

    // The export is the next to get the change lock; the round has its list by then, and gets the lock after it.
    let turn = control.core.lock_changes().await;
    let mut monitor = SpareMonitor::default();
    let release = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(turn);
    };
    let (exported, placed, ()) =
        tokio::join!(control.pools.export(&pond, Removal::default()), control.spares.place(&mut monitor), release);
    exported.and(placed).expect("both are done");
    assert!(!control.core.state().pools.contains_key(&pond));
}
