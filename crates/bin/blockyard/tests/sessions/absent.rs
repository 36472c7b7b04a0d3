//! LUNs of a pool that is not open: hosts keep seeing them, wait, and use them afterwards without a rescan.

use crate::array::OPEN;
use crate::host::{Host, Login, POWER_ON, REPORTED_LUNS_CHANGED};
use crate::node::{Node, furnished_at, furnished_with, name};
use control::request::{ImportPool, NewVolume, VolumeSettings};
use model::{Level, MemberState, PoolState, VolumeState, event};
use shard::World;
use sim::{DiskHandle, Sim};
use std::time::Duration;

const BECOMING_READY: (u8, u8, u8) = (2, 4, 1);
const NEEDS_OPERATOR: (u8, u8, u8) = (2, 4, 3);
const READY: [u8; 6] = [0; 6];
const REPORT_LUNS: [u8; 12] = [0xA0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
const READ_KEYS: [u8; 10] = [0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0];
const GOOD: (u8, Option<(u8, u8, u8)>) = (0, None);

/// Returns everything that a host can query of a unit without its blocks.
async fn told(host: &mut Host) -> Vec<Vec<u8>> {
    let mut all = vec![host.ask(&REPORT_LUNS).await.unwrap(), host.ask(&[0x12, 0, 0, 0, 96, 0]).await.unwrap()];
    let pages = host.ask(&[0x12, 1, 0, 0, 255, 0]).await.unwrap();
    for page in pages[4..4 + usize::from(pages[3])].iter().copied() {
        all.push(host.ask(&[0x12, 1, page, 1, 0, 0]).await.unwrap());
    }
    all.push(host.ask(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap());
    all.push(host.ask(&[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]).await.unwrap());
    all.push(host.ask(&[0x5A, 0, 0x3F, 0, 0, 0, 0, 1, 0, 0]).await.unwrap());
    all.push(host.ask(&[0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).await.unwrap());
    all
}

fn fail_all(disks: &[DiskHandle]) {
    disks.iter().for_each(DiskHandle::fail);
}

fn revive_all(disks: &[DiskHandle]) {
    disks.iter().for_each(DiskHandle::revive);
}

/// Runs one round of the daemon's own maintenance.
async fn round(node: &Node) {
    node.control.reconciler.handle_events(Vec::new()).await.unwrap();
}

/// Registers the key 7 by PERSISTENT RESERVE OUT, with or without persistence through power loss.
async fn register(host: &mut Host, aptpl: bool) {
    let mut list = [0_u64.to_be_bytes(), 7_u64.to_be_bytes()].concat();
    list.extend([0, 0, 0, 0, u8::from(aptpl), 0, 0, 0]);
    assert_eq!(host.status_of(&[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).await, GOOD);
}

async fn keys(host: &mut Host) -> Vec<u8> {
    host.ask(&READ_KEYS).await.unwrap()[8..].to_vec()
}

#[test]
fn host_that_logs_in_while_the_pool_waits_finds_its_disk_and_uses_it_afterwards() {
    for shards in [1, 3] {
        Sim::new(31).run(async move |sim| {
            let (node, disks, mut host) = furnished_with(&sim, shards, &[], false).await;
            host.write(3, 0x5A).await;
            register(&mut host, true).await;
            let before = told(&mut host).await;
            drop(host);
            fail_all(&disks);
            let node = node.restarted(shards).await;
            let volume = node.control.volumes.report(&"tank/vm1".parse().unwrap()).await.unwrap();
            assert_eq!(volume.state, VolumeState::Missing);
            assert_eq!(node.control.volumes.list().await.unwrap(), std::slice::from_ref(&volume));
            let pool = node.pool().await;
            assert_eq!(
                (pool.state, pool.waiting.map(|waiting| waiting.needs_operator)),
                (PoolState::Missing, Some(false))
            );
            let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
            host.take_attention().await;
            assert_eq!(told(&mut host).await, before, "nobody needs a device to tell this");
            for cdb in [&READY[..], &READ_KEYS, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
            {
                assert_eq!(host.ask(cdb).await, Err(BECOMING_READY), "{cdb:x?}");
            }
            assert_eq!(host.try_write(3, 1).await, Err(BECOMING_READY));
            round(&node).await;
            let waiting = node.pool().await.waiting.unwrap();
            assert_eq!(waiting.disks.len(), 4, "{waiting:?}");
            assert!(waiting.reason.contains("d0"), "{waiting:?}");

            revive_all(&disks);
            round(&node).await;
            assert_eq!(node.state().await, PoolState::Healthy);
            assert_eq!(host.test_unit_ready().await, Some(POWER_ON), "and not that the list of LUNs has changed");
            assert_eq!(host.test_unit_ready().await, None);
            assert_eq!(host.read(3).await[0], 0x5A);
            assert_eq!(keys(&mut host).await, 7_u64.to_be_bytes());
            assert_eq!(told(&mut host).await, before);
            assert_eq!(node.pool().await.waiting, None);
            host.write(3, 0x5B).await;
        });
    }
}

#[test]
fn pool_opens_degraded_only_when_it_has_waited_and_takes_the_late_member_back() {
    for no_integrity in [false, true] {
        Sim::new(32).run(async move |sim| {
            let (node, disks, mut host) = furnished_with(&sim, 1, &[], no_integrity).await;
            host.write(1, 1).await;
            node.wait_for_disks("30s").await;
            drop(host);
            // No node could record any more that the member is missing.
            node.kill();
            disks[2].fail();
            let node = node.revived(1, None).await;
            round(&node).await;
            assert_eq!(node.state().await, PoolState::Missing, "30 s are not over");
            let waiting = node.pool().await.waiting.unwrap();
            assert_eq!(waiting.disks, [name("d2").to_string().parse().unwrap()]);
            assert!(waiting.degraded_in_s.is_some_and(|left| (25..=30).contains(&left)), "{waiting:?}");
            node.wait_for_disks("0s").await;
            round(&node).await;
            assert_eq!(node.state().await, PoolState::Degraded);
            let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
            host.take_attention().await;
            assert_eq!(host.read(1).await[0], 1);
            host.write(1, 2).await;

            disks[2].revive();
            round(&node).await;
            for _ in 0..600 {
                if node.state().await == PoolState::Healthy {
                    break;
                }
                sim.sleep(Duration::from_millis(100)).await;
            }
            let pool = node.pool().await;
            assert_eq!((pool.state, pool.groups[0].members[2].state), (PoolState::Healthy, MemberState::InSync));
            assert!(node.codes().await.contains(&event::DISK_RETURNED));
            disks[0].fail();
            assert_eq!(host.read(1).await[0], 2, "it has what it had missed");
        });
    }
}

#[test]
fn pool_whose_disks_all_vanish_for_a_minute_comes_back_with_everything_acknowledged() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        for (shards, no_integrity) in [(1, false), (3, true)] {
            Sim::new(33).run(async move |sim| {
                let kind = format!("{level}, no_integrity {no_integrity}");
                let (node, disks, mut host) = furnished_at(&sim, shards, level, (&[], no_integrity)).await;
                for block in 0..16 {
                    host.write(block * 9, 0x10 + block as u8).await;
                }
                register(&mut host, false).await;
                let before = told(&mut host).await;
                fail_all(&disks);
                let mut refused = Vec::new();
                for second in 0..60 {
                    refused.push(host.status_of(&[0x2A, 0, 0, 0, 0, 200, 0, 0, 1, 0], &[second; 512]).await);
                    round(&node).await;
                    sim.sleep(Duration::from_secs(1)).await;
                }
                // TASK ABORTED where the pool was closed below the command, and once the attention of every new nexus.
                let again = [(2, Some(BECOMING_READY)), (2, Some((6, 0x29, 0))), (0x40, None)];
                let waits = |told: &_| again.contains(told);
                assert!(refused.iter().all(waits), "{kind}: {refused:?}");
                assert_eq!(node.state().await, PoolState::Missing, "{kind}");
                assert_eq!(told(&mut host).await, before, "{kind}");
                revive_all(&disks);
                round(&node).await;
                assert_eq!(node.state().await, PoolState::Healthy, "{kind}: {:?}", node.pool().await.waiting);
                assert_eq!(host.test_unit_ready().await, Some(POWER_ON), "{kind}");
                assert_eq!(host.test_unit_ready().await, None, "{kind}");
                for block in 0..16 {
                    assert_eq!(host.read(block * 9).await[0], 0x10 + block as u8, "{kind}: block {block}");
                }
                host.write(200, 1).await;
                assert_eq!(keys(&mut host).await, 7_u64.to_be_bytes(), "{kind}: the daemon did not end");
                assert_eq!(node.control.presentations.list().len(), 1, "{kind}");
            });
        }
    }
}

#[test]
fn mirror_half_that_was_given_up_before_all_vanished_is_not_served_alone() {
    Sim::new(34).run(async |sim| {
        let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid1, (&[], false)).await;
        node.wait_for_disks("0s").await;
        host.write(1, 1).await;
        disks[0].fail();
        host.write(1, 2).await;
        assert_eq!(node.state().await, PoolState::Degraded);
        fail_all(&disks);
        host.try_write(1, 3).await.unwrap_err();
        round(&node).await;
        assert_eq!(node.state().await, PoolState::Missing);
        disks[0].revive();
        round(&node).await;
        round(&node).await;
        let waiting = node.pool().await.waiting.unwrap();
        assert!(!waiting.needs_operator && waiting.reason.contains("out of date"), "{waiting:?}");
        let refused = node.control.pools.import(&name("tank"), ImportPool::default()).await.unwrap_err();
        assert!(refused.hint.contains("--force"), "{refused}");
        disks[1].revive();
        round(&node).await;
        round(&node).await;
        assert_eq!(node.state().await, PoolState::Degraded);
        host.take_attention().await;
        assert_ne!(host.read(1).await[0], 1, "what was acknowledged is newer");
    });
}

#[test]
fn pool_that_another_node_has_needs_an_operator() {
    Sim::new(35).run(async |sim| {
        let (node, disks, host) = furnished_with(&sim, 1, &[], false).await;
        drop(host);
        fail_all(&disks);
        let node = node.restarted(1).await;
        let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
        host.take_attention().await;
        assert_eq!(host.ask(&READY).await, Err(BECOMING_READY));
        let other = Node::start_second(&sim).await;
        revive_all(&disks);
        for (disk, handle) in ["d0", "d1", "d2", "d3"].iter().zip(&disks) {
            other.attach_disk(disk, handle).await;
        }
        let import = ImportPool { force: true, ..Default::default() };
        other.control.pools.import(&name("tank"), import).await.unwrap();
        round(&node).await;
        let waiting = node.pool().await.waiting.unwrap();
        assert!(waiting.needs_operator, "{waiting:?}");
        assert_eq!(host.ask(&READY).await, Err(NEEDS_OPERATOR));
        assert!(node.control.status.report().await.unwrap().summary.contains("tank"));
    });
}

#[test]
fn stand_in_tells_thin_and_encrypted_volumes_as_they_are() {
    for block_bytes in [512, 4096] {
        Sim::new(36).run(async move |sim| {
            let (node, disks, mut first) = furnished_with(&sim, 1, &[], false).await;
            let mut request = NewVolume::new("tank/thin".parse().unwrap(), Some(crate::node::SIZE));
            request.provision = Some(model::Provision::Thin);
            request.block_bytes = Some(block_bytes);
            request.encrypted = block_bytes == 512;
            node.control.volumes.create(request).await.unwrap();
            node.show_as("tank/thin", 5).await;
            let mut host = Host::login(&sim, &Login::of(OPEN, 1)).await;
            host.address(5);
            host.take_attention().await;
            let before = told(&mut host).await;
            fail_all(&disks);
            assert_eq!(first.test_unit_ready().await, Some(REPORTED_LUNS_CHANGED), "there is a second volume");
            assert_eq!(first.try_write(1, 1).await, Err(BECOMING_READY));
            round(&node).await;
            assert_eq!(node.state().await, PoolState::Missing);
            host.take_attention().await;
            assert_eq!(host.ask(&READY).await, Err(BECOMING_READY));
            assert_eq!(told(&mut host).await, before);
        });
    }
}

#[test]
fn writes_that_were_acknowledged_from_memory_are_not_lost_without_a_word() {
    Sim::new(37).run(async |sim| {
        let (node, disks, mut host) = furnished_with(&sim, 1, &[], false).await;
        let settings = [("write-policy".to_owned(), "back-volatile".to_owned())].into();
        node.control.volumes.set(&"tank/vm1".parse().unwrap(), VolumeSettings { settings }).await.unwrap();
        while host.test_unit_ready().await.is_some() {}
        host.write(1, 1).await;
        assert_eq!(host.ask(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await, Ok(Vec::new()), "flushed");
        host.write(1, 2).await;
        fail_all(&disks);
        host.ask(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap_err();
        round(&node).await;
        assert_eq!(node.state().await, PoolState::Missing);
        assert!(node.codes().await.contains(&event::UNFLUSHED_LOST), "{:?}", node.codes().await);
        revive_all(&disks);
        round(&node).await;
        assert_eq!(node.state().await, PoolState::Healthy);
        while host.test_unit_ready().await.is_some() {}
        assert_eq!(host.read(1).await[0], 1, "what was flushed is there");
    });
}
