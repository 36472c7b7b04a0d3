//! Reservations of a shared volume: persistence, moves of its pool, and the operator's view and commands.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{MEMBERS, Node, furnished_with, name};
use control::request::{ImportPool, NewPresentation, NewTarget, Removal};
use model::{ReservationKind, ReservationReport, ReservationRole, SessionReport, VolumeName, event};
use shard::World;
use sim::{Crash, Sim};
use std::time::Duration;

const SECOND_TARGET: &str = "iqn.2026-11.io.blockyard:second";
const GOOD: (u8, Option<(u8, u8, u8)>) = (0, None);
const CONFLICT: (u8, Option<(u8, u8, u8)>) = (0x18, None);
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;

fn vm1() -> VolumeName {
    "tank/vm1".parse().unwrap()
}

/// Sends PERSISTENT RESERVE OUT.
async fn out(host: &mut Host, action: u8, kind: u8, keys: (u64, u64), aptpl: bool) -> (u8, Option<(u8, u8, u8)>) {
    let mut list = [keys.0.to_be_bytes(), keys.1.to_be_bytes()].concat();
    list.extend([0, 0, 0, 0, u8::from(aptpl), 0, 0, 0]);
    host.status_of(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list).await
}

/// Reserves the volume for this host with the key 1.
async fn reserve(host: &mut Host, aptpl: bool) {
    assert_eq!(out(host, REGISTER, 0, (0, 1), aptpl).await, GOOD);
    assert_eq!(out(host, RESERVE, EXCLUSIVE_ACCESS, (1, 0), aptpl).await, GOOD);
}

async fn report(node: &Node) -> Option<ReservationReport> {
    let volume = node.control.volumes.report(&vm1()).await.unwrap();
    volume.reservation.map(|reservation| *reservation)
}

/// Logs in the only host with this ISID.
async fn session(sim: &Sim, isid: u8) -> Host {
    let mut host = Host::login(sim, &Login::of(OPEN, isid)).await;
    host.take_attention().await;
    host
}

#[test]
fn reservation_with_aptpl_survives_every_end_of_the_daemon_and_one_without_none() {
    let ends = [None, Some(None), Some(Some(Crash::NoneLanded)), Some(Some(Crash::Torn)), Some(Some(Crash::AllLanded))];
    for (seed, (end, aptpl)) in ends.into_iter().flat_map(|end| [(end, true), (end, false)]).enumerate() {
        Sim::new(seed as u64).run(async move |sim| {
            let (node, _disks, mut host) = furnished_with(&sim, 1 + seed % 2, &[], false).await;
            reserve(&mut host, aptpl).await;
            assert_eq!(session(&sim, 1).await.status_of(&READ, &[]).await, CONFLICT);
            drop(host);
            let node = match end {
                None => node.restarted(1 + seed % 3).await,
                Some(crash) => node.revived(1 + seed % 3, crash).await,
            };
            let others = session(&sim, 1).await.status_of(&READ, &[]).await;
            assert_eq!(others, if aptpl { CONFLICT } else { GOOD }, "{end:?}");
            assert_eq!(session(&sim, 0).await.status_of(&READ, &[]).await, GOOD);
            let found = report(&node).await.map(|found| (found.kind, found.persists, found.registered));
            assert_eq!(found, aptpl.then_some((Some(ReservationKind::ExclusiveAccess), true, 1)));
        });
    }
}

#[test]
fn write_that_could_not_be_done_either_finds_what_ranks_before_that() {
    const BEYOND: [u8; 10] = [0x2a, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0];
    for shards in [1, 2] {
        Sim::new(97).run(async move |sim| {
            let (_node, _disks, mut host) = furnished_with(&sim, shards, &[], false).await;
            let mut new = Host::login(&sim, &Login::of(OPEN, 1)).await;
            assert_eq!(new.status_of(&BEYOND, &[1; 512]).await, (2, Some((6, 0x29, 0))), "what it was not told yet");
            assert_eq!(new.status_of(&BEYOND, &[1; 512]).await, (2, Some((5, 0x21, 0))));
            reserve(&mut host, false).await;
            // SAM-5 §5.3.3.
            assert_eq!(new.status_of(&BEYOND, &[1; 512]).await, CONFLICT);
            assert_eq!(host.status_of(&BEYOND, &[1; 512]).await, (2, Some((5, 0x21, 0))));
        });
    }
}

#[test]
fn reservation_moves_with_its_pool_to_another_node() {
    Sim::new(91).run(async move |sim| {
        let (node, disks, mut host) = furnished_with(&sim, 1, &[], false).await;
        reserve(&mut host, true).await;
        let before = report(&node).await.unwrap();
        drop(host);
        node.hide("tank/vm1").await;
        node.control.pools.export(&name("tank"), Removal::default()).await.unwrap();
        let other = Node::start_second(&sim).await;
        for (disk, handle) in MEMBERS.iter().zip(&disks) {
            other.attach_disk(disk, handle).await;
        }
        other.control.pools.import(&name("tank"), ImportPool::default()).await.unwrap();
        assert_eq!(report(&other).await, Some(ReservationReport { generation: 0, ..before }));
    });
}

#[test]
fn reservation_is_one_through_every_target_and_session_of_the_volume() {
    for shards in [1, 3] {
        Sim::new(92).run(async move |sim| {
            let (node, _disks, mut host) = furnished_with(&sim, shards, &[], false).await;
            let target = NewTarget { name: name("u"), iqn: Some(SECOND_TARGET.parse().unwrap()) };
            node.control.targets.add(target).await.unwrap();
            let (lun, groups) = (Some(7), Vec::new());
            let shown = NewPresentation {
                volume: vm1(),
                host: name("web"),
                target: Some(name("u")),
                lun,
                read_only: false,
                groups,
                force: false,
            };
            node.control.presentations.present(shown).await.unwrap();
            let login = Login { target: Some(SECOND_TARGET), ..Login::of(OPEN, 0) };
            let mut second = Host::login(&sim, &login).await;
            second.address(7);
            second.take_attention().await;
            reserve(&mut host, true).await;
            assert_eq!(second.status_of(&READ, &[]).await, CONFLICT);
            // The same initiator port at another target port is another nexus, which ALL_TG_PT includes.
            let list = [&[0; 8][..], &2_u64.to_be_bytes(), &[0, 0, 0, 0, 0x05, 0, 0, 0]].concat();
            assert_eq!(second.status_of(&[0x5F, 6, 0, 0, 0, 0, 0, 0, 24, 0], &list).await, GOOD);
            let registered = report(&node).await.unwrap().registrations;
            let targets: Vec<&str> = registered.iter().map(|one| one.target.as_str()).collect();
            assert_eq!((targets.len(), targets.contains(&SECOND_TARGET)), (2, true));
            assert!(registered.iter().all(|one| one.key == "0000000000000002"), "{registered:?}");
        });
    }
}

#[test]
fn operator_sees_who_holds_what_hears_of_conflicts_and_can_take_it_all_back() {
    Sim::new(93).run(async move |sim| {
        let (node, _disks, mut host) = furnished_with(&sim, 2, &[], false).await;
        let mut other = session(&sim, 1).await;
        assert_eq!(report(&node).await, None);
        reserve(&mut host, true).await;
        let found = report(&node).await.unwrap();
        let holder = &found.registrations[0];
        assert_eq!(
            (&found.holder, holder.isid.as_str(), holder.holder),
            (&Some(holder.initiator.clone()), "800000000000", true)
        );
        for _ in 0..5 {
            assert_eq!(other.status_of(&READ, &[]).await, CONFLICT);
        }
        let volume = node.control.volumes.report(&vm1()).await.unwrap();
        assert_eq!(volume.counters.conflicts, 5);
        let told = node.control.reconciler.events(control::EventFilter::default()).await;
        let told: Vec<_> = told.into_iter().filter(|event| event.code == event::RESERVED).collect();
        assert_eq!((told.len(), told[0].count), (1, 1), "it is told now and then: {told:?}");
        let sentence = &told[0].message;
        assert!(sentence.contains("READ (10), exclusive access, held by iqn."), "{sentence}");
        assert!(
            sentence.contains(&format!("with key {}: only the holder may read and write", holder.key)),
            "{sentence}"
        );
        assert!(sentence.ends_with("blockyard volume reservations tank/vm1 --clear --yes"), "{sentence}");
        node.control.volumes.clear_reservations(&vm1()).await.unwrap();
        assert_eq!(report(&node).await, None);
        assert!(node.codes().await.contains(&event::RESERVATIONS_CLEARED));
        assert_eq!(other.status_of(&READ, &[]).await, GOOD);
        assert_eq!(host.status_of(&READ, &[]).await, (2, Some((6, 0x2A, 3))), "the holder is told");
        sim.sleep(Duration::from_secs(31)).await;
        let told = node.control.reconciler.events(control::EventFilter::default()).await;
        let told = told.into_iter().rfind(|event| event.code == event::RESERVED).expect("it is told how often more");
        assert!(told.message.ends_with("4 more in 30 s"), "{told:?}");
        let node = node.restarted(1).await;
        assert_eq!(report(&node).await, None, "nothing is kept of it");
        let unknown = node.control.volumes.clear_reservations(&"tank/none".parse().unwrap()).await.unwrap_err();
        assert_eq!(unknown.code, model::code::VOLUME_UNKNOWN);
    });
}

#[test]
fn reserve_ends_with_its_session_and_the_report_says_whose_it_is() {
    Sim::new(94).run(async move |sim| {
        let (node, _disks, mut host) = furnished_with(&sim, 1, &[], false).await;
        let mut other = session(&sim, 1).await;
        assert_eq!(host.status_of(&[0x16, 0, 0, 0, 0, 0], &[]).await, GOOD);
        assert_eq!(other.status_of(&READ, &[]).await, CONFLICT);
        let found = report(&node).await.unwrap();
        assert_eq!((found.kind, found.holder.is_some(), found.registered), (Some(ReservationKind::Reserve), true, 0));
        drop(host);
        // The session ends when its successor has logged in.
        let _successor = session(&sim, 0).await;
        assert_eq!(other.status_of(&READ, &[]).await, GOOD);
    });
}

#[test]
fn sessions_show_their_isid_and_what_they_are_to_each_reservation() {
    const REGISTRANTS_ONLY: u8 = 6;
    for shards in [1, 3] {
        Sim::new(95).run(async move |sim| {
            let (node, _disks, mut holder) = furnished_with(&sim, shards, &[], false).await;
            let mut sharer = session(&sim, 1).await;
            let _stranger = session(&sim, 2).await;
            let roles = async || -> Vec<(String, Option<ReservationRole>)> {
                let mut sessions = node.control.sessions.list().await.unwrap();
                sessions.sort_by(|one, other| one.isid.cmp(&other.isid));
                let role = |one: &SessionReport| one.reservations.first().map(|reserved| reserved.role);
                sessions.iter().map(|one| (one.isid.clone(), role(one))).collect()
            };
            let of = |roles: [Option<ReservationRole>; 3]| {
                let isids = ["800000000000", "800000000001", "800000000002"].map(str::to_owned);
                isids.into_iter().zip(roles).collect::<Vec<_>>()
            };
            assert_eq!(roles().await, of([None, None, None]));
            assert_eq!(out(&mut sharer, REGISTER, 0, (0, 2), false).await, GOOD);
            assert_eq!(roles().await, of([None, Some(ReservationRole::Registered), None]));
            assert_eq!(out(&mut holder, REGISTER, 0, (0, 1), false).await, GOOD);
            assert_eq!(out(&mut holder, RESERVE, REGISTRANTS_ONLY, (1, 0), false).await, GOOD);
            let shared = of([Some(ReservationRole::Holder), Some(ReservationRole::RegisteredWithAccess), None]);
            assert_eq!(roles().await, shared);
            let found = report(&node).await.unwrap();
            assert_eq!(found.holder_isid.as_deref(), Some("800000000000"));
            let sessions = node.control.sessions.list().await.unwrap();
            let one = sessions.iter().find(|one| one.isid == "800000000000").expect("it is logged in");
            let detail = node.control.sessions.detail(one.id).await.unwrap().session;
            assert_eq!((&detail.isid, &detail.reservations), (&one.isid, &one.reservations));
            // The same host with another ISID holds nothing.
            drop(holder);
            let _again = session(&sim, 9).await;
            let again = roles().await.into_iter().find(|(isid, _)| isid == "800000000009").expect("it is logged in");
            assert_eq!(again.1, None);
        });
    }
}
