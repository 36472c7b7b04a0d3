//! Tests of the hardware identity of disks, and of their enclosures and slots.

use super::{Array, new_disk, new_pool};
use crate::request::{Locate, NewPool, NewSpare};
use model::{DiskState, Level, Name, Size, code};
use std::fs;
use testbed::{DiskFacts, Testbed};

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Testbed with disks `r0`… of `array`, three per enclosure; `moved` gives the file under which a disk is
/// found.
fn racked(array: &Array, moved: &[(&str, &str)]) -> Testbed {
    let mut testbed = Testbed::default();
    for n in 0..6 {
        let own = format!("r{n}");
        let file = moved.iter().find(|(disk, _)| *disk == own).map_or(own.as_str(), |(_, file)| file);
        let identity = DiskFacts {
            serial: Some(format!("SERIAL{n}")),
            enclosure: Some(if n < 3 { "top" } else { "bottom" }.to_owned()),
            slot: Some((n % 3).to_string()),
            has_light: n < 3,
            ..DiskFacts::default()
        };
        testbed.facts.insert(array.folder().join(format!("{file}.img")).to_string_lossy().into_owned(), identity);
    }
    testbed
}

async fn furnished() -> Array {
    let array = Array::new().await;
    let testbed = racked(&array, &[]);
    let array = array.restarted_on(testbed).await;
    array.add_disks(&["r0", "r1", "r2", "r3", "r4", "r5"]).await;
    array
}

#[tokio::test]
async fn disk_without_a_label_is_found_by_its_serial_number() {
    let array = furnished().await;
    array.control.spares.add(&name("r0"), NewSpare::default()).await.expect("a spare");
    // Two blank disks have swapped paths, as kernel names may.
    let folder = array.folder();
    for (from, to) in [("r0", "x"), ("r1", "r0"), ("x", "r1")] {
        fs::rename(folder.join(format!("{from}.img")), folder.join(format!("{to}.img"))).expect("renames");
    }
    let testbed = racked(&array, &[("r0", "r1"), ("r1", "r0")]);
    let array = array.restarted_on(testbed).await;
    for (disk, file, serial) in [("r0", "r1.img", "SERIAL0"), ("r1", "r0.img", "SERIAL1")] {
        let report = array.control.disks.report(&name(disk)).await.expect("a disk");
        assert!(report.path.ends_with(file), "{disk} is at {}", report.path);
        assert_eq!(report.identity.serial.as_deref(), Some(serial));
    }
    assert!(array.control.disks.report(&name("r0")).await.expect("a disk").spare.is_some());
}

#[tokio::test]
async fn another_disk_in_the_place_of_a_known_one_is_not_taken_for_it() {
    let array = furnished().await;
    array.control.spares.add(&name("r5"), NewSpare::default()).await.expect("a spare");
    let mut testbed = racked(&array, &[]);
    for identity in testbed.facts.values_mut().filter(|identity| identity.serial.as_deref() == Some("SERIAL5")) {
        identity.serial = Some("ANOTHER".to_owned());
    }
    let array = array.restarted_on(testbed).await;
    let report = array.control.disks.report(&name("r5")).await.expect("a disk");
    assert_eq!(report.state, DiskState::Missing);
    assert_eq!(report.identity.place().as_deref(), Some("bottom/2"), "where it was last is still known");
}

#[tokio::test]
async fn disk_is_located_by_its_light_or_told_how_else() {
    let array = furnished().await;
    array.control.disks.locate(&name("r0"), Locate::On).await.expect("it has a light");
    let refusal = array.control.disks.locate(&name("r4"), Locate::On).await.expect_err("it has none");
    assert_eq!(refusal.code, code::DISK_NO_LIGHT);
    assert!(refusal.hint.contains("--blink"), "{refusal}");
    array.control.disks.locate(&name("r4"), Locate::Blink { seconds: 1 }).await.expect("its own blinks");
    assert_eq!(array.control.disks.locate(&name("r9"), Locate::Off).await.expect_err("none").code, code::DISK_UNKNOWN);
}

#[tokio::test]
async fn pool_is_spread_over_enclosures_when_asked_and_says_what_it_cannot_lose() {
    let array = furnished().await;
    let disks = ["r0", "r1", "r3", "r4"];
    let pool = array.create_pool("tank", Level::Raid10, &disks).await.expect("a pool");
    let seen = array.control.pools.report(&pool.name).await.expect("a pool");
    assert_eq!(seen.weak_enclosures, ["bottom", "top"], "as the disks were named, each pair sits in one enclosure");
    array.control.pools.destroy(&name("tank")).await.expect("gone");
    let request = NewPool { spread: true, ..new_pool("tank", Level::Raid10, &disks) };
    let made = array.control.pools.create(request).await.expect("a pool");
    assert_eq!(made.weak_enclosures, Vec::<String>::new());
    array.control.disks.add(new_disk(&array.folder(), "more", Size::mib(128))).await.expect("a disk");
}

/// Regression: a member whose disk is unknown was taken for the disk that has the name of the pool.
#[tokio::test]
async fn pool_with_the_name_of_a_disk_has_no_member_in_its_enclosure() {
    let array = furnished().await;
    array.create_pool("r5", Level::Raid1, &["r0", "r3"]).await.expect("a pool");
    array.wait_for_no_disk("r5").await;
    fs::remove_file(array.folder().join("r0.img")).expect("removes");
    let testbed = racked(&array, &[]);
    let array = array.restarted_on(testbed).await;
    array.control.reconciler.handle_events(Vec::new()).await.expect("looked at");
    array.control.disks.remove(&name("r0")).await.expect("removed");
    let pool = array.control.pools.report(&name("r5")).await.expect("a pool");
    assert_eq!(pool.groups[0].members[0].disk, None);
    assert_eq!(pool.weak_enclosures, Vec::<String>::new());
}
