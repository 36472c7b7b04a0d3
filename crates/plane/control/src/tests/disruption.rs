//! Tests that changes by which logged-in hosts lose access are refused with the list of sessions, unless
//! forced.

use super::hosts::{iqn, name, names};
use super::{Array, new_host};
use crate::config::tests::told::visited;
use crate::config::{ApplyConfig, RestoreConfig};
use crate::request::{
    GroupChange, HostChange, NewHost, NewHostGroup, NewTarget, PortalGroupSettings, PortalSettings, Removal, Unpresent,
};
use model::{PortalGroupTag, PortalState, Refusal, code};

/// Asserts that the refusal lists the session of host web with this loss.
fn lists<T: std::fmt::Debug>(result: Result<T, Refusal>, loses: &str) -> Refusal {
    let refusal = result.expect_err("a session would lose something");
    assert_eq!(refusal.sessions.len(), 1, "{refusal:?}");
    let session = &refusal.sessions[0];
    assert_eq!((session.session, session.initiator.as_str()), (1, iqn("web").as_str()));
    assert_eq!(session.address.to_string(), "10.0.0.5:40000");
    assert_eq!(session.effect, loses);
    assert!(refusal.message.contains(&session.to_string()), "{refusal}");
    refusal
}

fn presented(array: &Array) -> usize {
    array.access().presentations.len()
}

fn of_a(force: bool) -> Unpresent {
    Unpresent { volume: "a".parse().expect("a name"), host: name("web"), target: None, force }
}

#[tokio::test]
async fn unpresent_refuses_with_the_sessions_that_see_the_volume() {
    let array = visited().await;
    let refusal = lists(array.control.presentations.unpresent(&of_a(false)).await, "loses volume a (LUN 0)");
    assert_eq!(refusal.code, code::SESSIONS_DISRUPTED);
    assert!(refusal.hint.ends_with("repeat with --force"), "{refusal}");
    assert_eq!(presented(&array), 2);
    array.control.presentations.unpresent(&of_a(true)).await.expect("is forced");
    assert_eq!(presented(&array), 1);
}

#[tokio::test]
async fn host_refuses_to_lose_what_its_sessions_came_in_with() {
    let array = visited().await;
    let control = &array.control;
    let ends = "ends, and loses volumes a (LUN 0), b (LUN 1)";
    let refused = [
        HostChange { networks: Some(vec!["10.99.0.0/16".parse().expect("a network")]), ..HostChange::default() },
        HostChange { add_initiators: vec![iqn("x")], remove_initiators: vec![iqn("web")], ..HostChange::default() },
    ];
    for change in refused {
        lists(control.hosts.change(&name("web"), change.clone()).await, ends);
        assert_eq!(control.hosts.report(&name("web")).expect("a host").initiators, [iqn("web")]);
    }
    let kept = HostChange { networks: Some(vec!["10.0.0.0/8".parse().expect("a network")]), ..HostChange::default() };
    control.hosts.change(&name("web"), kept).await.expect("the session stays");
    lists(control.hosts.remove(&name("web"), Removal::default()).await, ends);
    control.hosts.remove(&name("db"), Removal::default()).await.expect("its session sees nothing");
    control.hosts.remove(&name("web"), Removal { force: true }).await.expect("is forced");
    assert_eq!(presented(&array), 0);
}

#[tokio::test]
async fn group_refuses_to_lose_hosts_that_see_something_through_it() {
    let array = visited().await;
    let control = &array.control;
    let group = NewHostGroup { name: name("all"), hosts: names(&["web"]) };
    control.host_groups.add(group).await.expect("a group");
    control.presentations.unpresent(&of_a(true)).await.expect("is forced");
    control.presentations.present(super::new_presentation("a", "all")).await.expect("is presented");
    let leave = |force| GroupChange { leave: names(&["web"]), force, ..GroupChange::default() };
    lists(control.host_groups.change(&name("all"), leave(false)).await, "loses volume a (LUN 0)");
    lists(control.host_groups.remove(&name("all"), Removal::default()).await, "loses volume a (LUN 0)");
    control.host_groups.change(&name("all"), leave(true)).await.expect("is forced");
}

#[tokio::test]
async fn volume_and_target_refuse_to_be_removed_under_a_session() {
    let array = visited().await;
    let control = &array.control;
    let volume = "a".parse().expect("a name");
    let refusal = lists(control.volumes.delete(&volume, Removal::default()).await, "loses volume a (LUN 0)");
    assert_eq!(refusal.code, code::VOLUME_IN_USE);
    control.targets.add(NewTarget { name: name("second"), iqn: None }).await.expect("a target");
    let ends = "ends, and loses volumes a (LUN 0), b (LUN 1)";
    let refusal = lists(control.targets.remove(&name("default"), Removal::default()).await, ends);
    assert_eq!(refusal.code, code::TARGET_IN_USE);
    control.volumes.delete(&volume, Removal { force: true }).await.expect("is forced");
    assert_eq!(presented(&array), 1);
}

#[tokio::test]
async fn initiator_that_came_in_as_anybody_is_not_named_without_a_word() {
    let array = visited().await;
    let control = &array.control;
    control.hosts.add(NewHost { any: true, ..new_host("guests", &[]) }).await.expect("open access");
    control.hosts.remove(&name("db"), Removal::default()).await.expect("its session sees nothing");
    control.presentations.present(super::new_presentation("a", "guests")).await.expect("is presented");
    let db = |force| NewHost { force, ..new_host("db", &[iqn("db").as_str()]) };
    let refusal = control.hosts.add(db(false)).await.expect_err("its session would see nothing");
    assert_eq!((refusal.code, refusal.sessions.len()), (code::SESSIONS_DISRUPTED, 1));
    control.hosts.add(db(true)).await.expect("is forced");
}

#[tokio::test]
async fn portal_group_refuses_to_stop_serving_under_a_session() {
    let array = visited().await;
    let control = &array.control;
    let second = crate::request::NewPortal {
        address: model::PortalAddress("127.0.0.1:3261".parse().expect("an address")),
        settings: [("group".to_owned(), "2".to_owned())].into(),
    };
    control.portals.add(second).await.expect("a portal");
    let standby = |force| PortalGroupSettings { settings: [("access".to_owned(), "standby".to_owned())].into(), force };
    let set = control.portal_groups.set(PortalGroupTag(1), standby(false)).await;
    lists(set, "can no longer read or write: portal group 1 goes offline");
    control.portal_groups.set(PortalGroupTag(2), standby(false)).await.expect("nobody came through it");
}

#[tokio::test]
async fn portal_refuses_another_group_that_its_sessions_see_less_in() {
    let array = visited().await;
    let control = &array.control;
    let portal = control.access.portals()[0].address;
    let second = crate::request::NewPortal {
        address: model::PortalAddress("127.0.0.1:3261".parse().expect("an address")),
        settings: [("group".to_owned(), "2".to_owned())].into(),
    };
    control.portals.add(second).await.expect("a portal");
    let group = |tag: &str, force| PortalSettings { settings: [("group".to_owned(), tag.to_owned())].into(), force };
    let standby = [("access".to_owned(), "standby".to_owned())].into();
    control
        .portal_groups
        .set(PortalGroupTag(2), PortalGroupSettings { settings: standby, force: false })
        .await
        .expect("nobody came through it");
    let address = model::PortalAddress(portal);
    let moved = control.portals.set(address, group("2", false)).await;
    lists(moved, "can no longer read or write: portal group 2 is offline");
    control.portals.set(address, group("3", false)).await.expect("it sees the same there");
    control.portals.set(address, group("2", true)).await.expect("is forced");
}

#[tokio::test]
async fn document_and_restored_configuration_are_refused_until_disruption_is_allowed() {
    let array = visited().await;
    let control = &array.control;
    let then = control.config.restore_points().await.expect("configurations")[0].version;
    let mut document = control.config.export(&()).await.expect("a document");
    document.present.truncate(1);
    let request = ApplyConfig { document, prune: true, ..ApplyConfig::default() };
    let plan = control.config.plan(&request, &()).await.expect("a plan");
    assert_eq!(plan.losses.len(), 1);
    let refusal = lists(control.config.apply(request.clone(), &()).await, "loses volume b (LUN 1)");
    assert!(refusal.hint.ends_with("repeat with --allow-disruption"), "{refusal}");
    assert_eq!(presented(&array), 2);
    control.config.apply(ApplyConfig { allow_disruption: true, ..request }, &()).await.expect("is allowed");
    control.config.restore(then, RestoreConfig::default()).await.expect("only gives");
    let past = control.config.restore_points().await.expect("configurations");
    let without = past.iter().find(|past| past.steps.len() == 1).expect("the one between").version;
    lists(control.config.restore(without, RestoreConfig::default()).await, "loses volume b (LUN 1)");
    let allowed = RestoreConfig { allow_disruption: true, ..RestoreConfig::default() };
    control.config.restore(without, allowed).await.expect("is allowed");
    assert_eq!(presented(&array), 1);
}

/// Regression: the portal was closed first, and stayed closed although it was still configured.
#[tokio::test]
async fn portal_whose_removal_cannot_be_stored_stays_open() {
    let array = Array::new().await;
    let control = &array.control;
    let address = model::PortalAddress("127.0.0.1:3261".parse().expect("an address"));
    control.portals.add(crate::request::NewPortal { address, settings: [].into() }).await.expect("a portal");
    let (state, away) = (array.dir.path().join("state"), array.dir.path().join("away"));
    std::fs::rename(&state, &away).expect("moves");
    let refusal = control.portals.remove(address, Removal::default()).await.expect_err("it cannot be stored");
    assert_eq!(refusal.code, code::STATE_REPLACED);
    std::fs::rename(&away, &state).expect("moves back");
    assert_eq!(control.portals.report(address).await.expect("it is there").state, PortalState::Open);
    control.portals.remove(address, Removal::default()).await.expect("removed");
    assert_eq!(control.portals.report(address).await.expect_err("it is gone").code, code::PORTAL_UNKNOWN);
}
