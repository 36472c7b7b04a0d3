//! Tests of the access rules that the data plane receives.

use super::{Array, new_host, new_presentation};
use crate::Store;
use crate::request::{
    NewBackend, NewChap, NewHost, NewPresentation, NewTarget, NewVolume, Removal, SecretText, Unpresent,
};
use model::{Initiators, Size};
use testbed::Testbed;

fn ram(name: &str) -> NewVolume {
    NewVolume { backend: Some(NewBackend::Ram {}), ..super::new_volume(name, Some(Size::mib(1))) }
}

#[tokio::test]
async fn presentations_take_the_lowest_free_number_of_their_host_and_target() {
    let array = Array::new().await;
    let control = &array.control;
    for name in ["a", "b", "c"] {
        control.volumes.create(ram(name)).await.expect("a volume");
    }
    control.hosts.add(new_host("web", &["iqn.2001-04.com.example:web"])).await.expect("a host");
    control.targets.add(NewTarget { name: "fast".parse().expect("a name"), iqn: None }).await.expect("a target");
    let lun = |request| async move { control.presentations.present(request).await.expect("is seen").lun };

    assert_eq!(lun(new_presentation("a", "web")).await, 0);
    assert_eq!(lun(NewPresentation { lun: Some(7), ..new_presentation("b", "web") }).await, 7);
    assert_eq!(lun(new_presentation("c", "web")).await, 1);
    let fast = Some("fast".parse().expect("a name"));
    assert_eq!(lun(NewPresentation { target: fast, ..new_presentation("a", "web") }).await, 0);
    let gone = Unpresent {
        volume: "a".parse().expect("a name"),
        host: "web".parse().expect("a name"),
        target: None,
        force: false,
    };
    control.presentations.unpresent(&gone).await.expect("no longer seen");
    assert_eq!(lun(new_presentation("a", "web")).await, 0);
    assert_eq!(array.access().presentations.len(), 3, "both presentations of a are gone, one came back");
}

#[tokio::test]
async fn access_snapshot_says_what_the_state_says() {
    let array = Array::new().await;
    let control = &array.control;
    assert_eq!(array.access().targets[0].iqn.as_str(), "iqn.2026-11.io.blockyard:node1");
    assert_eq!(array.access().portals.len(), 1);

    let chap = |user: Option<&str>, secret: &str| NewChap {
        user: user.map(str::to_owned),
        secret: Some(SecretText::Text(secret.to_owned())),
        demand: None,
    };
    let host = NewHost {
        networks: vec!["192.168.1.0/24".parse().expect("a network")],
        chap: Some(chap(None, "secret of the host")),
        mutual_chap: Some(chap(Some("us"), "secret of ours")),
        ..new_host("web", &["iqn.2001-04.com.example:web"])
    };
    let report = control.hosts.add(host).await.expect("a host");
    assert_eq!(report.authentication.chap_user.as_deref(), Some("web"), "the host's name is its CHAP name");
    assert!(!serde_json::to_string(&report).expect("json").contains("secret of"));
    control.hosts.add(NewHost { any: true, ..new_host("guests", &[]) }).await.expect("open access");

    let access = array.access();
    let web = access.hosts.iter().find(|host| host.name.as_str() == "web").expect("known");
    assert_eq!(web.chap.own.as_ref().map(|chap| chap.secret.expose()), Some(b"secret of the host".as_slice()));
    assert_eq!(web.chap.mutual.as_ref().map(|chap| chap.user.as_str()), Some("us"));
    assert_eq!(web.networks.len(), 1);
    assert!(access.hosts.iter().any(|host| host.initiators == Initiators::Any));

    control.hosts.remove(&"web".parse().expect("a name"), Removal::default()).await.expect("removed");
    assert!(array.access().hosts.iter().all(|host| host.name.as_str() != "web"));
}

#[tokio::test]
async fn target_names_of_machines_with_one_name_differ_and_a_name_that_is_there_stays() {
    let name_of = async |dir: &std::path::Path| {
        let control = super::boot(dir, Testbed::default()).await;
        let fast = NewTarget { name: "fast".parse().expect("a name"), iqn: None };
        // The default target exists from the first start on.
        let _ = control.targets.add(fast).await;
        control.targets.list().into_iter().map(|target| target.iqn.to_string()).collect::<Vec<_>>()
    };
    let identify = |dir: &std::path::Path| {
        let store = Store::open(&dir.join("state")).expect("a store");
        store.identity(&"node1".parse().expect("a name")).expect("an identity").id.to_string()
    };
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let dir = tempfile::tempdir().expect("a folder");
        let id = identify(dir.path());
        let unique = id.split('-').next().expect("a UUID");
        let names = name_of(dir.path()).await;
        let base = format!("iqn.2026-11.io.blockyard:node1.{unique}");
        assert_eq!(names, [base.clone(), format!("{base}.fast")]);
        assert_eq!(name_of(dir.path()).await, names, "a restart changes nothing");
        assert!(seen.insert(names), "two machines of one name");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let before = name_of(dir.path()).await;
    assert_eq!(before[0], "iqn.2026-11.io.blockyard:node1", "as it was made once");
    identify(dir.path());
    assert_eq!(name_of(dir.path()).await, before);
}
