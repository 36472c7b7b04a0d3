//! One address for hosts, and many portals for their sessions: redirection, draining, and return.

use crate::array::{OPEN, portal};
use crate::host::{Host, Login};
use crate::node::{Node, furnished};
use control::request::{NewPortal, PortalGroupSettings, PortalSettings, Removal};
use iscsi::pdu::AsyncEvent;
use model::{PortalAddress, PortalGroupTag, PortalPolicy, PortalRole, code, event};
use shard::World;
use sim::Sim;
use std::net::SocketAddr;
use std::time::Duration;

/// Returns the address of the data portal with this number.
fn data(number: u16) -> SocketAddr {
    SocketAddr::new(portal().ip(), 4000 + number)
}

fn settings(pairs: &[(&str, &str)]) -> PortalSettings {
    let pair = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    PortalSettings { settings: pairs.iter().map(pair).collect(), force: false }
}

impl Node {
    /// Makes the first portal a front portal, and adds two data portals.
    async fn front(&self) {
        for number in [1, 2] {
            let PortalSettings { settings, .. } = settings(&[("role", "data")]);
            self.control.portals.add(NewPortal { address: PortalAddress(data(number)), settings }).await.unwrap();
        }
        self.set(portal(), &[("role", "front")]).await;
    }

    async fn set(&self, address: SocketAddr, pairs: &[(&str, &str)]) {
        self.control.portals.set(PortalAddress(address), settings(pairs)).await.unwrap();
    }

    /// Returns the number of sessions per portal, in the order of their addresses.
    async fn spread(&self) -> Vec<u32> {
        self.control.portals.list().await.unwrap().iter().map(|portal| portal.sessions).collect()
    }
}

/// Sessions of one host with one target go to different portals; the front portal keeps none.
#[test]
fn sessions_of_a_host_are_sent_to_different_data_portals() {
    Sim::new(1).run(async move |sim| {
        let (node, first) = furnished(&sim, 2).await;
        drop(first);
        node.front().await;
        let mut paths = Vec::new();
        for isid in [1, 2] {
            let (mut host, at) = Host::follow(&sim, &Login::of(OPEN, isid), portal()).await;
            host.take_attention().await;
            paths.push((host, at));
        }
        assert_eq!(paths.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [data(1), data(2)]);
        paths[0].0.write(3, 0x5a).await;
        assert_eq!(paths[1].0.read(3).await, [0x5a; 512]);
        let (mut asker, at) = Host::follow(&sim, &Login { target: None, ..Login::of(OPEN, 9) }, portal()).await;
        assert_eq!((at, asker.targets().await), (portal(), vec![format!("{},1", portal())]));
        let (mut own, at) = Host::follow(&sim, &Login::of(OPEN, 3), data(1)).await;
        own.take_attention().await;
        assert_eq!(at, data(1), "who chooses a data portal stays there");
    });
}

/// A portal is drained and resumed: hosts that follow the requests lose nothing.
#[test]
fn drained_portal_moves_its_sessions_and_gets_some_back() {
    Sim::new(2).run(async move |sim| {
        let (node, first) = furnished(&sim, 2).await;
        drop(first);
        node.front().await;
        let login = |isid| Login::of(OPEN, isid);
        let (mut one, _) = Host::follow(&sim, &login(1), portal()).await;
        let (mut two, _) = Host::follow(&sim, &login(2), portal()).await;
        one.take_attention().await;
        two.take_attention().await;
        one.write(7, 0x11).await;
        node.control.portals.drain(PortalAddress(data(1)), true).await.unwrap();
        assert_eq!(one.log_out_when_asked().await, 15);
        let (mut one, at) = Host::follow(&sim, &login(1), portal()).await;
        one.take_attention().await;
        assert_eq!((at, one.read(7).await), (data(2), vec![0x11; 512]));
        let (own, at) = Host::follow(&sim, &login(3), data(1)).await;
        assert_eq!(at, data(2), "also who comes to it directly is sent away");
        drop(own);
        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.spread().await, [0, 0, 2]);
        let refused = node.control.portals.drain(PortalAddress(data(2)), true).await.unwrap_err();
        assert_eq!(refused.code, code::PORTAL_LAST);
        node.control.portals.drain(PortalAddress(data(1)), false).await.unwrap();
        // The session that has existed longer moves.
        assert_eq!(two.log_out_when_asked().await, 15);
        let (mut back, at) = Host::follow(&sim, &login(2), portal()).await;
        back.take_attention().await;
        assert_eq!(at, data(1));
        for _ in 0..10 {
            sim.sleep(Duration::from_secs(3)).await;
            assert_eq!([one.read(7).await, back.read(7).await], [[0x11; 512]; 2], "nobody is asked again");
        }
        assert_eq!(node.spread().await, [0, 1, 1]);
    });
}

/// A session at level 2 without a connection receives no request, and does not prevent requests to others.
#[test]
fn session_without_a_connection_does_not_stand_in_the_way_of_others_that_move() {
    Sim::new(7).run(async move |sim| {
        let (node, first) = furnished(&sim, 1).await;
        drop(first);
        node.front().await;
        for isid in [1, 2] {
            let (lost, _) = Host::follow(&sim, &Login { recovery: 2, ..Login::of(OPEN, isid) }, data(1)).await;
            drop(lost);
        }
        let (mut lives, _) = Host::follow(&sim, &Login::of(OPEN, 3), data(1)).await;
        lives.take_attention().await;
        assert_eq!(node.spread().await, [0, 3, 0], "the lost ones are there for whoever takes their tasks over");
        let since = sim.now();
        node.control.portals.drain(PortalAddress(data(1)), true).await.unwrap();
        lives.log_out_when_asked().await;
        assert!(sim.now().since(since) < Duration::from_secs(1));
    });
}

/// A session that does not log out when asked is closed, and finds the right portal then.
#[test]
fn session_that_does_not_move_is_cut_off() {
    Sim::new(3).run(async move |sim| {
        let (node, first) = furnished(&sim, 1).await;
        drop(first);
        node.front().await;
        let (mut deaf, at) = Host::follow(&sim, &Login::of(OPEN, 1), portal()).await;
        deaf.take_attention().await;
        assert_eq!(at, data(1));
        node.control.portals.drain(PortalAddress(data(1)), true).await.unwrap();
        let since = sim.now();
        assert_eq!(deaf.until_closed().await.len(), 1, "it was asked once");
        assert!(sim.now().since(since) >= Duration::from_secs(15));
        assert_eq!(Host::follow(&sim, &Login::of(OPEN, 1), portal()).await.1, data(2));
    });
}

#[test]
fn portals_that_were_added_are_there_after_a_restart_and_go_when_they_are_removed() {
    Sim::new(4).run(async move |sim| {
        let (node, first) = furnished(&sim, 1).await;
        drop(first);
        node.front().await;
        node.set(data(2), &[("weight", "9")]).await;
        let node = node.restarted(1).await;
        let told: Vec<(SocketAddr, PortalPolicy)> = node
            .control
            .portals
            .list()
            .await
            .unwrap()
            .iter()
            .map(|portal| (portal.address, portal.policy.clone()))
            .collect();
        let policy = |role, weight| PortalPolicy { role, weight, ..PortalPolicy::default() };
        assert_eq!(
            told,
            [
                (portal(), policy(PortalRole::Front, 1)),
                (data(1), policy(PortalRole::Data, 1)),
                (data(2), policy(PortalRole::Data, 9)),
            ]
        );
        let (mut host, at) = Host::follow(&sim, &Login::of(OPEN, 1), portal()).await;
        host.take_attention().await;
        assert_eq!(at, data(2), "it has nine parts of ten");
        let remove = async |address, force| {
            node.control.portals.remove(PortalAddress(address), Removal { force }).await.map_err(|no| no.code)
        };
        assert_eq!(remove(portal(), true).await, Err(code::PORTAL_CONFIGURED));
        assert_eq!(remove(data(2), false).await, Err(code::PORTAL_IN_USE));
        assert_eq!(remove(data(2), true).await, Ok(()));
        assert_eq!(host.until_told_and_closed().await, AsyncEvent::SessionDropped { time2wait_s: 0, time2retain_s: 0 });
        assert_eq!(Host::follow(&sim, &Login::of(OPEN, 1), portal()).await.1, data(1));
        assert_eq!(remove(data(2), true).await, Err(code::PORTAL_UNKNOWN));
    });
}

/// A volume presented through one portal group is not available through others.
#[test]
fn volume_is_seen_only_through_the_portal_groups_that_it_is_presented_through() {
    Sim::new(5).run(async move |sim| {
        let (node, first) = furnished(&sim, 1).await;
        drop(first);
        node.front().await;
        node.set(data(2), &[("group", "2")]).await;
        node.hide("tank/vm1").await;
        node.show_in("tank/vm1", 0, vec![2]).await;
        let (mut inside, _) = Host::follow(&sim, &Login::of(OPEN, 1), data(2)).await;
        inside.take_attention().await;
        inside.write(0, 1).await;
        let (mut outside, at) = Host::follow(&sim, &Login::of(OPEN, 2), portal()).await;
        assert_eq!(at, data(1), "a session stays in the group of its front");
        assert_eq!(outside.try_read(0).await, Err((5, 0x25, 0)), "there is no such unit");
        let told = node.control.reconciler.events(control::EventFilter::default()).await;
        let hidden = told.iter().find(|event| event.code == event::LUN_HIDDEN).expect("it is told");
        assert!(hidden.message.contains("only through portal group 2, but the session uses group 1"), "{hidden:?}");
        let discovery = Login { target: None, ..Login::of(OPEN, 3) };
        let (mut asker, _) = Host::follow(&sim, &discovery, data(2)).await;
        assert!(asker.targets().await.is_empty(), "the front portal is of group 1");
    });
}

/// Sends REPORT TARGET PORT GROUPS, and returns PREF with state, group and port for each.
async fn port_groups(host: &mut Host) -> Vec<(u8, u16, u16)> {
    let data = host.ask(&[0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]).await.unwrap();
    let len = u32::from_be_bytes(*data.first_chunk().unwrap()) as usize;
    let number = |at: &[u8]| u16::from_be_bytes(*at.first_chunk().unwrap());
    data[4..4 + len].chunks(12).map(|group| (group[0], number(&group[2..]), number(&group[10..]))).collect()
}

const ACCESS_CHANGED: (u8, u8, u8) = (6, 0x2A, 0x06);

/// Two paths through two portal groups: a setting of a group reaches every path, on every shard and after a restart.
#[test]
fn operator_says_how_volumes_are_served_through_each_portal_group() {
    for shards in [1, 3] {
        Sim::new(6).run(async move |sim| {
            let (node, first) = furnished(&sim, shards).await;
            drop(first);
            node.front().await;
            node.set(data(2), &[("group", "2")]).await;
            let set = async |node: &Node, tag, pairs: &[(&str, &str)]| {
                let PortalSettings { settings, .. } = settings(pairs);
                let request = PortalGroupSettings { settings, force: true };
                node.control.portal_groups.set(PortalGroupTag(tag), request).await.map_err(|no| no.code)
            };
            let (mut one, _) = Host::follow(&sim, &Login::of(OPEN, 1), data(1)).await;
            let (mut two, _) = Host::follow(&sim, &Login::of(OPEN, 2), data(2)).await;
            one.take_attention().await;
            two.take_attention().await;
            assert_eq!(port_groups(&mut one).await, [(0x00, 1, 1), (0x00, 2, 2)]);
            set(&node, 2, &[("access", "standby")]).await.unwrap();
            set(&node, 1, &[("preferred", "yes")]).await.unwrap();
            sim.sleep(Duration::from_millis(100)).await;
            assert_eq!(two.try_read(0).await, Err(ACCESS_CHANGED));
            assert_eq!(two.try_read(0).await, Err((2, 0x04, 0x0B)));
            assert_eq!(one.try_write(0, 9).await, Err(ACCESS_CHANGED));
            one.write(0, 9).await;
            assert_eq!(port_groups(&mut two).await, [(0x80, 1, 1), (0x02, 2, 2)]);
            assert_eq!(set(&node, 1, &[("access", "offline")]).await, Err(code::PORTAL_LAST));
            assert_eq!(set(&node, 3, &[("access", "standby")]).await, Err(code::PORTAL_GROUP_UNKNOWN));
            assert_eq!(set(&node, 2, &[("access", "fast")]).await, Err(code::SETTING_INVALID));
            drop((one, two));
            let node = node.restarted(shards).await;
            let (mut two, _) = Host::follow(&sim, &Login::of(OPEN, 2), data(2)).await;
            two.take_attention().await;
            assert_eq!(two.try_read(0).await, Err((2, 0x04, 0x0B)));
            // The host sets the state itself, until the operator changes it again.
            let list = [0, 0, 0, 0, 0, 0, 0, 2];
            assert_eq!(two.status_of(&[0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], &list).await, (0, None));
            assert_eq!(two.read(0).await, [9; 512]);
            let told = node.control.portal_groups.list().await.unwrap();
            let told: Vec<_> =
                told.iter().map(|group| (group.tag, group.policy.access.as_str(), group.sessions)).collect();
            assert_eq!(told, [(1, "optimized", 0), (2, "standby", 1)]);
        });
    }
}

/// All sources of portal addresses give the advertised address, not the one that a portal listens on.
#[test]
fn advertised_address_is_told_in_send_targets_redirects_and_presentations() {
    for shards in [1, 2] {
        Sim::new(8).run(async move |sim| {
            let (node, first) = furnished(&sim, shards).await;
            drop(first);
            // The second data portal stands for address translation in front of the first: the advertised address leads
            // there.
            for number in [1, 2] {
                let PortalSettings { settings, .. } = settings(&[]);
                node.control.portals.add(NewPortal { address: PortalAddress(data(number)), settings }).await.unwrap();
            }
            let translator = data(2).to_string();
            node.set(data(1), &[("role", "data"), ("advertise", &translator)]).await;
            node.set(portal(), &[("role", "front"), ("advertise", "san.example.com")]).await;
            let (mut host, at) = Host::follow(&sim, &Login::of(OPEN, 1), portal()).await;
            host.take_attention().await;
            assert_eq!(at, data(2), "the redirect names the advertised address");
            let (mut asker, _) = Host::follow(&sim, &Login { target: None, ..Login::of(OPEN, 9) }, portal()).await;
            assert_eq!(asker.targets().await, ["san.example.com:3260,1"]);
            let seen = node.control.presentations.list().first().expect("it is shown").portals.clone();
            assert_eq!(seen, ["san.example.com:3260"]);
            // Several portals behind one address count as one for hosts; IPv6 is in brackets.
            for address in [portal(), data(1), data(2)] {
                node.set(address, &[("role", "plain"), ("advertise", "[2001:db8::5]:13260")]).await;
            }
            let (mut asker, _) = Host::follow(&sim, &Login { target: None, ..Login::of(OPEN, 9) }, portal()).await;
            assert_eq!(asker.targets().await, ["[2001:db8::5]:13260,1"]);
            node.set(portal(), &[("advertise", "off")]).await;
            let (mut asker, _) = Host::follow(&sim, &Login { target: None, ..Login::of(OPEN, 9) }, portal()).await;
            assert!(asker.targets().await.contains(&format!("{},1", portal())));
        });
    }
}
