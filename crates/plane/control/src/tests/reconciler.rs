//! Tests of the reconcile loop.

use super::Array;
use crate::EventFilter;
use crate::request::Replace;
use model::{EventCode, Level, Name, Raised, Subject, SubjectKind, Timestamp, event};
use testbed::Testbed;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Runs one round of the reconcile loop: collects events and handles them.
async fn round(array: &Array) {
    let raised = array.control.reconciler.next_events().await.expect("something happened");
    array.control.reconciler.handle_events(raised).await.expect("looked at");
}

async fn codes(array: &Array) -> Vec<EventCode> {
    array.control.reconciler.events(EventFilter::default()).await.into_iter().map(|event| event.code).collect()
}

#[tokio::test]
async fn events_tell_the_story_of_a_disk_and_survive_a_restart() {
    // Disks slow enough for the rebuild to be still running when it is checked.
    let slow = Testbed { disk_bytes_per_second: 512 << 10, ..Testbed::default() };
    let array = Array::on(tempfile::tempdir().expect("a folder"), slow).await;
    array.furnish().await;
    array.add_disks(&["f0"]).await;
    array.control.reconciler.handle_events(Vec::new()).await.expect("looked at");
    array.control.pools.fail_disk(&name("d0")).await.expect("failed");
    round(&array).await;
    let replace = Replace { replacement: name("f0"), force: false, confirmed: false };
    array.control.pools.replace_disk(&name("d0"), replace).await.expect("replaced");
    round(&array).await;
    while array.control.pools.report(&name("tank")).await.expect("a pool").rebuild().is_some() {}
    round(&array).await;
    let story = [
        event::NODE_STARTED,
        event::DISK_OUT,
        event::POOL_DEGRADED,
        event::REBUILD_BEGAN,
        event::REBUILD_ENDED,
        event::POOL_WHOLE,
    ];
    assert_eq!(codes(&array).await, story);
    let before = array.control.reconciler.events(EventFilter::default()).await;

    let array = array.restarted().await;
    let after =
        array.control.reconciler.events(EventFilter { limit: Some(story.len() + 1), ..EventFilter::default() }).await;
    assert_eq!(after[1..], before[1..], "what happened is not forgotten");
    assert_eq!(after[0].code, event::NODE_STARTED);
    assert_eq!(after[0].count, 2, "the second start is counted with the first");
}

#[tokio::test]
async fn array_is_not_looked_at_for_each_stranger_at_the_door() {
    let array = Array::new().await;
    array.furnish().await;
    let looked = async |subject: Subject, code| {
        let raised = Raised::new(Timestamp::from_unix(1), code, subject, "something has happened");
        array.control.reconciler.handle_events(vec![raised]).await.expect("looked at");
        array.control.reconciler.last_round.lock().await.looked.expect("it was looked at")
    };
    let stranger = || Subject::new(SubjectKind::Host, &name("stranger"));
    let first = looked(stranger(), event::HOST_CUT_OFF).await;
    assert_eq!(looked(stranger(), event::HOST_CUT_OFF).await, first, "just now");
    assert!(looked(Subject::disk(&name("d0")), event::DISK_OUT).await > first);
    assert!(codes(&array).await.contains(&event::HOST_CUT_OFF), "it is written down all the same");
}

#[tokio::test]
async fn events_name_a_pool_that_is_not_there() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1"]).await;
    array.create_pool("tank", Level::Raid1, &["d0", "d1"]).await.expect("a pool");
    for disk in ["d0.img", "d1.img"] {
        std::fs::remove_file(array.folder().join(disk)).expect("removes");
    }
    let array = array.restarted().await;
    array.control.reconciler.handle_events(Vec::new()).await.expect("looked at");
    let told = array.control.reconciler.events(EventFilter { after: 1, ..EventFilter::default() }).await;
    assert!(told.iter().all(|told| told.code == event::POOL_UNOPENED && told.subject.name == "tank"), "{told:?}");
    assert_eq!(told.iter().map(|told| told.count).sum::<u64>(), 1, "once, with the reason");
}
