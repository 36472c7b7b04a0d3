//! Tests of long-running operations.

use super::Array;
use crate::request::{Replace, StartScrub};
use model::{Level, Name, OperationKind, Size, code};

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

#[tokio::test]
async fn operations_are_seen_whoever_began_them_and_cancelled_where_that_can_be() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2"]).await;
    array.create_pool("tank", Level::Raid1, &["d0", "d1"]).await.expect("a pool");
    array.create_volume("tank/data", Size::mib(16)).await.expect("a volume");
    assert_eq!(array.control.operations.list().await.expect("a list"), []);
    array.control.scrubs.start(&name("tank"), StartScrub::default()).await.expect("begun");
    let scrub = array.control.operations.list().await.expect("a list").pop().expect("the scrub");
    assert_eq!((scrub.kind, scrub.id.to_string()), (OperationKind::Scrub, "scrub:tank".to_owned()));
    assert!(scrub.cancellable && scrub.started.is_some(), "{scrub:?}");
    assert_eq!(scrub.description, "the scrub of pool tank");
    array.control.operations.cancel(&scrub.id).await.expect("cancelled");
    // The operation ends at its next step.
    let gone = loop {
        match array.control.operations.cancel(&scrub.id).await {
            Err(gone) if gone.code != code::SCRUB_UNKNOWN => break gone,
            _ => {}
        }
    };
    assert_eq!(gone.code, code::OPERATION_UNKNOWN);
    assert_eq!(array.control.operations.list().await.expect("a list"), []);
}

#[tokio::test]
async fn rebuild_is_an_operation_that_is_held_up_and_not_cancelled() {
    let array = Array::new().await;
    array.add_disks(&["d0", "d1", "d2"]).await;
    array.create_pool("tank", Level::Raid1, &["d0", "d1"]).await.expect("a pool");
    array.create_volume("tank/data", Size::mib(16)).await.expect("a volume");
    array.control.pools.pause(&name("tank"), true).await.expect("paused");
    array.control.pools.fail_disk(&name("d1")).await.expect("out");
    let by = Replace { replacement: name("d2"), force: false, confirmed: false };
    array.control.pools.replace_disk(&name("d1"), by).await.expect("replaced");
    let rebuild = array.control.operations.list().await.expect("a list").pop().expect("the rebuild");
    assert_eq!(rebuild.id.to_string(), "rebuild:tank:0");
    assert!(!rebuild.is_running && !rebuild.cancellable, "{rebuild:?}");
    let refusal = array.control.operations.cancel(&rebuild.id).await.expect_err("it must come to its end");
    assert_eq!(refusal.code, code::OPERATION_FIXED);
    assert!(refusal.hint.contains("pool pause tank"), "{refusal}");
}
