//! Tests of the access diagnosis.

use super::hosts::{code_of, furnished, iqn, name, names};
use super::{Array, new_host, new_presentation, new_volume};
use crate::Explanation;
use crate::request::{NewBackend, NewHostGroup, NewPortal, NewPresentation, NewTarget, NewVolume, PortalGroupSettings};
use model::{
    PortalGroupTag, RefusedLogin, RefusedWhy, RegistrationReport, ReservationKind, ReservationReport, Size, Timestamp,
    code,
};
use testbed::Testbed;

#[tokio::test]
async fn explanation_names_every_reason_for_and_against() {
    let array = furnished(&["a"]).await;
    let control = &array.control;
    let volume = "a".parse().expect("a name");
    let told = control.presentations.explain(&name("web"), &volume).await.expect("both are known");
    let bad: Vec<&str> = told.checks.iter().filter(|point| !point.passed).map(|point| point.message.as_str()).collect();
    assert_eq!((told.has_access, bad), (false, vec!["volume a is not presented to host web, nor to a group of it"]));
    control
        .host_groups
        .add(NewHostGroup { name: name("cluster"), hosts: names(&["web", "db"]) })
        .await
        .expect("a group");
    control.presentations.present(new_presentation("a", "cluster")).await.expect("seen");
    let told = control.presentations.explain(&name("web"), &volume).await.expect("both are known");
    let sentences: Vec<&str> = told.checks.iter().map(|point| point.message.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "volume a is online",
            "it is LUN 0 of iqn.2026-11.io.blockyard:node1, read-write, through group cluster",
            "target default is available at 127.0.0.1:3260",
            "db can write to it, too",
            "host web is iqn.2001-04.com.example:web, from anywhere",
            "host web needs no authentication",
            "host web is not logged in",
        ]
    );
    assert!(told.has_access);
    control
        .presentations
        .present(NewPresentation { groups: vec![7], ..new_presentation("a", "mail") })
        .await
        .expect("seen");
    let told = control.presentations.explain(&name("mail"), &volume).await.expect("both are known");
    assert!(!told.has_access, "{told:?}");
    let closed = told.checks.iter().find(|point| !point.passed).expect("it says why");
    assert_eq!(closed.message, "no portal of group 7 that accepts sessions provides LUN 0 of target default");
    assert_eq!(closed.remedy.as_deref(), Some("blockyard portal add ADDRESS group=7"));
    assert_eq!(code_of(control.presentations.explain(&name("none"), &volume).await), Some(code::HOST_UNKNOWN));
}

#[tokio::test]
async fn volume_with_one_open_way_is_seen_whatever_the_others_are() {
    let array = furnished(&["a"]).await;
    let control = &array.control;
    control.targets.add(NewTarget { name: name("second"), iqn: None }).await.expect("a target");
    control
        .presentations
        .present(NewPresentation { lun: Some(7), ..new_presentation("a", "web") })
        .await
        .expect("seen");
    let second = Some(name("second"));
    let closed = NewPresentation { target: second, groups: vec![2], ..new_presentation("a", "web") };
    control.presentations.present(closed).await.expect("presented where nobody comes");
    let told =
        control.presentations.explain(&name("web"), &"a".parse().expect("a name")).await.expect("both are known");
    assert!(told.has_access, "LUN 7 is seen: {told:?}");
    let note = told.checks.iter().find(|point| point.message.starts_with("no portal")).expect("it is told");
    assert_eq!(note.message, "no portal of group 2 that accepts sessions provides LUN 0 of target second");
    assert!(note.passed, "it keeps nobody away");
}

/// Returns the diagnosis of `host` for volume `a`, presented to it, over `testbed`.
async fn explained(testbed: Testbed, host: &str, access: &str) -> Explanation {
    let array = Array::on(tempfile::tempdir().expect("a folder"), testbed).await;
    let control = &array.control;
    control.hosts.add(new_host(host, &[iqn(host).as_str()])).await.expect("a host");
    let volume = NewVolume { backend: Some(NewBackend::Ram {}), ..new_volume("a", Some(Size::mib(1))) };
    control.volumes.create(volume).await.expect("a volume");
    control.presentations.present(new_presentation("a", host)).await.expect("seen");
    let second = NewPortal {
        address: "127.0.0.1:3261".parse().expect("an address"),
        settings: [("group".to_owned(), "2".to_owned())].into(),
    };
    control.portals.add(second).await.expect("a portal");
    let settings = PortalGroupSettings { settings: [("access".to_owned(), access.to_owned())].into(), force: false };
    control.portal_groups.set(PortalGroupTag(1), settings).await.expect("set");
    control.presentations.explain(&name(host), &"a".parse().expect("a name")).await.expect("both are known")
}

fn reserved(kind: ReservationKind) -> Testbed {
    let holder = RegistrationReport {
        initiator: iqn("db").to_string(),
        isid: "800000000000".to_owned(),
        target: "iqn.2026-11.io.blockyard:node1".to_owned(),
        key: "00000000000000ab".to_owned(),
        holder: true,
    };
    let report = ReservationReport {
        kind: Some(kind),
        holder: Some(holder.initiator.clone()),
        registered: 1,
        registrations: vec![holder],
        ..ReservationReport::default()
    };
    let mut testbed = Testbed::default();
    testbed.hosts.reservations.insert("a".parse().expect("a name"), report);
    testbed
}

#[tokio::test]
async fn explanation_names_what_stops_the_host_though_it_sees_the_volume() {
    let point = |told: &Explanation, words: &str| {
        told.checks.iter().find(|point| point.message.contains(words)).unwrap_or_else(|| panic!("{told:?}")).clone()
    };
    let told = explained(reserved(ReservationKind::ExclusiveAccess), "web", "standby").await;
    assert!(told.has_access);
    let standby = point(&told, "portal group 1 is standby");
    assert!(standby.passed, "group 2 serves it: {standby:?}");
    assert_eq!(standby.remedy.as_deref(), Some("blockyard portal group 1 access=optimized"));
    let held = point(&told, "it is reserved by others");
    assert!(!held.passed && held.message.contains("with key 00000000000000ab: only the holder may read"), "{held:?}");
    assert!(held.remedy.expect("one").ends_with("blockyard volume reservations a --clear --yes"));
    let told = explained(reserved(ReservationKind::ExclusiveAccess), "db", "optimized").await;
    assert!(told.checks.iter().all(|point| point.passed), "it is the holder: {told:?}");

    let login = RefusedLogin {
        initiator: Some(iqn("web").to_string()),
        address: "10.0.0.9".parse().expect("an address"),
        target: None,
        reason: RefusedWhy::WrongAddress { host: name("web") },
        status: "authorization failure (0202)".to_owned(),
        delay_ms: 0,
        count: 1,
        last: Timestamp::from_unix(0),
    };
    let mut testbed = Testbed::default();
    testbed.hosts.refused.push(login);
    let told = explained(testbed, "web", "optimized").await;
    let refused = point(&told, "login from 10.0.0.9 denied");
    assert!(refused.message.ends_with("address 10.0.0.9 not allowed for host web"), "{refused:?}");
    assert_eq!(refused.remedy.as_deref(), Some("blockyard host change web --add-address 10.0.0.9"));
}
