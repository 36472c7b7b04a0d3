//! Tests of existing objects that differ from a document, of spares, of global settings, and of space limits.

use super::{Array, apply, said};
use crate::config::{ApplyConfig, Document, SpareEntry, VolumeEntry};
use crate::request::{ImportPool, NewBackend, NewSpare, Removal};
use model::{ChapAlgorithm, Provision, Refusal, Size, code};

async fn furnished() -> (Array, Document) {
    let array = Array::new().await;
    array.furnish().await;
    array.add_disks(&["s0"]).await;
    let document = array.control.config.export(&()).await.expect("a document");
    (array, document)
}

async fn refused(array: &Array, document: &Document) -> Refusal {
    array.control.config.plan(&apply(document), &()).await.expect_err("it is otherwise")
}

/// Regression: each of these differences was reported as no change.
#[tokio::test]
async fn document_that_says_otherwise_of_what_is_there_is_refused() {
    let (array, document) = furnished().await;
    let change = |edit: &dyn Fn(&mut Document)| {
        let mut other = document.clone();
        edit(&mut other);
        other
    };
    let tank = || "tank".parse().expect("a name");
    let vm1 = || "tank/vm1".parse().expect("a name");
    let wrong: [(&str, Document); 9] = [
        ("disk d0 is at ", change(&|d| d.disk.values_mut().next().expect("d0").path = "/dev/null".to_owned())),
        (
            "pool tank is raid6",
            change(&|d| d.pool.get_mut(&tank()).expect("tank").groups[0].level = model::Level::Raid1),
        ),
        (
            "pool tank is raid6 of d0 d1 d2 d3",
            change(&|d| d.pool.get_mut(&tank()).expect("tank").groups[0].disks[0] = "s0".parse().expect("a name")),
        ),
        ("pool tank is raid6", change(&|d| d.pool.get_mut(&tank()).expect("tank").groups.clear())),
        (
            "pool tank was not imported read-only",
            change(&|d| d.pool.get_mut(&tank()).expect("tank").read_only = Some(true)),
        ),
        ("its encryption is off", change(&|d| d.volume.get_mut(&vm1()).expect("vm1").encrypted = true)),
        ("its zero detection is off", change(&|d| d.volume.get_mut(&vm1()).expect("vm1").zero_detection = true)),
        ("its granule is 64 KiB", change(&|d| d.volume.get_mut(&vm1()).expect("vm1").granule = Some(Size::mib(1)))),
        (
            "its backend is its pool",
            change(&|d| d.volume.get_mut(&vm1()).expect("vm1").backend = Some(NewBackend::Ram {})),
        ),
    ];
    for (sentence, other) in wrong {
        let refusal = refused(&array, &other).await;
        assert_eq!(refusal.code, code::DOCUMENT_CONFLICT);
        assert!(refusal.message.contains(sentence), "{sentence}: {refusal}");
    }
    assert!(
        array
            .control
            .config
            .plan(&ApplyConfig { prune: true, ..apply(&document) }, &())
            .await
            .expect("a plan")
            .steps
            .is_empty()
    );
}

/// A document without the flag leaves the pool as it is.
#[tokio::test]
async fn document_of_a_pool_that_was_imported_read_only_says_so() {
    let (array, written) = furnished().await;
    let tank: model::Name = "tank".parse().expect("a name");
    assert_eq!(written.pool[&tank].read_only, None);
    array.control.pools.export(&tank, Removal { force: true }).await.expect("exported");
    let read_only = ImportPool { read_only: true, ..ImportPool::default() };
    assert!(array.control.pools.import(&tank, read_only).await.expect("imported").imported_read_only);
    let array = array.restarted().await;
    let mut document = array.control.config.export(&()).await.expect("a document");
    assert_eq!(document.pool[&tank].read_only, Some(true));
    document.pool.get_mut(&tank).expect("tank").read_only = None;
    assert!(array.control.config.plan(&apply(&document), &()).await.expect("a plan").steps.is_empty());
    document.pool.get_mut(&tank).expect("tank").read_only = Some(false);
    let refusal = refused(&array, &document).await;
    assert!(refusal.message.contains("pool tank was imported read-only"), "{refusal}");
    assert!(refusal.hint.contains("blockyard pool import tank"), "{refusal}");
}

#[tokio::test]
async fn document_holds_spares_and_what_is_set_for_all() {
    let (array, _) = furnished().await;
    let s0 = "s0".parse().expect("a name");
    array
        .control
        .spares
        .add(&s0, NewSpare { pool: Some("tank".parse().expect("a name")), force: false })
        .await
        .expect("a spare");
    let exported = array.control.config.export(&()).await.expect("a document");
    let spare = SpareEntry { pool: Some("tank".parse().expect("a name")) };
    assert_eq!(exported.disk[&s0].spare, Some(spare));
    array.control.spares.remove(&s0).await.expect("no spare any more");
    let mut wanted = exported.clone();
    wanted.isns = Some("10.0.0.9".parse().expect("an address"));
    let auth = wanted.auth.as_mut().expect("is always there");
    auth.min_algorithm = ChapAlgorithm::Sha256;
    wanted.portal_group.push(crate::config::PortalGroupEntry {
        tag: 1,
        access: model::GroupAccess::default(),
        preferred: true,
    });
    let plan = array.control.config.apply(apply(&wanted), &()).await.expect("is applied");
    let said = said(&plan.steps);
    for step in ["~ disk s0: a spare for pool tank", "~ iSNS server: none → 10.0.0.9:3205"] {
        assert!(said.contains(&step.to_owned()), "{step} is not among {said:#?}");
    }
    assert!(said.iter().any(|step| step.starts_with("~ weakest CHAP: ") && step.ends_with("→ sha-256")), "{said:?}");
    assert!(said.iter().any(|step| step.starts_with("~ portal group 1: ")), "{said:?}");
    assert_eq!(array.control.config.export(&()).await.expect("a document"), wanted);
    assert!(
        array
            .control
            .config
            .plan(&ApplyConfig { prune: true, ..apply(&wanted) }, &())
            .await
            .expect("a plan")
            .steps
            .is_empty()
    );
    // Discovery with CHAP needs a secret, which no exported document has.
    let mut asks = wanted.clone();
    let proof = crate::config::DiscoveryEntry { chap: Some(crate::config::ChapEntry::default()), mutual_chap: None };
    asks.auth.as_mut().expect("is there").discovery = Some(proof);
    assert_eq!(
        refused(&array, &asks).await.to_string(),
        "[auth.discovery.chap] has no secret, and the array has none; write secret_file = \"FILE\" there; the \
         file lies beside the document and contains only the secret"
    );
}

/// Regression: the plan accepted the volume, and its application was refused.
#[tokio::test]
async fn plan_judges_room_for_thick_volumes_together() {
    let (array, mut document) = furnished().await;
    let free = array.control.pools.list().await.expect("pools")[0].clone();
    let free = free.size.bytes() - free.used.bytes();
    let half = Some(Size::new(free / 4096 / 2 * 4096));
    for name in ["tank/one", "tank/two"] {
        let entry = crate::config::VolumeEntry { size: half, ..Default::default() };
        document.volume.insert(name.parse().expect("a name"), entry);
    }
    assert_eq!(array.control.config.plan(&apply(&document), &()).await.expect("fits").steps.len(), 2);
    document.volume.get_mut(&"tank/vm1".parse().expect("a name")).expect("vm1").size = Some(Size::mib(10));
    let refusal = refused(&array, &document).await;
    assert_eq!(refusal.code, code::POOL_FULL);
    assert!(refusal.message.ends_with("for tank/one, tank/two, tank/vm1"), "{refusal}");
    for name in ["tank/one", "tank/two"] {
        document.volume.get_mut(&name.parse().expect("a name")).expect("is there").provision = Some(Provision::Thin);
    }
    assert_eq!(array.control.config.plan(&apply(&document), &()).await.expect("thin ones keep nothing").steps.len(), 3);
}

/// Regression: the limit was found after a thousand volumes had been created.
#[tokio::test]
async fn more_volumes_than_a_pool_or_an_array_takes_are_refused_before_one_is_made() {
    let (array, _) = furnished().await;
    for (name, count, told) in [
        ("tank/many", model::POOL_VOLUMES_MAX, "pool tank supports 1024 volumes; it has "),
        ("many", model::VOLUMES_MAX, "the array supports 16384 volumes; it has "),
    ] {
        let mut document = Document { schema: 1, ..Document::default() };
        for number in 0..count {
            let entry = VolumeEntry { size: Some(Size::mib(1)), ..VolumeEntry::default() };
            let backend = (!name.contains('/')).then_some(NewBackend::Null {});
            document.volume.insert(
                format!("{name}{number}").parse().expect("a name"),
                VolumeEntry { provision: backend.is_none().then_some(Provision::Thin), backend, ..entry },
            );
        }
        let before = array.control.volumes.list().await.expect("volumes").len();
        let refusal = array.control.config.apply(apply(&document), &()).await.expect_err("too many");
        assert_eq!(refusal.code, code::LIMIT_REACHED);
        assert!(refusal.message.contains(told), "{refusal}");
        assert_eq!(array.control.volumes.list().await.expect("volumes").len(), before, "none is made");
    }
}
