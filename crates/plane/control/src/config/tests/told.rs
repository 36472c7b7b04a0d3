//! Tests of the effect of documents on sessions, and of the rollback.

use super::{Array, apply, said};
use crate::EventFilter;
use crate::config::{ApplyConfig, Document, Plan};
use crate::tests::{new_host, new_presentation, new_volume};
use model::{Iqn, Name, SessionReport, Size, code, event};
use serde_json::json;
use testbed::Testbed;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn iqn(host: &str) -> Iqn {
    format!("iqn.2001-04.com.example:{host}").parse().expect("an iSCSI name")
}

/// A session of the host from 10.0.0.5, with LUNs 0 and 1 where they are presented.
pub fn session(id: u32, host: &str) -> SessionReport {
    let target = "iqn.2026-11.io.blockyard:node1";
    serde_json::from_value(json!({"id": id, "kind": "normal", "initiator": iqn(host), "host": host,
        "address": "10.0.0.5:40000", "portal": "127.0.0.1:3260", "target": target, "luns": [0, 1], "header_digest": false,
        "data_digest": false, "authentication": "none", "chap_user": null, "mutual": false, "negotiated": {},
        "commands": 0, "read_bytes": 0, "written_bytes": 0, "connected_seconds": 1}))
    .expect("a session")
}

/// An array with hosts web and db, volumes a and b presented to web, and a session of each host.
pub async fn visited() -> Array {
    let mut testbed = Testbed::default();
    testbed.hosts.sessions = vec![session(1, "web"), session(2, "db")];
    let array = Array::on(tempfile::tempdir().expect("a folder"), testbed).await;
    for host in ["web", "db"] {
        array.control.hosts.add(new_host(host, &[iqn(host).as_str()])).await.expect("a host");
    }
    for volume in ["a", "b"] {
        let backend = Some(crate::request::NewBackend::Ram {});
        let volume = crate::request::NewVolume { backend, ..new_volume(volume, Some(Size::mib(1))) };
        let volume = array.control.volumes.create(volume).await.expect("a volume").name.to_string();
        array.control.presentations.present(new_presentation(&volume, "web")).await.expect("a presentation");
    }
    let target = array.control.targets.list()[0].iqn.to_string();
    assert_eq!(session(1, "web").target, Some(target), "the sessions are of the target that there is");
    array
}

async fn plan(array: &Array, document: &Document, prune: bool) -> Plan {
    array.control.config.plan(&ApplyConfig { prune, ..apply(document) }, &()).await.expect("a plan")
}

/// Regression: the plan listed no session and `apply` needed no consent, and the data path ended the session.
#[tokio::test]
async fn plan_says_which_sessions_a_network_shuts_out() {
    let array = visited().await;
    let mut document = array.control.config.export(&()).await.expect("a document");
    let web = document.host.get_mut(&name("web")).expect("is there");
    web.networks = vec!["10.0.0.0/16".parse().expect("a network")];
    let told = plan(&array, &document, false).await;
    assert_eq!((said(&told.steps), told.sessions), (vec!["~ host web: allowed addresses".to_owned()], 0));
    document.host.get_mut(&name("web")).expect("is there").networks = vec!["10.99.0.0/16".parse().expect("a network")];
    let told = plan(&array, &document, false).await;
    let step = "~ host web: allowed addresses (1 session: is closed)";
    assert_eq!((said(&told.steps), told.sessions), (vec![step.to_owned()], 1));
}

#[tokio::test]
async fn session_that_loses_two_volumes_is_one_session() {
    let array = visited().await;
    let mut document = array.control.config.export(&()).await.expect("a document");
    document.present.clear();
    let told = plan(&array, &document, true).await;
    assert_eq!(told.steps.iter().map(|step| step.sessions).collect::<Vec<_>>(), [1, 1]);
    assert!(said(&told.steps).iter().all(|step| step.ends_with(" (1 session: loses access)")), "{:?}", told.steps);
    assert_eq!(told.sessions, 1);
    document.host.clear();
    assert_eq!(plan(&array, &document, true).await.sessions, 2, "and so is one that ends besides");
}

#[tokio::test]
async fn plan_says_who_leaves_a_group_and_who_is_asked_to_move() {
    let array = visited().await;
    let mut document = array.control.config.export(&()).await.expect("a document");
    document.group.insert(name("all"), crate::config::GroupEntry { hosts: vec![name("web"), name("db")] });
    document.present.iter_mut().for_each(|entry| entry.host = name("all"));
    array
        .control
        .config
        .apply(ApplyConfig { prune: true, allow_disruption: true, ..apply(&document) }, &())
        .await
        .expect("is applied");
    document.group.get_mut(&name("all")).expect("is there").hosts = vec![name("web")];
    let told = plan(&array, &document, false).await;
    assert_eq!(said(&told.steps), ["~ group all: db, web → web (1 session: loses access)"]);
    let portal = document.portal.values_mut().next().expect("a portal");
    portal.settings.insert("weight".to_owned(), "5".to_owned());
    let told = plan(&array, &document, false).await;
    let moved = "~ portal 127.0.0.1:3260: weight 1 → 5 (2 sessions: may be asked to move: about half a second)";
    assert_eq!(said(&told.steps)[1..], [moved]);
    assert_eq!(told.sessions, 2);
}

/// Regression: both volumes were unmapped and the change succeeded, because the session had stayed.
#[tokio::test(start_paused = true)]
async fn configuration_goes_back_when_an_initiator_loses_a_volume() {
    let array = visited().await;
    let before = array.control.config.export(&()).await.expect("a document");
    let mut document = before.clone();
    document.present.truncate(1);
    let request = ApplyConfig { prune: true, allow_disruption: true, initiators: vec![iqn("web")], ..apply(&document) };
    let refusal = array.control.config.apply(request, &()).await.expect_err("it loses a volume");
    assert_eq!(refusal.code, code::INITIATOR_AWAY);
    assert_eq!(refusal.message, format!("initiator {} would lose volume b", iqn("web")));
    assert_eq!(array.control.config.export(&()).await.expect("a document"), before);
    assert_eq!(array.access().presentations.len(), 2);
    let raised = array.control.reconciler.events(EventFilter::default()).await;
    let told: Vec<&model::Event> = raised.iter().filter(|event| event.code == event::CONFIG_TAKEN_BACK).collect();
    assert!(matches!(told[..], [one] if one.message.contains("would lose volume b")), "{told:?}");

    document.present = before.present.clone();
    document.present.push(crate::config::PresentEntry { host: name("db"), lun: None, ..before.present[0].clone() });
    let request = ApplyConfig { initiators: vec![iqn("web")], ..apply(&document) };
    array.control.config.apply(request, &()).await.expect("web sees what it saw");
}
