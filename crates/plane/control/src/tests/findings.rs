//! Tests of the findings of `doctor`.

use super::{Array, new_pool};
use crate::request::{NewSpare, PoolSettings};
use model::{Finding, Grade, Level};

fn of<'a>(findings: &'a [Finding], subject: &str) -> Vec<&'a str> {
    findings.iter().filter(|one| one.subject == subject).map(|one| one.message.as_str()).collect()
}

#[tokio::test]
async fn findings_say_what_the_array_lacks_the_worst_first_and_what_is_good() {
    let array = Array::new().await;
    let control = &array.control;
    let findings = control.status.findings().await.expect("told");
    assert_eq!(of(&findings, "array"), ["All good"]);
    assert_eq!(of(&findings, "engine"), ["uses sim, which needs more CPU time"]);

    array.furnish().await;
    let lacking = control.status.findings().await.expect("told");
    let (no_spare, no_scrub) = (
        "has no hot spare: a failed disk is not replaced automatically",
        "has no scheduled scrub: latent errors \
             surface only when the data is read",
    );
    assert_eq!(of(&lacking, "pool tank"), [no_spare, no_scrub]);
    let spare = lacking.iter().find(|one| one.message == no_spare).expect("it was looked at");
    assert_eq!((spare.grade, spare.fix.as_str()), (Grade::Warning, "add one with blockyard disk spare add DISK"));
    array.add_disks(&["s0", "r0"]).await;
    control.spares.add(&"s0".parse().expect("a name"), NewSpare::default()).await.expect("a spare");
    assert_eq!(of(&control.status.findings().await.expect("told"), "pool tank"), [no_scrub]);
    let settings = [("scrub".to_owned(), "monthly".to_owned())].into();
    control.pools.set(&"tank".parse().expect("a name"), PoolSettings { settings }).await.expect("scrubbed");
    assert_eq!(
        of(&control.status.findings().await.expect("told"), "pool tank"),
        ["has a hot spare and scheduled scrubs"]
    );
    control.pools.create(new_pool("quick", Level::Raid0, &["r0"])).await.expect("a pool");
    let findings = control.status.findings().await.expect("told");
    assert_eq!(of(&findings, "pool quick"), ["has no redundancy: one failed disk loses all data", no_scrub]);

    control.pools.fail_disk(&"d0".parse().expect("a name")).await.expect("failed");
    let findings = control.status.findings().await.expect("told");
    assert!(findings.is_sorted_by_key(|one| std::cmp::Reverse(one.grade)), "{findings:?}");
    assert!(findings[0].grade > Grade::Good && !findings[0].fix.is_empty(), "{findings:?}");
    assert_eq!(of(&findings, "array"), [""; 0], "it is not all good any more");
}
