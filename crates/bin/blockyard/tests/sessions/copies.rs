//! Full copies of volumes between pools and within one, while hosts write; and the remains of copies that are cut
//! short.

use crate::host::{Host, Login};
use crate::node::{Node, furnished_with, name};
use control::request::{NewCopy, NewGroup, NewPool, NewSnapshots, NewVolume, PoolSettings, Removal, Resize, Unpresent};
use model::{CopySource, Level, Provision, Refusal, Size, SnapshotLock, VolumeReport, VolumeState, code, event};
use shard::World;
use sim::{Crash, DiskHandle, Sim};
use std::time::Duration;

/// Blocks of 512 bytes between two written locations: one in each granule of 64 KiB.
const STRIDE: u64 = 128;
const PLACES: u64 = 96;

fn fill(place: u64) -> u8 {
    (place * 11 + 5).to_le_bytes()[0]
}

/// Creates a node with the pool `tank`, whose host sees the thin volume `tank/db`, of 64 MiB with 6 MiB in use, as LUN
/// 1, and with the pool `fast`.
async fn two_pools(sim: &Sim, shards: usize) -> (Node, Vec<DiskHandle>, Host) {
    let (node, [_, fast], host) = two_pools_with_disks(sim, shards).await;
    (node, fast, host)
}

/// The same, with the disks of `tank`, then those of `fast`.
async fn two_pools_with_disks(sim: &Sim, shards: usize) -> (Node, [Vec<DiskHandle>; 2], Host) {
    let (node, of_tank, mut host) = furnished_with(sim, shards, &[], false).await;
    let disks = vec![node.add_disk("f0", 128).await, node.add_disk("f1", 128).await];
    let members = vec![name("f0"), name("f1")];
    let groups =
        vec![NewGroup { level: Level::Raid1, chunk: None, no_integrity: false, member_size: None, disks: members }];
    let fast = NewPool { name: name("fast"), groups, force: false, spares: Vec::new(), spread: false };
    node.control.pools.create(fast).await.unwrap();
    let new = NewVolume {
        provision: Some(Provision::Thin),
        ..NewVolume::new("tank/db".parse().unwrap(), Some(Size::mib(64)))
    };
    node.control.volumes.create(new).await.unwrap();
    node.show_as("tank/db", 1).await;
    host.address(1);
    while host.test_unit_ready().await.is_some() {}
    for place in 0..PLACES {
        host.write(place * STRIDE, fill(place)).await;
    }
    (node, [of_tank, disks], host)
}

async fn copy(node: &Node, source: &str, target: &str) -> Result<VolumeReport, Refusal> {
    let (source, name) = (source.parse().unwrap(), target.parse().unwrap());
    node.control.copies.start(NewCopy { source, name }).await
}

async fn slowly(node: &Node, rate: &str) {
    let settings = [("rebuild.max".to_owned(), rate.to_owned())].into();
    node.control.pools.set(&name("tank"), PoolSettings { settings }).await.unwrap();
}

async fn found(node: &Node, volume: &str) -> Option<VolumeReport> {
    node.control.volumes.report(&volume.parse().unwrap()).await.ok()
}

/// Waits until the copy to the volume has ended.
async fn until_ended(sim: &Sim, node: &Node, volume: &str) -> Option<VolumeReport> {
    loop {
        match found(node, volume).await {
            Some(report) if report.copy.is_some() => sim.sleep(Duration::from_millis(50)).await,
            ended => return ended,
        }
    }
}

/// Requires that LUN `lun` shows the original content of `tank/db`, except for the first `changed` locations.
async fn check(host: &mut Host, lun: u64, changed: u64) {
    host.address(lun);
    while host.test_unit_ready().await.is_some() {}
    for place in 0..PLACES {
        let expected = if place < changed { !fill(place) } else { fill(place) };
        assert_eq!(host.read(place * STRIDE).await, [expected; 512], "place {place}");
    }
    assert_eq!(host.read(PLACES * STRIDE + 7).await, [0; 512], "behind it is nothing");
}

/// Requires that the copy `fast/db` completes and shows, as LUN 2, the original content of `tank/db`; returns the host
/// that has read it.
async fn check_whole(sim: &Sim, node: &Node) -> Host {
    let whole = until_ended(sim, node, "fast/db").await.expect("it is there");
    assert_eq!(whole.state, VolumeState::Online);
    node.show_as("fast/db", 2).await;
    let mut host = Host::login(sim, &Login::of(crate::array::OPEN, 0)).await;
    check(&mut host, 2, 0).await;
    host
}

async fn used(node: &Node, pool: &str) -> u64 {
    node.control.pools.report(&name(pool)).await.unwrap().used.bytes()
}

#[test]
fn copy_to_another_pool_is_of_one_instant_while_hosts_write_and_nobody_sees_half_of_it() {
    for (seed, shards) in [(140, 1), (141, 3)] {
        Sim::new(seed).run(async move |sim| {
            let (node, _disks, mut host) = two_pools(&sim, shards).await;
            slowly(&node, "1MiB/s").await;
            let begun = copy(&node, "tank/db", "fast/db").await.unwrap();
            assert_eq!((begun.state, begun.size), (VolumeState::Copying, Size::mib(64)));
            // Half of it is overwritten during the copy, from the end as well.
            for place in 0..PLACES / 2 {
                host.write(place * STRIDE, !fill(place)).await;
                host.write((PLACES - 1 - place) * STRIDE + 1, 0xee).await;
            }
            sim.sleep(Duration::from_secs(2)).await;
            let report = found(&node, "fast/db").await.expect("it is listed");
            let progress = report.copy.expect("it runs").progress;
            assert_eq!(progress.total_bytes, PLACES << 16, "holes do not count");
            assert!(
                progress.percent() > 5 && progress.percent() < 95 && progress.seconds_left.is_some(),
                "{progress:?}"
            );

            let copying = |refusal: Refusal| assert_eq!(refusal.code, code::VOLUME_COPYING, "{refusal}");
            let volume = || "fast/db".parse().unwrap();
            let presented = control::request::NewPresentation {
                volume: volume(),
                host: name("web"),
                target: Some(name("t")),
                lun: Some(2),
                read_only: true,
                groups: Vec::new(),
                force: false,
            };
            copying(node.control.presentations.present(presented).await.unwrap_err());
            copying(node.control.volumes.delete(&volume(), Removal::default()).await.unwrap_err());
            copying(node.control.volumes.resize(&volume(), Resize { size: Size::mib(128) }).await.unwrap_err());
            let snapshots =
                NewSnapshots { volumes: vec![volume()], name: name("s"), lock: SnapshotLock::Unlocked.into() };
            copying(node.control.snapshots.create(snapshots).await.unwrap_err());
            copying(copy(&node, "fast/db", "fast/two").await.unwrap_err());
            copying(node.control.pools.export(&name("fast"), Removal::default()).await.unwrap_err());
            assert_eq!(copy(&node, "tank/db", "fast/db").await.unwrap_err().code, code::NAME_TAKEN);
            node.hide("tank/db").await;
            copying(node.control.volumes.delete(&"tank/db".parse().unwrap(), Removal::default()).await.unwrap_err());
            assert!(
                node.control.snapshots.list().await.unwrap().is_empty(),
                "what the copy is made of is nobody's to name"
            );

            slowly(&node, "off").await;
            let whole = until_ended(&sim, &node, "fast/db").await.expect("it is there");
            assert_eq!(whole.state, VolumeState::Online);
            assert_eq!(whole.space.as_ref().map(|space| space.mapped.bytes()), Some(PLACES << 16), "holes stay holes");
            node.show_as("fast/db", 2).await;
            node.show_as("tank/db", 1).await;
            check(&mut host, 2, 0).await;
            // The copy is an ordinary volume, on whichever shard.
            host.write(3, 0x77).await;
            assert_eq!(host.read(3).await, [0x77; 512]);
            let told = node.codes().await;
            assert!(told.contains(&event::COPY_BEGAN) && told.contains(&event::COPY_ENDED), "{told:?}");
            sim.sleep(Duration::from_secs(20)).await;
            let db = found(&node, "tank/db").await.unwrap();
            assert_eq!(db.space.unwrap().mapped.bytes(), PLACES << 16);
            let node = node.restarted(shards).await;
            assert_eq!(found(&node, "fast/db").await.expect("still").state, VolumeState::Online);
            let mut host = Host::login(&sim, &Login::of(crate::array::OPEN, 0)).await;
            check(&mut host, 1, PLACES / 2).await;
        });
    }
}

#[test]
fn copy_of_a_snapshot_within_its_pool_shows_the_snapshot() {
    Sim::new(142).run(async move |sim| {
        let (node, _disks, mut host) = two_pools(&sim, 2).await;
        let volumes = vec!["tank/db".parse().unwrap()];
        let monday = NewSnapshots { volumes, name: name("monday"), lock: SnapshotLock::Unlocked.into() };
        node.control.snapshots.create(monday).await.unwrap();
        for place in 0..PLACES {
            host.write(place * STRIDE, !fill(place)).await;
        }
        slowly(&node, "1MiB/s").await;
        copy(&node, "tank/db@monday", "tank/old").await.unwrap();
        let snapshot = "tank/db@monday".parse().unwrap();
        assert_eq!(node.control.snapshots.delete(&snapshot).await.unwrap_err().code, code::VOLUME_COPYING);
        slowly(&node, "off").await;
        until_ended(&sim, &node, "tank/old").await.expect("it is there");
        node.show_as("tank/old", 2).await;
        check(&mut host, 2, 0).await;
        check(&mut host, 1, PLACES).await;
        node.control.snapshots.delete(&snapshot).await.unwrap();
    });
}

#[test]
fn copy_that_is_cancelled_or_fails_leaves_nothing() {
    Sim::new(143).run(async move |sim| {
        let (node, disks, host) = two_pools(&sim, 2).await;
        drop(host);
        let before = used(&node, "fast").await;
        slowly(&node, "1MiB/s").await;
        copy(&node, "tank/db", "fast/db").await.unwrap();
        sim.sleep(Duration::from_secs(2)).await;
        assert!(used(&node, "fast").await > before);
        node.control.copies.cancel(&"fast/db".parse().unwrap()).await.unwrap();
        assert_eq!(found(&node, "fast/db").await, None);
        let unknown = node.control.copies.cancel(&"fast/db".parse().unwrap()).await.unwrap_err();
        assert_eq!(unknown.code, code::COPY_UNKNOWN);
        assert_eq!(used(&node, "fast").await, before, "its space is back");

        // Without space it is refused; with space for its map only, it ends when that is discovered.
        for (mib, begins) in [(80, false), (64, true)] {
            let big = NewVolume::new("fast/big".parse().unwrap(), Some(Size::mib(mib)));
            node.control.volumes.create(big).await.unwrap();
            let begun = copy(&node, "tank/db", "fast/db").await;
            assert_eq!(begun.map(drop).map_err(|full| full.code), if begins { Ok(()) } else { Err(code::POOL_FULL) });
            assert_eq!(until_ended(&sim, &node, "fast/db").await, None);
            node.control.volumes.delete(&"fast/big".parse().unwrap(), Removal::default()).await.unwrap();
            assert_eq!(used(&node, "fast").await, before);
        }
        let told = node.control.reconciler.events(control::EventFilter::default()).await;
        assert!(told.iter().any(|event| event.message.contains("the pool of the copy is full")), "{told:?}");

        copy(&node, "tank/db", "fast/db").await.unwrap();
        sim.sleep(Duration::from_secs(2)).await;
        disks.iter().for_each(DiskHandle::fail);
        // The copy waits for the pool, and continues when it is open again.
        sim.sleep(Duration::from_secs(5)).await;
        assert_eq!(found(&node, "fast/db").await, None, "its pool is closed");
        disks.iter().for_each(DiskHandle::revive);
        for _ in 0..60 {
            node.control.reconciler.handle_events(Vec::new()).await.unwrap();
            sim.sleep(Duration::from_secs(1)).await;
        }
        let mut host = check_whole(&sim, &node).await;
        let told = node.codes().await;
        for code in [event::COPY_CANCELLED, event::COPY_FAILED] {
            assert!(told.contains(&code), "{code}: {told:?}");
        }
        check(&mut host, 1, 0).await;
        // The snapshot behind the copy is gone as well: the volume can be deleted.
        let seen = Unpresent { volume: "tank/db".parse().unwrap(), host: name("web"), target: None, force: true };
        node.control.presentations.unpresent(&seen).await.unwrap();
        node.control.volumes.delete(&"tank/db".parse().unwrap(), Removal::default()).await.unwrap();
        for (source, wrong) in [("tank/db", code::VOLUME_UNKNOWN), ("tank/vm1@no", code::SNAPSHOT_UNKNOWN)] {
            assert_eq!(copy(&node, source, "tank/x").await.unwrap_err().code, wrong, "{source}");
        }
        assert!("tank/vm1".parse::<CopySource>().is_ok());
        assert_eq!(copy(&node, "tank/vm1", "none/x").await.unwrap_err().code, code::POOL_UNKNOWN);
    });
}

#[test]
fn copy_that_is_cancelled_when_it_ends_is_gone_or_whole_as_the_answer_says() {
    Sim::new(144).run(async move |sim| {
        let (node, _disks, _host) = two_pools(&sim, 2).await;
        let volume = || "fast/db".parse().unwrap();
        let begun = sim.now();
        copy(&node, "tank/db", "fast/db").await.unwrap();
        while found(&node, "fast/db").await.is_some_and(|report| report.copy.is_some()) {
            sim.sleep(Duration::from_micros(20)).await;
        }
        let whole_after = sim.now() - begun;
        node.control.volumes.delete(&volume(), Removal::default()).await.unwrap();
        let mut ends = [0, 0];
        for step in 0..100 {
            copy(&node, "tank/db", "fast/db").await.unwrap();
            sim.sleep(whole_after * step / 90).await;
            let answer = node.control.copies.cancel(&volume()).await;
            let is_whole = found(&node, "fast/db").await.is_some();
            assert_eq!(answer.map_err(|refusal| refusal.code), if is_whole { Err(code::COPY_UNKNOWN) } else { Ok(()) });
            ends[usize::from(is_whole)] += 1;
            if is_whole {
                node.control.volumes.delete(&volume(), Removal::default()).await.unwrap();
            }
        }
        assert!(ends[0] > 5 && ends[1] > 5, "gone and whole: {ends:?}");
    });
}

/// Ends the daemon in the middle of a copy, and copies again afterwards.
async fn copy_and_end(sim: &Sim, after: Duration, crash: Option<Crash>) {
    let (node, _disks, host) = two_pools(sim, 2).await;
    drop(host);
    slowly(&node, "4MiB/s").await;
    let (control, machine) = (node.control.clone(), node.machine());
    let request = NewCopy { source: "tank/db".parse().unwrap(), name: "fast/db".parse().unwrap() };
    machine.spawn(async move { drop(control.copies.start(request).await) });
    sim.sleep(after).await;
    let had_begun = found(&node, "fast/db").await.is_some();
    let node = node.revived(2, crash).await;
    let mut host = Host::login(sim, &Login::of(crate::array::OPEN, 0)).await;
    check(&mut host, 1, 0).await;
    // Later writes of the host are in no copy.
    host.write(5 * STRIDE, 0x99).await;
    let whole = match until_ended(sim, &node, "fast/db").await {
        Some(volume) => volume,
        None => {
            assert!(!had_begun, "a copy that was listed is gone");
            host.write(5 * STRIDE, fill(5)).await;
            copy(&node, "tank/db", "fast/db").await.unwrap();
            until_ended(sim, &node, "fast/db").await.expect("it is there")
        }
    };
    sim.sleep(Duration::from_secs(20)).await;
    let db = found(&node, "tank/db").await.unwrap().space.unwrap();
    assert_eq!((db.snapshots, db.mapped.bytes()), (0, PLACES << 16), "no snapshot is left");
    assert_eq!(whole.state, VolumeState::Online);
    node.show_as("fast/db", 2).await;
    let mut host = Host::login(sim, &Login::of(crate::array::OPEN, 0)).await;
    check(&mut host, 2, 0).await;
    for pool in ["tank", "fast"] {
        let found = node.control.pools.check(&name(pool), false).await.unwrap();
        assert!(found.findings.is_empty(), "{found:?}");
    }
    // No snapshot holds the volume.
    node.hide("tank/db").await;
    node.control.volumes.delete(&"tank/db".parse().unwrap(), Removal::default()).await.unwrap();
}

#[test]
fn copy_that_is_cut_short_anywhere_continues_and_is_whole() {
    let asked = std::env::var("BLOCKYARD_COPY_CUTS").ok();
    for step in 0..asked.map_or(6, |cuts| cuts.parse().expect("a number")) {
        let crash = [None, Some(Crash::NoneLanded), Some(Crash::Torn)][step % 3];
        Sim::new(150 + step as u64).run(async move |sim| {
            let about = 500 << sim.random_below(13);
            let after = Duration::from_micros(about + sim.random_below(about));
            copy_and_end(&sim, after, crash).await;
        });
    }
}

#[test]
fn copy_continues_where_it_was_after_crashes_and_restarts() {
    for (seed, crash) in [(160, None), (161, Some(Crash::NoneLanded)), (162, Some(Crash::Torn))] {
        Sim::new(seed).run(async move |sim| {
            let (node, _disks, host) = two_pools(&sim, 2).await;
            drop(host);
            slowly(&node, "256KiB/s").await;
            copy(&node, "tank/db", "fast/db").await.unwrap();
            sim.sleep(Duration::from_secs(15)).await;
            let before = found(&node, "fast/db").await.unwrap().copy.unwrap().progress.done_bytes;
            let node = if seed == 160 { node.restarted(2).await } else { node.revived(2, crash).await };
            sim.sleep(Duration::from_secs(1)).await;
            let copying = found(&node, "fast/db").await.expect("it is listed");
            assert_eq!((copying.state, copying.reason), (VolumeState::Copying, None));
            let copied = copying.copy.unwrap().progress;
            assert!(copied.done_bytes >= before / 3 && copied.done_bytes <= before + (1 << 20), "{before}: {copied:?}");
            assert_eq!(copied.total_bytes, PLACES << 16);
            slowly(&node, "off").await;
            check_whole(&sim, &node).await;
            let told = node.control.reconciler.events(control::EventFilter::default()).await;
            assert!(told.iter().any(|told| told.message == "copy of tank/db to fast/db continues"), "{told:?}");
        });
    }
}

#[test]
fn copy_whose_source_is_away_after_a_restart_waits_for_it() {
    Sim::new(163).run(async move |sim| {
        let (node, [away, _fast], host) = two_pools_with_disks(&sim, 2).await;
        drop(host);
        slowly(&node, "256KiB/s").await;
        for target in ["fast/db", "fast/two"] {
            copy(&node, "tank/db", target).await.unwrap();
        }
        sim.sleep(Duration::from_secs(12)).await;
        away.iter().for_each(DiskHandle::fail);
        let node = node.restarted(2).await;
        for target in ["fast/db", "fast/two"] {
            let waits = found(&node, target).await.expect("it is listed");
            assert_eq!(waits.reason.as_deref(), Some("the copy waits for the pool of tank/db"));
        }
        node.control.copies.cancel(&"fast/two".parse().unwrap()).await.unwrap();
        assert_eq!(found(&node, "fast/two").await, None);
        away.iter().for_each(DiskHandle::revive);
        node.control.reconciler.handle_events(Vec::new()).await.unwrap();
        slowly(&node, "off").await;
        check_whole(&sim, &node).await;
        sim.sleep(Duration::from_secs(5)).await;
        assert_eq!(found(&node, "tank/db").await.unwrap().space.unwrap().snapshots, 0, "of either copy");
    });
}
