//! Policies of volumes, changed while online: acknowledgement, limits, and persistence.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{BLOCKS, Node, furnished, name};
use control::request::{NewClone, NewSnapshots, VolumeSettings};
use model::{Refusal, Size, SnapshotLock, VolumeName, VolumePolicy, VolumeReport, WritePolicy, code};
use shard::World;
use sim::Sim;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const MODE_CHANGED: (u8, u8, u8) = (6, 0x2a, 0x01);

fn vm1() -> VolumeName {
    "tank/vm1".parse().unwrap()
}

async fn set(node: &Node, pairs: &[(&str, &str)]) -> Result<VolumeReport, Refusal> {
    let settings = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    node.control.volumes.set(&vm1(), VolumeSettings { settings }).await
}

/// Returns WCE of the caching page, by MODE SENSE (6).
async fn write_cache(host: &mut Host) -> bool {
    let page = host.ask(&[0x1a, 0x08, 0x08, 0, 64, 0]).await.unwrap();
    assert_eq!(page[4] & 0x3f, 0x08);
    page[6] & 0x04 != 0
}

fn fill_of(number: u64) -> u8 {
    (number * 7 + 3).to_le_bytes()[0]
}

#[test]
fn policies_change_under_load_and_no_write_is_lost() {
    for seed in 61..64 {
        Sim::new(seed).run(async move |sim| {
            let (node, mut host) = furnished(&sim, 1 + usize::try_from(seed % 2).unwrap()).await;
            let (stop, written) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0_u64)));
            let (post, ended) = shard::mailbox::channel();
            let seen = (stop.clone(), written.clone());
            sim.spawn(async move {
                let (stop, written) = seen;
                let mut told = 0;
                while !stop.get() {
                    let number = written.get();
                    match host.try_write(number % BLOCKS, fill_of(number)).await {
                        Ok(()) => written.set(number + 1),
                        Err(sense) => {
                            assert_eq!(sense, MODE_CHANGED);
                            told += 1;
                        }
                    }
                    if number % 5 == 0 && number > 0 {
                        let block = (number - 1) % BLOCKS;
                        let read = host.try_read(block).await;
                        assert!(
                            matches!(&read, Ok(data) if data[..] == [fill_of(number - 1); 512])
                                || read == Err(MODE_CHANGED),
                            "block {block}: {read:?}"
                        );
                        told += u32::from(read.is_err());
                    }
                }
                assert!(post.send((host, told)).is_ok());
            });
            for policy in [
                &[("write-policy", "back-volatile"), ("read-ahead", "64KiB")][..],
                &[("cache-share", "0"), ("priority", "500")],
                &[("write-policy", "through"), ("guarantee-iops", "100")],
                &[("write-policy", "back-volatile"), ("cache-share", "1000"), ("guarantee-iops", "off")],
            ] {
                set(&node, policy).await.unwrap();
                let before = written.get();
                sim.sleep(Duration::from_millis(150)).await;
                assert!(written.get() > before, "hosts go on");
            }
            let refusal = set(&node, &[("write-policy", "back"), ("iops", "10")]).await.unwrap_err();
            assert_eq!(refusal.code, code::POLICY_IMPOSSIBLE);
            assert_eq!(refusal.message, "volume tank/vm1 cannot use write-back: pool tank has no log device");
            stop.set(true);
            let (mut host, told) = ended.receive().await.unwrap();
            while host.test_unit_ready().await.is_some() {}
            assert!((2..=3).contains(&told), "each change of WCE is told once: {told}");
            assert!(write_cache(&mut host).await);
            let report = node.control.volumes.report(&vm1()).await.unwrap();
            let policy = report.policy.unwrap();
            assert_eq!(
                (policy.write, policy.iops),
                (WritePolicy::BackVolatile, None),
                "what was refused changed nothing"
            );

            // A clean end destages what was only in memory, and the policy is restored.
            let all = written.get();
            let node = node.restarted(1).await;
            let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
            while host.test_unit_ready().await.is_some() {}
            for block in 0..BLOCKS.min(all) {
                let last = (block..all).step_by(BLOCKS as usize).last().unwrap();
                assert_eq!(host.read(block).await, [fill_of(last); 512], "block {block}");
            }
            assert!(write_cache(&mut host).await);
            assert_eq!(node.control.volumes.report(&vm1()).await.unwrap().policy, Some(policy));
            set(&node, &VolumePolicy::default().settings().each_ref().map(|(key, value)| (*key, &value[..])))
                .await
                .unwrap();
            assert!(node.control.core.state().policies.is_empty(), "what is as always is not remembered");
        });
    }
}

#[test]
fn snapshot_holds_what_was_acknowledged_from_memory() {
    Sim::new(71).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 1).await;
        set(&node, &[("write-policy", "back-volatile")]).await.unwrap();
        while host.test_unit_ready().await.is_some() {}
        for block in 0..BLOCKS {
            host.write(block, 9).await;
        }
        let dirty = node.control.volumes.report(&vm1()).await.unwrap().cache.unwrap().dirty;
        assert!(dirty > Size::ZERO, "it is in memory alone");
        let new = NewSnapshots { volumes: vec![vm1()], name: name("noon"), lock: SnapshotLock::Unlocked.into() };
        node.control.snapshots.create(new).await.unwrap();
        host.write(0, 1).await;
        let snapshot = "tank/vm1@noon".parse().unwrap();
        let name = "tank/copy".parse().unwrap();
        node.control
            .snapshots
            .create_clone(NewClone { snapshot, name, thick: true, zero_detection: false })
            .await
            .unwrap();
        node.show_as("tank/copy", 1).await;
        while host.test_unit_ready().await.is_some() {}
        host.address(1);
        while host.test_unit_ready().await.is_some() {}
        for block in 0..BLOCKS {
            assert_eq!(host.read(block).await, [9; 512], "block {block}");
        }
        let policy = node.control.volumes.report(&vm1()).await.unwrap().policy.unwrap();
        assert_eq!(policy.write, WritePolicy::BackVolatile, "it is written as before");
    });
}

#[test]
fn limits_hold_at_once_and_hits_are_counted() {
    Sim::new(81).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 1).await;
        host.write(0, 1).await;
        set(&node, &[("iops", "50"), ("burst", "20ms")]).await.unwrap();
        let begun = sim.now();
        for _ in 0..100 {
            assert_eq!(host.read(0).await, [1; 512]);
        }
        let took = sim.now().since(begun);
        assert!((1_800..2_200).contains(&took.as_millis()), "{took:?} for a hundred at fifty in a second");
        set(&node, &[("iops", "off")]).await.unwrap();
        let begun = sim.now();
        for _ in 0..100 {
            host.read(0).await;
        }
        assert!(sim.now().since(begun) < Duration::from_millis(500));
        let cache = node.control.volumes.report(&vm1()).await.unwrap().cache.unwrap();
        assert!(cache.hit_percent() > Some(90), "{cache:?}");
    });
}

#[test]
fn removable_medium_is_ejected_and_loaded_and_stays_removable_after_a_restart() {
    const READY: [u8; 6] = [0; 6];
    let (eject, load) = ([0x1b, 0, 0, 0, 2, 0], [0x1b, 0, 0, 0, 3, 0]);
    Sim::new(91).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 1).await;
        assert_eq!(host.ask(&eject).await, Err((5, 0x24, 0)), "nobody has said that it may be");
        set(&node, &[("removable", "yes")]).await.unwrap();
        assert_eq!(host.ask(&READY).await, Err((6, 0x3f, 0x03)), "INQUIRY DATA HAS CHANGED");
        assert_eq!(host.ask(&[0x12, 0, 0, 0, 96, 0]).await.unwrap()[1], 0x80, "RMB");
        host.write(5, 0x51).await;
        host.ask(&eject).await.unwrap();
        assert_eq!(host.try_read(5).await, Err((2, 0x3a, 0)), "MEDIUM NOT PRESENT");
        host.ask(&load).await.unwrap();
        assert_eq!(host.read(5).await, [0x51; 512]);
        host.ask(&eject).await.unwrap();
        let node = node.restarted(1).await;
        let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
        host.take_attention().await;
        assert_eq!(host.read(5).await, [0x51; 512], "who starts finds it in its place");
        host.ask(&eject).await.unwrap();
        set(&node, &[("removable", "no")]).await.unwrap();
        assert_eq!(host.ask(&READY).await, Err((6, 0x3f, 0x03)));
        assert_eq!(host.read(5).await, [0x51; 512]);
    });
}
