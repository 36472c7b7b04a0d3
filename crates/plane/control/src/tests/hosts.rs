//! Tests of changes of hosts and host groups, and of the access diagnosis.

use super::{Array, new_host, new_presentation, new_volume};
use crate::request::{
    GroupChange, HostChange, NewBackend, NewChap, NewHostGroup, NewPresentation, NewVolume, Removal, SecretText,
    SetAuth, SetDiscovery, Spread, Unpresent,
};
use model::{ChapAlgorithm, Code, Demand, Host, Initiators, Iqn, Name, Network, Refusal, Size, code};

pub(super) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub(super) fn names(all: &[&str]) -> Vec<Name> {
    all.iter().map(|text| name(text)).collect()
}

pub(super) fn iqn(host: &str) -> Iqn {
    format!("iqn.2001-04.com.example:{host}").parse().expect("an iSCSI name")
}

/// Creates three hosts, and volumes without a pool.
pub(super) async fn furnished(volumes: &[&str]) -> Array {
    let array = Array::new().await;
    for host in ["web", "db", "mail"] {
        array.control.hosts.add(new_host(host, &[iqn(host).as_str()])).await.expect("a host");
    }
    for volume in volumes {
        let volume = NewVolume { backend: Some(NewBackend::Ram {}), ..new_volume(volume, Some(Size::mib(1))) };
        array.control.volumes.create(volume).await.expect("a volume");
    }
    array
}

/// Returns the presentations in the data plane: host, volume and LUN.
fn seen(array: &Array) -> Vec<(String, String, u16)> {
    let seen = array.access().presentations.into_iter();
    let mut all: Vec<_> = seen.map(|one| (one.host.to_string(), one.volume.to_string(), one.lun)).collect();
    all.sort();
    all
}

fn row(host: &str, volume: &str, lun: u16) -> (String, String, u16) {
    (host.to_owned(), volume.to_owned(), lun)
}

pub(super) fn code_of<T>(result: Result<T, Refusal>) -> Option<Code> {
    result.err().map(|refusal| refusal.code)
}

#[tokio::test]
async fn group_of_hosts_sees_what_is_presented_to_it_and_who_joins_sees_it_too() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    let group = NewHostGroup { name: name("cluster"), hosts: names(&["web", "db"]) };
    control.host_groups.add(group).await.expect("a group");
    assert_eq!(control.presentations.present(new_presentation("a", "web")).await.expect("seen").lun, 0);
    assert_eq!(
        control.presentations.present(new_presentation("b", "cluster")).await.expect("seen").lun,
        1,
        "web has its own LUN 0"
    );
    assert_eq!(seen(&array), [row("db", "b", 1), row("web", "a", 0), row("web", "b", 1)]);
    let change = |join: &[&str], leave: &[&str]| GroupChange { join: names(join), leave: names(leave), force: false };
    let report = control.host_groups.change(&name("cluster"), change(&["mail"], &["db"])).await.expect("changed");
    assert_eq!((report.hosts, report.presentations), (names(&["mail", "web"]), 1));
    assert_eq!(seen(&array), [row("mail", "b", 1), row("web", "a", 0), row("web", "b", 1)]);
    let array = array.restarted().await;
    assert_eq!(array.control.host_groups.list()[0].hosts, names(&["mail", "web"]));
    assert_eq!(
        array.control.hosts.list().iter().find(|host| host.name == name("mail")).map(|host| host.presentations),
        Some(1)
    );
}

#[tokio::test]
async fn group_does_not_show_a_host_two_volumes_under_one_number_or_one_volume_twice() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    control.presentations.present(new_presentation("a", "mail")).await.expect("seen");
    let group = NewHostGroup { name: name("cluster"), hosts: names(&["web"]) };
    control.host_groups.add(group.clone()).await.expect("a group");
    assert_eq!(control.presentations.present(new_presentation("b", "cluster")).await.expect("seen").lun, 0);
    let join = |host| GroupChange { join: names(&[host]), leave: Vec::new(), force: false };
    let changed = control.host_groups.change(&name("cluster"), join("mail")).await;
    assert_eq!(code_of(changed), Some(code::LUN_TAKEN), "mail has LUN 0 already");
    assert_eq!(
        code_of(control.presentations.present(new_presentation("b", "web")).await),
        Some(code::PRESENTED_ALREADY)
    );
    let third = NewPresentation { lun: Some(0), ..new_presentation("a", "web") };
    assert_eq!(code_of(control.presentations.present(third).await), Some(code::LUN_TAKEN));
    control.presentations.present(new_presentation("b", "mail")).await.expect("seen as LUN 1");
    assert_eq!(code_of(control.host_groups.change(&name("cluster"), join("mail")).await), Some(code::LUN_TAKEN));
    assert_eq!(code_of(control.host_groups.add(group).await), Some(code::NAME_TAKEN));
    assert_eq!(
        code_of(control.hosts.add(new_host("cluster", &["iqn.2001-04.com.example:x"])).await),
        Some(code::NAME_TAKEN)
    );
    assert_eq!(
        code_of(control.hosts.remove(&name("web"), Removal::default()).await),
        Some(code::HOST_IN_USE),
        "it is one of a group"
    );
    assert_eq!(
        code_of(control.host_groups.remove(&name("cluster"), Removal::default()).await),
        Some(code::HOST_IN_USE)
    );
    assert_eq!(code_of(control.host_groups.change(&name("none"), join("db")).await), Some(code::HOST_UNKNOWN));
    assert_eq!(code_of(control.host_groups.change(&name("cluster"), join("none")).await), Some(code::HOST_UNKNOWN));
}

#[tokio::test]
async fn host_changes_its_initiators_networks_and_proof_or_nothing_at_all() {
    let array = furnished(&[]).await;
    let control = &array.control;
    let secret = |text: &str| Some(NewChap { secret: Some(SecretText::Text(text.to_owned())), ..NewChap::default() });
    let change = HostChange {
        add_initiators: vec![iqn("web2")],
        networks: Some(vec!["10.0.0.0/8".parse().expect("a network")]),
        chap: secret("secret of the host"),
        ..HostChange::default()
    };
    let report = control.hosts.change(&name("web"), change).await.expect("changed");
    assert_eq!(
        (report.initiators.len(), report.networks.len(), report.authentication.chap_user.as_deref()),
        (2, 1, Some("web"))
    );
    let told = array.access().hosts.into_iter().find(|host| host.name == name("web")).expect("known");
    assert_eq!(told.initiators, Initiators::Listed(vec![iqn("web"), iqn("web2")]));
    let before = array.access();
    let refused = [
        (HostChange { add_initiators: vec![iqn("db")], ..HostChange::default() }, code::IQN_TAKEN),
        (HostChange { remove_initiators: vec![iqn("web"), iqn("web2")], ..HostChange::default() }, code::HOST_EMPTY),
        (HostChange { remove_initiators: vec![iqn("none")], ..HostChange::default() }, code::HOST_UNKNOWN),
        (HostChange { mutual_chap: secret("secret of the host"), ..HostChange::default() }, code::SECRETS_EQUAL),
        (
            HostChange { no_chap: true, mutual_chap: secret("another secret!"), ..HostChange::default() },
            code::CHAP_INVALID,
        ),
    ];
    for (change, expected) in refused {
        assert_eq!(code_of(control.hosts.change(&name("web"), change).await), Some(expected));
    }
    assert_eq!(array.access(), before, "what was refused has changed nothing");
    let change = HostChange {
        remove_initiators: vec![iqn("web")],
        no_chap: true,
        networks: Some(Vec::new()),
        ..HostChange::default()
    };
    let report = control.hosts.change(&name("web"), change).await.expect("changed");
    assert_eq!(
        (report.initiators, report.networks.len(), report.authentication.chap_user),
        (vec![iqn("web2")], 0, None)
    );
}

#[tokio::test]
async fn network_is_let_in_beside_the_others_and_taken_away_without_letting_in_everybody() {
    let array = furnished(&[]).await;
    let control = &array.control;
    let nets = |all: &[&str]| all.iter().map(|text| text.parse().expect("a network")).collect::<Vec<Network>>();
    let change = |add: &[&str], remove: &[&str]| HostChange {
        add_networks: nets(add),
        remove_networks: nets(remove),
        ..HostChange::default()
    };
    let anywhere = control.hosts.change(&name("db"), change(&["127.0.0.1"], &[])).await;
    assert_eq!(code_of(anywhere), Some(code::NETWORKS_INVALID), "it comes from anywhere, and must not be shut out");
    let only = HostChange { networks: Some(nets(&["10.1.0.0/16"])), ..HostChange::default() };
    control.hosts.change(&name("db"), only).await.expect("changed");
    for _ in 0..2 {
        let report = control.hosts.change(&name("db"), change(&["127.0.0.1"], &[])).await.expect("changed");
        assert_eq!(report.networks, nets(&["10.1.0.0/16", "127.0.0.1"]));
    }
    let gone = control.hosts.change(&name("db"), change(&[], &["10.2.0.0/16"])).await;
    assert_eq!(code_of(gone), Some(code::NETWORKS_INVALID));
    let report = control.hosts.change(&name("db"), change(&[], &["10.1.0.0/16"])).await.expect("changed");
    assert_eq!(report.networks, nets(&["127.0.0.1"]));
    let last = control.hosts.change(&name("db"), change(&[], &["127.0.0.1"])).await;
    assert_eq!(code_of(last), Some(code::NETWORKS_INVALID), "the last one does not open it to everywhere");
}

#[tokio::test]
async fn discovery_has_a_proof_of_its_own_until_it_is_that_of_the_host_again() {
    let array = furnished(&[]).await;
    let control = &array.control;
    let chap = |text: &str| Some(NewChap { secret: Some(SecretText::Text(text.to_owned())), ..NewChap::default() });
    let own = |chap, mutual_chap| SetAuth {
        min_algorithm: None,
        discovery: Some(SetDiscovery::Own { chap, mutual_chap, no_mutual_chap: false }),
    };
    let report = control.auth.set(own(chap("what discovery proves"), chap("what we prove"))).await.expect("set");
    let told = report.discovery.expect("it has its own");
    assert_eq!(told.to_string(), "authenticates as discovery, mutual CHAP as node1 optional");
    assert_eq!(
        array.access().auth.discovery.expect("told").own.expect("one").secret.expose(),
        b"what discovery proves"
    );
    let weakest = SetAuth { min_algorithm: Some(ChapAlgorithm::Sha256), discovery: None };
    control.auth.set(weakest).await.expect("set");
    assert_eq!(array.access().auth.weakest, ChapAlgorithm::Sha256);

    let before = array.access();
    let stolen = HostChange { chap: chap("what we prove"), ..HostChange::default() };
    assert_eq!(code_of(control.hosts.change(&name("web"), stolen).await), Some(code::SECRETS_EQUAL));
    assert_eq!(
        code_of(control.auth.set(own(chap("what we prove"), None)).await),
        Some(code::SECRETS_EQUAL),
        "it would be proven in both directions"
    );
    assert_eq!(array.access(), before);

    let array = array.restarted().await;
    assert_eq!(array.access().auth, before.auth);
    let control = &array.control;
    control.auth.set(SetAuth { min_algorithm: None, discovery: Some(SetDiscovery::Host {}) }).await.expect("set");
    assert_eq!(array.access().auth.discovery, None);
    assert_eq!(code_of(control.auth.set(own(None, None)).await), Some(code::CHAP_INVALID));
}

#[tokio::test]
async fn demand_changes_without_the_secret_being_told_again() {
    let array = furnished(&[]).await;
    let control = &array.control;
    let demand = |demand| Some(NewChap { demand: Some(demand), ..NewChap::default() });
    let change = HostChange { chap: demand(Demand::Offered), ..HostChange::default() };
    assert_eq!(code_of(control.hosts.change(&name("web"), change.clone()).await), Some(code::CHAP_INVALID));
    let secret = NewChap { secret: Some(SecretText::Text("secret of the host".to_owned())), ..NewChap::default() };
    let given = HostChange { chap: Some(secret), ..HostChange::default() };
    control.hosts.change(&name("web"), given).await.expect("it has a secret");
    let report = control.hosts.change(&name("web"), change).await.expect("changed");
    assert_eq!(report.authentication.to_string(), "may authenticate as web");
    let told = array.access().hosts.into_iter().find(|host| host.name == name("web")).expect("known");
    let own = told.chap.own.expect("it still has one");
    assert_eq!((own.secret.expose(), own.demand), (&b"secret of the host"[..], Demand::Offered));
}

#[tokio::test]
async fn volume_that_everyone_sees_is_seen_by_hosts_and_strangers_and_warned_of() {
    let array = furnished(&["a", "b"]).await;
    let control = &array.control;
    assert_eq!(
        code_of(control.hosts.add(new_host("everyone", &["iqn.2001-04.com.example:x"])).await),
        Some(code::NAME_TAKEN)
    );
    control.presentations.present(new_presentation("b", "web")).await.expect("seen");
    let shown = control.presentations.present(new_presentation("a", "everyone")).await.expect("seen");
    assert_eq!(shown.lun, 1, "free for every host");
    let access = array.access();
    let lets_in = |host: &Host| host.admits(&iqn("stranger"), "10.9.9.9".parse().expect("an address"));
    let stranger = access.hosts.iter().find(|&host| lets_in(host)).expect("let in");
    let seen_by = |host: &Name| access.presentations.iter().filter(|shown| shown.host == *host).count();
    assert_eq!((stranger.name.as_str(), seen_by(&stranger.name)), ("everyone", 1));
    assert_eq!((seen_by(&name("web")), seen_by(&name("db"))), (2, 1));
    let status = control.status.report().await.expect("told");
    let warned: Vec<_> = status.problems.iter().map(|problem| (&problem.subject[..], &problem.state[..])).collect();
    assert_eq!(warned, [("volume a", "open to every initiator")]);
    let told = control.presentations.explain(&name("db"), &"a".parse().expect("a name")).await.expect("known");
    assert!(told.has_access && told.checks.iter().any(|point| point.message.contains("every initiator")), "{told:?}");
    let gone = Unpresent { volume: "a".parse().expect("a name"), host: name("everyone"), target: None, force: false };
    control.presentations.unpresent(&gone).await.expect("gone");
    assert!(!array.access().hosts.iter().any(lets_in));
}

#[tokio::test]
async fn volumes_are_spread_over_targets_all_or_none() {
    let array = furnished(&["a", "b", "c"]).await;
    let control = &array.control;
    let spread = |volumes: &[&str], host: &str, targets| Spread {
        volumes: volumes.iter().map(|text| text.parse().expect("a name")).collect(),
        host: name(host),
        targets,
        read_only: false,
        groups: Vec::new(),
    };
    let seen = control.presentations.spread(spread(&["a", "b", "c"], "web", 2)).await.expect("seen");
    let places: Vec<_> = seen.iter().map(|one| (one.volume.to_string(), one.target.to_string(), one.lun)).collect();
    let place = |volume: &str, target: &str, lun| (volume.to_owned(), target.to_owned(), lun);
    assert_eq!(places, [place("a", "default", 0), place("b", "default-2", 0), place("c", "default", 1)]);
    let paths = control.presentations.spread(spread(&["a"], "db", 3)).await.expect("seen");
    let iqns: Vec<&str> = paths.iter().map(|one| one.iqn.as_str()).collect();
    assert_eq!(
        iqns,
        [
            "iqn.2026-11.io.blockyard:node1",
            "iqn.2026-11.io.blockyard:node1.default-2",
            "iqn.2026-11.io.blockyard:node1.default-3"
        ]
    );
    let before = control.core.state();
    let refused = [
        (spread(&["b", "a"], "db", 4), code::PRESENTED_ALREADY),
        (spread(&["b"], "db", 0), code::NUMBER_INVALID),
        (spread(&["none"], "db", 2), code::VOLUME_UNKNOWN),
        (spread(&["b"], "nobody", 9), code::HOST_UNKNOWN),
    ];
    for (request, expected) in refused {
        assert_eq!(code_of(control.presentations.spread(request).await), Some(expected));
    }
    assert_eq!(control.core.state(), before, "no target is left behind, either");
}
