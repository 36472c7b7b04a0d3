//! Tests of pool settings, and of manual and scheduled scrubs.

use super::{Array, new_disk, new_pool};
use crate::State;
use crate::request::{AddGroup, AddMember, GrowPool, NewGroup, PoolSettings, Replace, StartScrub};
use crate::system::now;
use model::{Level, Name, PoolState, RepairMode, ScrubReport, ScrubState, Size, Timestamp, code};
use std::collections::BTreeSet;

const DAY: u64 = 86_400;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn settings(pairs: &[(&str, &str)]) -> PoolSettings {
    PoolSettings { settings: pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect() }
}

async fn furnished(pairs: &[(&str, &str)]) -> Array {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1"]).await;
    array.create_pool("tank", Level::Raid1, &["d0", "d1"]).await.expect("a pool");
    // Gives the scrub something to read.
    array.create_volume("tank/data", Size::mib(16)).await.expect("a volume");
    array.control.pools.set(&name("tank"), settings(pairs)).await.expect("settings");
    array
}

async fn scrubs(array: &Array) -> Vec<ScrubReport> {
    array.control.scrubs.list(&name("tank")).await.expect("scrubs")
}

/// Runs one scheduling round of scrubs at `time`.
async fn round_at(array: &Array, time: Timestamp) {
    array.control.scrubs.run_due(time, &mut BTreeSet::new()).await.expect("seen to");
}

/// Runs rounds of the reconcile loop until no scrub runs.
async fn until_scrubbed(array: &Array) {
    loop {
        round_at(array, now()).await;
        if scrubs(array).await.first().is_some_and(|scrub| scrub.state == ScrubState::Done) {
            return round_at(array, now()).await;
        }
    }
}

/// Returns the next `hour` o'clock after `time`.
fn next_hour(time: Timestamp, hour: u64) -> Timestamp {
    time.plus((hour * 3600 + DAY - time.second_of_day()) % DAY)
}

#[tokio::test]
async fn pool_settings_hold_after_a_restart_and_bad_ones_change_nothing() {
    let array = furnished(&[("rebuild", "fast"), ("rebuild.latency", "20ms")]).await;
    array.control.pools.pause(&name("tank"), true).await.expect("paused");
    let wrong = settings(&[("rebuild", "idle"), ("scrub", "daily")]);
    let refusal = array.control.pools.set(&name("tank"), wrong).await.expect_err("daily is too often");
    assert_eq!(refusal.code, code::SETTING_INVALID);
    assert_eq!(
        array.control.pools.set(&name("pond"), settings(&[])).await.expect_err("no pool").code,
        code::POOL_UNKNOWN
    );

    let array = array.restarted().await;
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    let repair = pool.policy.repair;
    assert_eq!(
        (repair.mode, repair.latency.map(|span| span.millis()), repair.paused),
        (RepairMode::Fast, Some(20), true)
    );
    let pool = array.control.pools.pause(&name("tank"), false).await.expect("resumed");
    assert!(!pool.policy.repair.paused);
}

#[tokio::test]
async fn scrub_by_hand_runs_once_and_what_it_found_is_remembered() {
    let array = furnished(&[]).await;
    let tank = name("tank");
    assert_eq!(array.control.scrubs.stop(&tank).await.expect_err("none runs").code, code::SCRUB_UNKNOWN);
    array.control.scrubs.start(&tank, StartScrub::default()).await.expect("it begins");
    let again = array.control.scrubs.start(&tank, StartScrub::default()).await.expect_err("one at a time");
    assert_eq!(again.code, code::POOL_BUSY);
    until_scrubbed(&array).await;
    let found = scrubs(&array).await;
    assert!(found.len() == 1 && found[0].is_clean(), "{found:?}");
    let array = array.restarted().await;
    assert_eq!(scrubs(&array).await, found);
    array.control.scrubs.start(&tank, StartScrub { repairs: true }).await.expect("another");
    array.control.scrubs.stop(&tank).await.expect("stops");
}

#[tokio::test]
async fn scrub_by_the_clock_begins_in_its_hours_and_waits_outside_of_them() {
    let array = furnished(&[("scrub", "weekly"), ("scrub.window", "02:00-04:00")]).await;
    let soon = next_hour(now().plus(DAY), 3);
    round_at(&array, soon).await;
    assert!(scrubs(&array).await.is_empty(), "a week has not passed");
    let due = next_hour(now().plus(8 * DAY), 3);
    round_at(&array, due.plus(2 * 3600)).await;
    assert!(scrubs(&array).await.is_empty(), "not at this hour");
    round_at(&array, due).await;
    assert_eq!(scrubs(&array).await[0].state, ScrubState::Running);
    round_at(&array, due.plus(2 * 3600)).await;
    assert_eq!(scrubs(&array).await[0].state, ScrubState::Waiting, "its hours are over");
    round_at(&array, due.plus(DAY)).await;
    assert_eq!(scrubs(&array).await[0].state, ScrubState::Running, "and the next night it goes on");

    let array = array.restarted().await;
    array.control.pools.set(&name("tank"), settings(&[("scrub.window", "off")])).await.expect("at any hour");
    until_scrubbed(&array).await;
    let found = scrubs(&array).await;
    assert!(found.len() == 1 && found[0].is_clean(), "what the restart cut short was begun anew: {found:?}");
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert!(pool.next_scrub.is_some_and(|next| next.since(found[0].started) >= 6 * DAY), "{:?}", pool.next_scrub);
}

#[tokio::test]
async fn scrub_that_began_by_a_wrong_clock_does_not_keep_the_next_one_away() {
    let array = furnished(&[("scrub", "weekly")]).await;
    let wrong = now().plus(3650 * DAY);
    let turn = array.control.core.lock_changes().await;
    let set = |state: &mut State| state.pools.get_mut(&name("tank")).expect("a pool").scrub_since = Some(wrong);
    array.control.core.commit(&turn, set).expect("committed");
    drop(turn);
    round_at(&array, wrong.plus(DAY)).await;
    assert!(scrubs(&array).await.is_empty(), "by that clock a week has not passed");
    round_at(&array, now()).await;
    assert_eq!(scrubs(&array).await.len(), 1, "by the right one there was none");
}

#[tokio::test]
async fn scrub_by_the_clock_leaves_a_pool_alone_that_has_other_worries() {
    let array = furnished(&[("scrub", "monthly")]).await;
    array.control.pools.fail_disk(&name("d0")).await.expect("failed");
    round_at(&array, now().plus(40 * DAY)).await;
    assert!(scrubs(&array).await.is_empty());
    let pool = array.control.pools.report(&name("tank")).await.expect("a pool");
    assert_eq!(pool.state, PoolState::Degraded);
}

#[tokio::test]
async fn pool_gets_one_more_group_of_free_disks() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2", "d3"]).await;
    let control = &array.control;
    control.pools.create(new_pool("tank", Level::Raid1, &["d0", "d1"])).await.expect("made");
    let before = control.pools.report(&name("tank")).await.expect("is there");
    let add = |disks: &[&str]| {
        let disks = disks.iter().map(|disk| name(disk)).collect();
        let request = AddGroup {
            group: NewGroup { level: Level::Raid1, chunk: None, no_integrity: false, member_size: None, disks },
            force: false,
        };
        async move { control.pools.add_group(&name("tank"), request).await }
    };
    assert_eq!(add(&["d1", "d2"]).await.expect_err("d1 is in use").code, code::DISK_IN_USE);
    assert_eq!(add(&["d2", "d2"]).await.expect_err("named twice").code, code::DISK_IN_USE);
    assert_eq!(add(&["d2"]).await.expect_err("too few").code, code::TOO_FEW_MEMBERS);
    assert_eq!(control.pools.report(&name("tank")).await.expect("is there"), before);
    let pool = add(&["d2", "d3"]).await.expect("added");
    assert_eq!((pool.groups.len(), pool.size.bytes()), (2, 2 * before.size.bytes()));
    assert!(control.core.state().disks[&name("d3")].id.is_some(), "it is known by what its label says");
}

#[tokio::test]
async fn pool_grows_into_larger_disks_and_is_refused_where_there_is_no_room() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1"]).await;
    let control = &array.control;
    control.pools.create(new_pool("tank", Level::Raid1, &["d0", "d1"])).await.expect("made");
    let before = control.pools.report(&name("tank")).await.expect("is there");
    let grow = async |array: &Array, pool: &str, group| {
        array.control.pools.grow(&name(pool), GrowPool { group, member_size: None }).await
    };
    assert_eq!(grow(&array, "tonk", None).await.expect_err("unknown").code, code::POOL_UNKNOWN);
    assert_eq!(grow(&array, "tank", Some(1)).await.expect_err("has one group").code, code::GROUP_UNKNOWN);
    assert_eq!(grow(&array, "tank", None).await.expect_err("no room").code, code::GROUP_FULL_SIZE);
    for (disk, larger) in [("d0", "l0"), ("d1", "l1")] {
        control.disks.add(new_disk(&array.folder(), larger, Size::gib(1))).await.expect("a disk");
        let by = Replace { replacement: name(larger), force: true, confirmed: true };
        control.pools.replace_disk(&name(disk), by).await.expect("replaced");
        while control.pools.report(&name("tank")).await.expect("is there").rebuild().is_some() {}
    }
    grow(&array, "tank", Some(0)).await.expect("grown");
    while array.control.pools.report(&name("tank")).await.expect("is there").size.bytes() < 2 * before.size.bytes() {}
}

#[tokio::test]
async fn group_gets_a_free_disk_as_one_more_member() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2", "d3", "s0"]).await;
    let control = &array.control;
    control.pools.create(new_pool("tank", Level::Raid5, &["d0", "d1", "d2"])).await.expect("made");
    control.spares.add(&name("s0"), crate::request::NewSpare { pool: None, force: false }).await.expect("a spare");
    let before = control.pools.report(&name("tank")).await.expect("is there");
    let add = |disk| async move {
        let request = AddMember { disk: name(disk), group: None, force: false };
        control.pools.add_member(&name("tank"), request).await
    };
    for (disk, refused) in [("d1", code::DISK_IN_USE), ("s0", code::DISK_IN_USE), ("d9", code::DISK_UNKNOWN)] {
        assert_eq!(add(disk).await.expect_err(disk).code, refused, "{disk}");
    }
    assert_eq!(control.pools.report(&name("tank")).await.expect("is there"), before);
    let pool = add("d3").await.expect("added");
    assert_eq!(pool.groups[0].members.len(), 4);
    // Data is spread over the new member first; whole slabs of 16 MiB count.
    let wanted = before.size.bytes() / 2 * 3 - (16 << 20);
    while control.pools.report(&name("tank")).await.expect("is there").size.bytes() < wanted {}
    assert!(control.core.state().disks[&name("d3")].id.is_some(), "it is known by what its label says");
}

/// A reshape moves the blocks of a group to other stripes, so a scrub of it would have to start over.
#[tokio::test]
async fn scrub_of_a_group_that_is_laid_out_anew_meanwhile_ends() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2", "d3"]).await;
    let (control, tank) = (&array.control, name("tank"));
    control.pools.create(new_pool("tank", Level::Raid5, &["d0", "d1", "d2"])).await.expect("made");
    array.create_volume("tank/data", Size::mib(256)).await.expect("a volume");
    control.pools.set(&tank, settings(&[("rebuild.max", "64MiB/s")])).await.expect("slow enough to be met");
    control.scrubs.start(&tank, StartScrub::default()).await.expect("it begins");
    while scrubs(&array).await[0].checked < Size::mib(32) {}
    let request = AddMember { disk: name("d3"), group: None, force: false };
    control.pools.add_member(&tank, request).await.expect("added");
    control.pools.set(&tank, settings(&[("rebuild.max", "off")])).await.expect("fast again");
    until_scrubbed(&array).await;
    let found = scrubs(&array).await;
    assert!(found.len() == 1 && found[0].is_clean(), "{found:?}");
    assert_eq!(control.pools.report(&tank).await.expect("it serves").groups[0].members.len(), 4);
}
