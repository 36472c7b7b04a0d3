//! Tests that a LUN that a host knew as one volume is never assigned to another automatically.

use super::hosts::{code_of, furnished, iqn, name, names};
use super::{Array, new_host, new_presentation, new_volume};
use crate::Control;
use crate::config::{ApplyConfig, HostEntry, PresentEntry, RestoreConfig};
use crate::request::{
    GroupChange, HostChange, NewBackend, NewHost, NewHostGroup, NewPresentation, NewTarget, NewVolume, Removal,
    Unpresent,
};
use model::{Refusal, Size, code, event};

async fn present(control: &Control, volume: &str, host: &str) -> u16 {
    control.presentations.present(new_presentation(volume, host)).await.expect("is presented").lun
}

async fn unpresent(control: &Control, volume: &str, host: &str) {
    let seen = Unpresent { volume: volume.parse().expect("a name"), host: name(host), target: None, force: false };
    control.presentations.unpresent(&seen).await.expect("is presented no more");
}

fn at(volume: &str, host: &str, lun: u16, force: bool) -> NewPresentation {
    NewPresentation { lun: Some(lun), force, ..new_presentation(volume, host) }
}

async fn remake(control: &Control, volume: &str) {
    control.volumes.delete(&volume.parse().expect("a name"), Removal::default()).await.expect("is deleted");
    let made = NewVolume { backend: Some(NewBackend::Ram {}), ..new_volume(volume, Some(Size::mib(1))) };
    control.volumes.create(made).await.expect("is made again");
}

fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>, said: &str) {
    let refusal = result.expect_err("another volume had the number");
    assert_eq!(refusal.code, code::LUN_REMEMBERED);
    assert!(refusal.message.contains(said), "{refusal}");
}

#[tokio::test]
async fn number_of_a_volume_is_no_other_volumes_and_comes_back_to_it_also_after_a_restart() {
    let array = furnished(&["a", "b"]).await;
    assert_eq!(present(&array.control, "a", "web").await, 0);
    unpresent(&array.control, "a", "web").await;
    let array = array.restarted().await;
    let former = &array.control.hosts.report(&name("web")).expect("a host").former_luns;
    assert!(matches!(&former[..], [one] if one.lun == 0 && one.volume.to_string() == "a"), "{former:?}");
    assert_eq!(present(&array.control, "b", "web").await, 1, "LUN 0 was volume a");
    assert_eq!(present(&array.control, "a", "web").await, 0, "and is again");
    assert_eq!(
        array.control.core.state().luns,
        crate::state::lun_history::LunHistory::default(),
        "what is presented stands there"
    );
}

#[tokio::test]
async fn number_that_another_volume_had_is_refused_by_name_and_given_when_that_is_forced() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    present(control, "a", "web").await;
    unpresent(control, "a", "web").await;
    let refusal = control.presentations.present(at("b", "web", 0, false)).await.expect_err("it was volume a");
    assert_eq!(refusal.code, code::LUN_REMEMBERED);
    assert!(refusal.message.contains("host web used LUN 0 of iqn."), "{refusal}");
    assert!(refusal.message.contains("for volume a, and would find volume b there"), "{refusal}");
    assert!(refusal.hint.contains("--force") && refusal.hint.contains("blockyard host forget-luns web"), "{refusal}");
    assert_eq!(control.presentations.present(at("b", "web", 0, true)).await.expect("is forced").lun, 0);
    let raised = control.reconciler.events(crate::EventFilter::default()).await;
    let told: Vec<_> = raised.iter().filter(|event| event.code == event::LUN_REPLACED).collect();
    assert!(matches!(told[..], [one] if one.message.contains("is now volume b")), "{told:?}");
    assert_eq!(present(control, "a", "web").await, 1, "its number is another's now");
    unpresent(control, "b", "web").await;
    assert_eq!(present(control, "b", "web").await, 0, "and is b's from now on");
}

#[tokio::test]
async fn volume_made_again_under_its_old_name_is_another_one() {
    let array = furnished(&["a"]).await;
    let control = &array.control;
    present(control, "a", "web").await;
    unpresent(control, "a", "web").await;
    remake(control, "a").await;
    refused(control.presentations.present(at("a", "web", 0, false)).await, "for an earlier volume a");
    assert_eq!(present(control, "a", "web").await, 1);
}

#[tokio::test]
async fn numbers_are_forgotten_when_that_is_asked_for_and_with_the_host() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    present(control, "a", "web").await;
    unpresent(control, "a", "web").await;
    let forgotten = control.hosts.forget_luns(&name("web")).await.expect("a host");
    assert_eq!(forgotten.len(), 1);
    assert_eq!(present(control, "b", "web").await, 0);
    unpresent(control, "b", "web").await;
    control.hosts.remove(&name("web"), Removal::default()).await.expect("is removed");
    assert_eq!(control.core.state().luns, crate::state::lun_history::LunHistory::default());
    control.hosts.add(new_host("web", &[iqn("web").as_str()])).await.expect("is added again");
    assert_eq!(present(control, "a", "web").await, 0);
    assert_eq!(code_of(control.hosts.forget_luns(&name("nobody")).await), Some(code::HOST_UNKNOWN));
}

#[tokio::test]
async fn host_that_leaves_a_group_takes_its_numbers_along() {
    let array = furnished(&["a", "b", "c"]).await;
    let control = &array.control;
    let group = NewHostGroup { name: name("cluster"), hosts: names(&["web", "db"]) };
    control.host_groups.add(group).await.expect("a group");
    assert_eq!(present(control, "a", "cluster").await, 0);
    let leave = GroupChange { leave: names(&["web"]), ..GroupChange::default() };
    control.host_groups.change(&name("cluster"), leave).await.expect("has left");
    assert_eq!(present(control, "b", "web").await, 1, "LUN 0 was volume a, through the group");
    // A host that joins a group finds no other volume under a LUN that it knew.
    unpresent(control, "a", "cluster").await;
    control.host_groups.forget_luns(&name("cluster")).await.expect("a group");
    assert_eq!(present(control, "c", "cluster").await, 0, "and db, which is in it, has no memory of its own");
    let join = GroupChange { join: names(&["web"]), ..GroupChange::default() };
    refused(control.host_groups.change(&name("cluster"), join).await, "host web used LUN 0");
}

#[tokio::test]
async fn member_of_a_group_knows_what_the_group_had() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    let group = NewHostGroup { name: name("cluster"), hosts: names(&["web"]) };
    control.host_groups.add(group).await.expect("a group");
    present(control, "a", "cluster").await;
    unpresent(control, "a", "cluster").await;
    assert_eq!(present(control, "b", "web").await, 1, "the group had volume a there");
    assert_eq!(present(control, "a", "cluster").await, 0, "which has it back");
}

#[tokio::test]
async fn what_was_shown_to_everyone_is_known_to_every_host() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    assert_eq!(present(control, "a", "everyone").await, 0);
    unpresent(control, "a", "everyone").await;
    assert_eq!(present(control, "b", "web").await, 1);
    control.hosts.add(new_host("new", &[iqn("new").as_str()])).await.expect("a host");
    assert_eq!(present(control, "b", "new").await, 1, "it may have come in before it was named");
    control.hosts.forget_luns(&name("everyone")).await.expect("everyone");
    unpresent(control, "b", "new").await;
    assert_eq!(present(control, "a", "db").await, 0);
}

#[tokio::test]
async fn initiator_knows_its_numbers_as_another_host_too() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    let more = HostChange { add_initiators: vec![iqn("web2")], ..HostChange::default() };
    control.hosts.change(&name("web"), more).await.expect("is changed");
    present(control, "a", "web").await;
    let less = HostChange { remove_initiators: vec![iqn("web2")], ..HostChange::default() };
    control.hosts.change(&name("web"), less).await.expect("is changed");
    present(control, "b", "db").await;
    let taken = || HostChange { add_initiators: vec![iqn("web2")], ..HostChange::default() };
    refused(control.hosts.change(&name("db"), taken()).await, "host db used LUN 0");
    control.hosts.change(&name("mail"), taken()).await.expect("it sees nothing");
    assert_eq!(present(control, "b", "mail").await, 1);
}

#[tokio::test]
async fn initiator_that_came_in_as_anybody_knows_what_that_host_saw() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    control.hosts.add(NewHost { any: true, ..new_host("guests", &[]) }).await.expect("open access");
    present(control, "a", "guests").await;
    control.hosts.add(new_host("named", &[iqn("named").as_str()])).await.expect("a host");
    assert_eq!(present(control, "b", "named").await, 1);
}

#[tokio::test]
async fn target_made_again_is_the_same_target_for_hosts() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    let through = |volume: &str| NewPresentation { target: Some(name("fast")), ..new_presentation(volume, "web") };
    control.targets.add(NewTarget { name: name("fast"), iqn: None }).await.expect("a target");
    assert_eq!(control.presentations.present(through("a")).await.expect("is presented").lun, 0);
    control.targets.remove(&name("fast"), Removal { force: true }).await.expect("is removed with what it shows");
    control.targets.add(NewTarget { name: name("fast"), iqn: None }).await.expect("a target");
    assert_eq!(control.presentations.present(through("b")).await.expect("is presented").lun, 1);
}

#[tokio::test]
async fn document_gives_no_number_to_another_volume_unless_it_may() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    present(control, "a", "web").await;
    let mut document = control.config.export(&()).await.expect("a document");
    document.present[0].volume = "b".parse().expect("a name");
    let request = ApplyConfig { document: document.clone(), prune: true, ..ApplyConfig::default() };
    refused(control.config.plan(&request, &()).await, "for volume a, and would find volume b");
    refused(control.config.apply(request.clone(), &()).await, "for volume a");
    document.present[0].lun = None;
    let chosen = ApplyConfig { document, ..request.clone() };
    control.config.apply(chosen, &()).await.expect("takes another number");
    assert_eq!(control.presentations.list()[0].lun, 1);
    let forced = ApplyConfig { reuse_luns: true, ..request };
    control.config.apply(forced.clone(), &()).await.expect("is forced");
    assert_eq!(control.presentations.list()[0].lun, 0);
    assert!(control.config.apply(forced, &()).await.expect("is so already").steps.is_empty());
}

/// Regression: the document was refused, though it states no LUN.
#[tokio::test]
async fn document_chooses_a_number_that_no_initiator_of_a_new_host_knows() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    control.hosts.add(NewHost { any: true, ..new_host("guests", &[]) }).await.expect("open access");
    present(control, "a", "guests").await;
    let mut document = control.config.export(&()).await.expect("a document");
    let own = HostEntry { initiators: vec![iqn("own")], ..HostEntry::default() };
    document.host.insert(name("own"), own);
    let to_own = |volume: &str| {
        let volume = volume.parse().expect("a name");
        PresentEntry { volume, host: name("own"), lun: None, ..document.present[0].clone() }
    };
    document.present.extend([to_own("b"), to_own("a")]);
    let request = ApplyConfig { document, ..ApplyConfig::default() };
    control.config.apply(request.clone(), &()).await.expect("takes another number");
    let seen = control.presentations.list();
    let lun_of = |volume: &str| seen.iter().find(|one| one.host == name("own") && one.volume.to_string() == volume);
    assert_eq!(
        ["a", "b"].map(|volume| lun_of(volume).map(|one| one.lun)),
        [Some(0), Some(1)],
        "the old one, and a new one"
    );
    assert!(control.config.apply(request, &()).await.expect("is so already").steps.is_empty());
}

#[tokio::test]
async fn document_keeps_the_numbers_that_hosts_had() {
    let array = furnished(&["a", "b"]).await;
    present(&array.control, "a", "web").await;
    unpresent(&array.control, "a", "web").await;
    let document = array.control.config.export(&()).await.expect("a document");
    assert_eq!(document.former_lun.len(), 1);
    let apply = |document| ApplyConfig { document, ..ApplyConfig::default() };
    assert!(array.control.config.plan(&apply(document.clone()), &()).await.expect("a plan").steps.is_empty());
    let other = Array::new().await;
    let steps = other.control.config.apply(apply(document.clone()), &()).await.expect("is applied").steps;
    assert!(steps.iter().any(|step| step.to_string() == "+ memory of web: 1 LUN number"), "{steps:?}");
    assert_eq!(other.control.config.export(&()).await.expect("a document").former_lun, document.former_lun);
    assert_eq!(present(&other.control, "b", "web").await, 1);
}

#[tokio::test]
async fn restored_configuration_gives_no_number_to_another_volume_unless_it_may() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    present(control, "a", "web").await;
    let then = control.config.restore_points().await.expect("configurations")[0].version;
    unpresent(control, "a", "web").await;
    control.presentations.present(at("b", "web", 0, true)).await.expect("is forced");
    refused(control.config.restore(then, RestoreConfig::default()).await, "for volume b, and would find volume a");
    let reused = RestoreConfig { reuse_luns: true, ..RestoreConfig::default() };
    control.config.restore(then, reused).await.expect("is restored");
    assert_eq!(control.presentations.list()[0].volume.to_string(), "a");
}
