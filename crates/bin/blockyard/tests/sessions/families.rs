//! Thin volumes, snapshots and clones as seen by hosts: full pools, consistency, rollbacks, restarts.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{BLOCKS, Node, furnished, name};
use control::request::{NewClone, NewSnapshots, NewVolume, Removal, RollBack};
use model::{Provision, Size, SnapshotLock, SnapshotName, SnapshotState, VolumeReport, code, event};
use shard::World;
use sim::Sim;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Blocks of a granule of 1 MiB.
const GRANULE: u64 = 2048;
const NO_SPACE: (u8, u8, u8) = (7, 0x27, 0x07);
const SOFT_THRESHOLD: (u8, u8, u8) = (6, 0x38, 0x07);
const MEDIUM_CHANGED: (u8, u8, u8) = (6, 0x28, 0x00);

/// Creates a thin volume far larger than the pool, and presents it to the host as LUN 1.
async fn overcommit(node: &Node) {
    let new = NewVolume {
        provision: Some(Provision::Thin),
        granule: Some(Size::mib(1)),
        ..NewVolume::new("tank/thin".parse().unwrap(), Some(Size::gib(64)))
    };
    node.control.volumes.create(new).await.unwrap();
    node.show_as("tank/thin", 1).await;
}

async fn volume(node: &Node, name: &str) -> VolumeReport {
    let name = name.parse().unwrap();
    let one = node.control.volumes.report(&name).await.unwrap();
    let all = node.control.volumes.list().await.unwrap();
    assert_eq!(Some(&one), all.iter().find(|volume| volume.name == name), "alone it is said as among the others");
    one
}

fn snapshot(text: &str) -> SnapshotName {
    text.parse().unwrap()
}

async fn take_all_attentions(host: &mut Host) {
    while host.test_unit_ready().await.is_some() {}
}

/// Writes a block of each granule until one is refused; returns the number written, and the sense data.
async fn fill(host: &mut Host) -> (u64, Vec<(u8, u8, u8)>) {
    let (mut granule, mut heard) = (0, Vec::new());
    loop {
        match host.try_write(granule * GRANULE, fill_of(granule)).await {
            Ok(()) => granule += 1,
            Err(sense) => {
                heard.push(sense);
                if sense.0 != 6 {
                    return (granule, heard);
                }
            }
        }
    }
}

fn fill_of(number: u64) -> u8 {
    (number * 7 + 3).to_le_bytes()[0]
}

#[test]
fn full_pool_refuses_what_needs_space_and_serves_everything_else() {
    for shards in [1, 2] {
        Sim::new(21).run(async move |sim| {
            let (node, mut host) = furnished(&sim, shards).await;
            let before = node.pool().await.used;
            overcommit(&node).await;
            take_all_attentions(&mut host).await;
            host.address(1);
            take_all_attentions(&mut host).await;
            let (written, heard) = fill(&mut host).await;
            assert!(written > 50, "{written}");
            assert_eq!(heard, [SOFT_THRESHOLD, SOFT_THRESHOLD, NO_SPACE], "soft, hard, full: once each");
            // Reads, writes to allocated granules, and the thick volume continue to work.
            for granule in 0..written {
                assert_eq!(host.read(granule * GRANULE).await, [fill_of(granule); 512], "granule {granule}");
            }
            assert_eq!(host.read(written * GRANULE).await, [0; 512], "what was refused changed nothing");
            host.write(5 * GRANULE + 1, 0x55).await;
            host.address(0);
            for block in 0..BLOCKS {
                host.write(block, 0x11).await;
            }
            // Freed space can be allocated again.
            host.address(1);
            assert_eq!(host.try_write(written * GRANULE, 1).await, Err(NO_SPACE));
            host.write_same_unmap(0, GRANULE as u32).await.unwrap();
            assert_eq!(host.read(0).await, [0; 512]);
            host.write(written * GRANULE, 0x77).await;
            let space = volume(&node, "tank/thin").await.space.unwrap();
            assert_eq!((space.reclaimed, space.mapped), (Size::mib(1), Size::mib(written)));

            let codes = node.codes().await;
            for code in [event::POOL_FILLING, event::POOL_FULL, event::WRITE_REFUSED] {
                assert_eq!(codes.iter().filter(|told| **told == code).count(), 1, "{code}: {codes:?}");
            }
            node.hide("tank/thin").await;
            node.control.volumes.delete(&"tank/thin".parse().unwrap(), Removal::default()).await.unwrap();
            assert_eq!(node.pool().await.used, before, "deleting gives everything back");
            assert!(node.codes().await.contains(&event::POOL_RELIEVED));
        });
    }
}

#[test]
fn thin_unit_says_what_it_is_and_what_is_mapped() {
    Sim::new(22).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 1).await;
        overcommit(&node).await;
        take_all_attentions(&mut host).await;
        host.address(1);
        take_all_attentions(&mut host).await;
        host.write(3 * GRANULE, 1).await;
        // READ CAPACITY (16): LBPME and LBPRZ. VPD B2h: provisioning type 2, LBPU. GET LBA STATUS: a hole, then a
        // granule.
        let capacity = host.ask(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]).await.unwrap();
        assert_eq!(capacity[14] & 0xc0, 0xc0);
        let provisioning = host.ask(&[0x12, 1, 0xb2, 2, 0, 0]).await.unwrap();
        assert_eq!((provisioning[5] & 0x80, provisioning[6] & 7), (0x80, 2));
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[12]) = (0x9e, 0x12, 2);
        let status = host.ask(&cdb).await.unwrap();
        let descriptor = |at: usize| {
            let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
            (number(&status[at..at + 8]), number(&status[at + 8..at + 12]), status[at + 12] & 0xf)
        };
        assert_eq!((descriptor(8), descriptor(24)), ((0, 3 * GRANULE, 1), (3 * GRANULE, GRANULE, 0)));
        // A thick volume reports no provisioning.
        host.address(0);
        let capacity = host.ask(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]).await.unwrap();
        assert_eq!(capacity[14] & 0x80, 0);
    });
}

#[test]
fn snapshot_under_load_is_one_instant_and_its_clone_shows_that() {
    for seed in 31..35 {
        Sim::new(seed).run(async move |sim| {
            let (node, mut host) = furnished(&sim, 1 + usize::try_from(seed % 2).unwrap()).await;
            let (submitted, answered, stop) =
                (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(false)));
            let counters = (submitted.clone(), answered.clone(), stop.clone());
            let (post, ended) = shard::mailbox::channel();
            sim.spawn(async move {
                let (submitted, answered, stop) = counters;
                while !stop.get() {
                    let number = submitted.get();
                    submitted.set(number + 1);
                    host.write(number % BLOCKS, fill_of(number)).await;
                    answered.set(number + 1);
                }
                assert!(post.send(host).is_ok());
            });
            sim.sleep(Duration::from_millis(200 + sim.random_below(100))).await;
            let before = answered.get();
            let new = NewSnapshots {
                volumes: vec!["tank/vm1".parse().unwrap()],
                name: name("noon"),
                lock: SnapshotLock::Unlocked.into(),
            };
            node.control.snapshots.create(new).await.unwrap();
            let after = submitted.get();
            sim.sleep(Duration::from_millis(200)).await;
            stop.set(true);
            let mut host = ended.receive().await.unwrap();
            assert!(before > 0 && submitted.get() > after, "{before} {after}: it was under load");
            let clone = NewClone {
                snapshot: snapshot("tank/vm1@noon"),
                name: "tank/copy".parse().unwrap(),
                thick: false,
                zero_detection: false,
            };
            node.control.snapshots.create_clone(clone).await.unwrap();
            node.show_as("tank/copy", 1).await;
            take_all_attentions(&mut host).await;
            host.address(1);
            take_all_attentions(&mut host).await;
            let mut shown = Vec::new();
            for block in 0..BLOCKS {
                shown.push(host.read(block).await);
            }
            let content = |writes: u64| {
                let last = move |block: u64| (block..writes).step_by(BLOCKS as usize).last();
                (0..BLOCKS).map(move |block| [last(block).map_or(0, fill_of); 512])
            };
            let instant = (before..=after).find(|&writes| {
                content(writes).eq(shown.iter().map(|block| <[u8; 512]>::try_from(&block[..]).unwrap()))
            });
            assert!(instant.is_some(), "no instant between write {before} and {after} looks like the clone");
            // Both volumes are independent.
            host.write(0, 0xcc).await;
            host.address(0);
            assert_ne!(host.read(0).await, [0xcc; 512]);
        });
    }
}

#[test]
fn roll_back_waits_for_sessions_or_tells_them() {
    Sim::new(41).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 2).await;
        for block in 0..BLOCKS {
            host.write(block, 1).await;
        }
        let new = NewSnapshots {
            volumes: vec!["tank/vm1".parse().unwrap()],
            name: name("noon"),
            lock: SnapshotLock::Unlocked.into(),
        };
        node.control.snapshots.create(new).await.unwrap();
        for block in 0..BLOCKS {
            host.write(block, 2).await;
        }
        let back = |force| RollBack { snapshot: snapshot("tank/vm1@noon"), force, confirmed: true };
        let refusal = node.control.snapshots.roll_back(back(false)).await.unwrap_err();
        assert_eq!(refusal.code, code::VOLUME_BUSY, "{refusal}");
        assert_eq!(host.read(7).await, [2; 512]);
        node.control.snapshots.roll_back(back(true)).await.unwrap();
        assert_eq!(host.try_write(0, 9).await, Err(MEDIUM_CHANGED));
        for block in 0..BLOCKS {
            assert_eq!(host.read(block).await, [1; 512], "block {block}");
        }
        let refusal = node.control.volumes.delete(&"tank/vm1".parse().unwrap(), Removal::default()).await.unwrap_err();
        assert_eq!(refusal.code, code::VOLUME_IN_USE, "{refusal}");
        node.hide("tank/vm1").await;
        let refusal = node.control.volumes.delete(&"tank/vm1".parse().unwrap(), Removal::default()).await.unwrap_err();
        assert_eq!(refusal.code, code::VOLUME_HAS_SNAPSHOTS);
        assert_eq!(refusal.message, "volume tank/vm1 has the snapshots noon");
        node.control.snapshots.delete(&snapshot("tank/vm1@noon")).await.unwrap();
        node.control.volumes.delete(&"tank/vm1".parse().unwrap(), Removal::default()).await.unwrap();
    });
}

#[test]
fn check_looks_at_everything_and_dump_says_it() {
    Sim::new(46).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 2).await;
        overcommit(&node).await;
        take_all_attentions(&mut host).await;
        host.address(1);
        take_all_attentions(&mut host).await;
        for granule in 0..12 {
            host.write(granule * GRANULE, 1).await;
        }
        let new = NewSnapshots {
            volumes: vec!["tank/thin".parse().unwrap()],
            name: name("kept"),
            lock: SnapshotLock::Unlocked.into(),
        };
        node.control.snapshots.create(new).await.unwrap();
        for granule in 0..3 {
            host.write(granule * GRANULE, 2).await;
        }
        let checked = node.control.pools.check(&name("tank"), false).await.unwrap();
        assert_eq!(
            (checked.findings.len(), checked.granules),
            (0, 12 + 3),
            "what was written, and anew after the snapshot"
        );
        assert_eq!(node.control.pools.check(&name("tank"), true).await.unwrap(), checked, "nothing was to be repaired");
        let dumped = node.control.pools.dump(&name("tank")).await.unwrap();
        assert!(dumped.starts_with("pool ") && dumped.contains("kept") && dumped.contains("thin"), "{dumped}");
        assert_eq!(host.read(0).await, [2; 512]);
    });
}

#[test]
fn families_are_whole_after_a_restart() {
    Sim::new(51).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 2).await;
        overcommit(&node).await;
        take_all_attentions(&mut host).await;
        host.address(1);
        take_all_attentions(&mut host).await;
        for granule in 0..20 {
            host.write(granule * GRANULE, 1).await;
        }
        let volumes = ["tank/vm1", "tank/thin"].map(|name| name.parse().unwrap()).to_vec();
        let lock = SnapshotLock::Permanent;
        let made = node
            .control
            .snapshots
            .create(NewSnapshots { volumes, name: name("both"), lock: lock.into() })
            .await
            .unwrap();
        assert!(made[0].set.is_some() && made[0].set == made[1].set, "{made:?}");
        for granule in 0..10 {
            host.write(granule * GRANULE, 2).await;
        }
        let once = NewSnapshots {
            volumes: vec!["tank/thin".parse().unwrap()],
            name: name("later"),
            lock: SnapshotLock::Unlocked.into(),
        };
        node.control.snapshots.create(once).await.unwrap();
        for granule in 5..15 {
            host.write(granule * GRANULE, 3).await;
        }
        node.control.snapshots.delete(&snapshot("tank/thin@later")).await.unwrap();
        let refusal = node.control.snapshots.delete(&snapshot("tank/thin@both")).await.unwrap_err();
        assert_eq!(refusal.to_string(), "snapshot tank/thin@both is locked permanently; it cannot be deleted before");
        while node.control.snapshots.list().await.unwrap().len() > 2 {
            sim.sleep(Duration::from_millis(50)).await;
        }
        let before = (node.control.snapshots.list().await.unwrap(), volume(&node, "tank/thin").await.space.unwrap());
        assert!(before.0.iter().all(|snapshot| snapshot.state == SnapshotState::Available));
        assert_eq!(before.1.mapped, Size::mib(20));

        let node = node.restarted(1).await;
        let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
        host.address(1);
        take_all_attentions(&mut host).await;
        for granule in 0..20 {
            let wanted = if (5..15).contains(&granule) { 3 } else { 1 + u8::from(granule < 5) };
            assert_eq!(host.read(granule * GRANULE).await, [wanted; 512], "granule {granule}");
        }
        let space = volume(&node, "tank/thin").await.space.unwrap();
        assert_eq!((space.mapped, space.snapshots), (before.1.mapped, 1));
        let names: Vec<_> =
            node.control.snapshots.list().await.unwrap().into_iter().map(|one| (one.name, one.lock)).collect();
        assert_eq!(names, before.0.into_iter().map(|one| (one.name, one.lock)).collect::<Vec<_>>());
        node.control
            .snapshots
            .roll_back(RollBack { snapshot: snapshot("tank/thin@both"), force: true, confirmed: true })
            .await
            .unwrap();
        take_all_attentions(&mut host).await;
        for granule in 0..20 {
            assert_eq!(host.read(granule * GRANULE).await, [1; 512], "granule {granule}");
        }
    });
}
