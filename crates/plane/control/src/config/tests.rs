//! Tests of documents: export, plan and apply.

mod concurrent;
mod large;
mod made;
pub mod told;

use super::*;
use crate::request::{NewHost, Removal, SecretText};
use crate::tests::{Array, new_disk};
use model::{Size, code};
use std::collections::BTreeMap;

/// Document of the array that [`Array::furnish`] creates, as an operator would write it.
fn furnished(array: &Array) -> Document {
    let disk = |n: usize| {
        let path = array.folder().join(format!("d{n}.img")).to_string_lossy().into_owned();
        (format!("d{n}").parse().expect("a name"), DiskEntry { path, ..DiskEntry::default() })
    };
    let text = r#"{"schema": 1,
        "pool": {"tank": {"groups": [{"level": "raid6", "disks": ["d0", "d1", "d2", "d3"]}]}},
        "volume": {"tank/vm1": {"size": "8MiB", "settings": {"iops": "500"}}, "tank/vm2": {"size": "8MiB", "provision": "thin"}},
        "host": {"web": {"initiators": ["iqn.2001-04.com.example:web"], "chap": {"secret": "a secret of a host"}},
                 "db": {"initiators": ["iqn.2001-04.com.example:db"]}},
        "group": {"all": {"hosts": ["web", "db"]}},
        "present": [{"volume": "tank/vm1", "host": "all"}, {"volume": "tank/vm2", "host": "web", "lun": 0, "read_only": true}]}"#;
    Document { disk: (0..4).map(disk).collect(), ..serde_json::from_str(text).expect("a document") }
}

async fn empty_with_disks() -> Array {
    let array = Array::new().await;
    for n in 0..4 {
        // The files exist, and the daemon does not know them.
        let made = new_disk(&array.folder(), &format!("d{n}"), Size::mib(512));
        array.control.disks.add(made).await.expect("a disk");
        array.control.disks.remove(&format!("d{n}").parse().expect("a name")).await.expect("forgotten");
    }
    array
}

fn apply(document: &Document) -> ApplyConfig {
    ApplyConfig { document: document.clone(), ..ApplyConfig::default() }
}

fn said(steps: &[Step]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn document_makes_an_array_of_an_empty_machine_and_changes_nothing_the_second_time() {
    let array = empty_with_disks().await;
    let document = furnished(&array);
    let plan = array.control.config.plan(&apply(&document), &()).await.expect("a plan");
    let steps = said(&plan.steps);
    for wanted in [
        "+ pool tank: raid6 of 4 disks",
        "+ volume tank/vm1: 8 MiB (8.4 MB)",
        "~ volume tank/vm1: iops off → 500",
        "+ host db: iqn.2001-04.com.example:db",
        "+ group all: db, web",
        "+ presentation of volume tank/vm1 to all: LUN 1 of target array1",
        "+ presentation of volume tank/vm2 to web: LUN 0 of target array1, read-only",
    ] {
        let wanted = wanted.replace("array1", crate::state::DEFAULT_TARGET);
        assert!(steps.contains(&wanted), "{wanted} is not among {steps:#?}");
    }
    assert!(array.control.pools.list().await.expect("pools").is_empty(), "a plan changes nothing");
    let applied = array.control.config.apply(apply(&document), &()).await.expect("is applied");
    assert_eq!(said(&applied.steps), steps);
    assert_eq!(array.access().presentations.len(), 3, "both hosts see vm1, and web sees vm2");
    let again = array.control.config.apply(apply(&document), &()).await.expect("is so already");
    assert_eq!(said(&again.steps), Vec::<String>::new());

    let exported = array.control.config.export(&()).await.expect("a document");
    assert!(!serde_json::to_string(&exported).expect("json").contains("a secret"), "secrets stay");
    let plan = array.control.config.plan(&ApplyConfig { prune: true, ..apply(&exported) }, &()).await.expect("a plan");
    assert_eq!((said(&plan.steps), plan.kept), (Vec::new(), Vec::new()), "what is exported is what there is");
}

#[tokio::test]
async fn document_that_is_refused_halfway_leaves_nothing() {
    let array = empty_with_disks().await;
    let mut document = furnished(&array);
    document.volume.get_mut(&"tank/vm1".parse().expect("a name")).expect("is there").size = Some(Size::gib(99));
    let before = array.control.config.export(&()).await.expect("a document");
    let refusal = array.control.config.apply(apply(&document), &()).await.expect_err("there is no such room");
    assert_eq!(refusal.code, code::POOL_FULL, "{refusal}");
    assert_eq!(array.control.config.export(&()).await.expect("a document"), before);

    let mut document = furnished(&array);
    document.present[1].host = "nobody".parse().expect("a name");
    let refusal = array.control.config.apply(apply(&document), &()).await.expect_err("there is no such host");
    assert_eq!(refusal.code, code::HOST_UNKNOWN);
    let mut document = furnished(&array);
    document.schema = 2;
    assert!(array.control.config.plan(&apply(&document), &()).await.is_err(), "another form");
    let mut document = furnished(&array);
    let secret = Some(SecretText::Text("a secret of a host".to_owned()));
    let web = document.host.get_mut(&"web".parse().expect("a name")).expect("is there");
    web.mutual_chap = Some(ChapEntry { secret, ..ChapEntry::default() });
    let refusal = array.control.config.apply(apply(&document), &()).await.expect_err("the same secret both ways");
    assert_eq!(refusal.code, code::SECRETS_EQUAL);
    assert_eq!(array.control.config.export(&()).await.expect("a document"), before);
}

#[tokio::test]
async fn pruning_takes_what_is_not_named_but_never_data() {
    let array = empty_with_disks().await;
    array.control.config.apply(apply(&furnished(&array)), &()).await.expect("is applied");
    let mut document = furnished(&array);
    document.host.remove(&"db".parse().expect("a name"));
    document.group = BTreeMap::new();
    document.present = vec![document.present[1].clone()];
    document.volume = BTreeMap::new();
    document.pool = BTreeMap::new();
    let plan = array.control.config.plan(&apply(&document), &()).await.expect("a plan");
    assert!(plan.steps.is_empty() && plan.kept.contains(&"host db".to_owned()), "{plan:?}");
    let plan = array.control.config.plan(&ApplyConfig { prune: true, ..apply(&document) }, &()).await.expect("a plan");
    assert_eq!(
        said(&plan.steps),
        [
            "- host db",
            "- group all",
            &format!("- presentation of volume tank/vm1 to all: LUN 1 of target {}", crate::state::DEFAULT_TARGET)
        ]
    );
    let request = ApplyConfig { prune: true, fingerprint: Some(plan.fingerprint), ..apply(&document) };
    array.control.config.apply(request.clone(), &()).await.expect("is applied");
    assert_eq!(array.control.volumes.list().await.expect("volumes").len(), 2);
    document.host.clear();
    document.present.clear();
    let refusal = array
        .control
        .config
        .apply(ApplyConfig { document, ..request }, &())
        .await
        .expect_err("planned for another array");
    assert_eq!(refusal.code, code::CHANGED_MEANWHILE);
}

#[tokio::test(start_paused = true)]
async fn configuration_goes_back_when_initiators_stay_away_and_when_it_is_restored() {
    let array = empty_with_disks().await;
    array.control.config.apply(apply(&furnished(&array)), &()).await.expect("is applied");
    // The report of a volume names its granule only after the pool was opened again.
    let array = array.restarted().await;
    let mut document = furnished(&array);
    document.host.get_mut(&"db".parse().expect("a name")).expect("is there").initiators =
        vec!["iqn.2001-04.com.example:db2".parse().expect("an iSCSI name")];
    let before = array.control.config.export(&()).await.expect("a document");
    let back = vec!["iqn.2001-04.com.example:db2".parse().expect("an iSCSI name")];
    let request = ApplyConfig { initiators: back, ..apply(&document) };
    let refusal = array.control.config.apply(request, &()).await.expect_err("it never comes");
    assert_eq!(refusal.code, code::INITIATOR_LATE);
    assert_eq!(array.control.config.export(&()).await.expect("a document"), before);

    array.control.config.apply(apply(&document), &()).await.expect("is applied");
    let past = array.control.config.restore_points().await.expect("configurations");
    assert!(past[0].current && past[0].steps.is_empty());
    let change = "~ host db: iqn.2001-04.com.example:db2 → iqn.2001-04.com.example:db";
    let wanted = past.iter().find(|past| said(&past.steps) == [change]).expect("the one before is kept");
    let array = array.restarted().await;
    let now = array.control.config.restore_points().await.expect("configurations")[0].fingerprint.clone();
    let as_seen =
        |fingerprint: &str| RestoreConfig { fingerprint: Some(fingerprint.to_owned()), ..RestoreConfig::default() };
    let late = r#"{"name": "late", "initiators": ["iqn.2001-04.com.example:late"]}"#;
    let late: NewHost = serde_json::from_str(late).expect("a host");
    array.control.hosts.add(late).await.expect("added");
    let refusal = array.control.config.restore(wanted.version, as_seen(&now)).await.expect_err("it has changed since");
    assert_eq!(refusal.code, code::CHANGED_MEANWHILE);
    array.control.hosts.remove(&"late".parse().expect("a name"), Removal::default()).await.expect("removed");
    let now = array.control.config.restore_points().await.expect("configurations")[0].fingerprint.clone();
    array.control.config.restore(wanted.version, as_seen(&now)).await.expect("is kept");
    assert_eq!(array.control.config.export(&()).await.expect("a document"), before);
    let refusal = array.control.config.restore(99_999, RestoreConfig::default()).await.expect_err("is not kept");
    assert_eq!(refusal.code, code::CONFIG_UNKNOWN);
}

#[tokio::test]
async fn ten_configurations_are_kept_and_more_whatever_else_changes() {
    let array = Array::new().await;
    for n in 0..30 {
        let host = crate::tests::new_host(&format!("h{n}"), &[&format!("iqn.2001-04.com.example:h{n}")]);
        array.control.hosts.add(host).await.expect("a host");
        array.add_disks(&[&format!("d{n}")]).await;
    }
    let past = array.control.config.restore_points().await.expect("configurations");
    assert_eq!(past.len(), 20);
    assert_eq!(past[10].steps.len(), 10, "ten hosts less");
    assert!(past.windows(2).all(|pair| pair[0].version > pair[1].version));
}
