//! Disks that were given up and return alone: their content is old, and is never presented as current.

use crate::array::OPEN;
use crate::care::uncached;
use crate::host::{Host, Login};
use crate::node::{Node, furnished_at, name};
use control::request::{ImportPool, Replace};
use model::{Level, PoolState, code, event};
use shard::World;
use sim::{DiskFaults, DiskHandle, Sim};
use std::time::Duration;

const MIRRORS: [Level; 2] = [Level::Raid1, Level::Raid10];

/// Way in which the first half of the mirrors is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Removed by the operator.
    ByOrder,
    /// Fails every request.
    Errs,
    /// Missing at a start.
    IsAway,
}

/// Returns the members without which the others have all data, and those others.
fn halves(disks: &[DiskHandle], level: Level) -> (Vec<usize>, Vec<usize>) {
    match level {
        Level::Raid1 => ((0..1).collect(), (1..disks.len()).collect()),
        _ => (0..disks.len()).partition(|member| member % 2 == 0),
    }
}

fn import(force: bool) -> ImportPool {
    ImportPool { force, ..ImportPool::default() }
}

async fn host_of(sim: &Sim) -> Host {
    let mut host = Host::login(sim, &Login::of(OPEN, 0)).await;
    host.take_attention().await;
    host
}

/// Creates a pool whose first half was given up before its last write, with only that half attached.
async fn with_old_disks_alone(sim: &Sim, level: Level, loss: Loss) -> (Node, Vec<DiskHandle>) {
    let (mut node, disks, mut host) = furnished_at(sim, 1, level, (&[], false)).await;
    let (old, current) = halves(&disks, level);
    host.write(0, 0xaa).await;
    for &member in &old {
        match loss {
            Loss::ByOrder => drop(node.control.pools.fail_disk(&name(&format!("d{member}"))).await.unwrap()),
            Loss::Errs | Loss::IsAway => disks[member].fail(),
        }
    }
    if matches!(loss, Loss::IsAway) {
        drop(host);
        node = node.revived(1, None).await;
        host = host_of(sim).await;
    }
    host.write(0, 0xbb).await;
    drop(host);
    old.iter().for_each(|&member| disks[member].revive());
    current.iter().for_each(|&member| disks[member].fail());
    (node.revived(1, None).await, disks)
}

/// Resynchronizes the disks that were given up, where that does not happen automatically.
async fn until_healthy(sim: &Sim, node: &Node, old: &[usize]) {
    for member in old {
        let disk = name(&format!("d{member}"));
        let replace = Replace { replacement: disk.clone(), force: false, confirmed: false };
        // A disk that was only missing is being rebuilt already.
        let _ = node.control.pools.replace_disk(&disk, replace).await;
    }
    for _ in 0..600 {
        if node.state().await == PoolState::Healthy {
            return;
        }
        sim.sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", node.pool().await);
}

#[test]
fn old_half_of_a_mirror_is_not_opened_alone_and_the_current_one_brings_the_pool_back() {
    for (seed, level) in (700..).zip(MIRRORS) {
        for loss in [Loss::ByOrder, Loss::Errs, Loss::IsAway] {
            Sim::new(seed).run(async move |sim| {
                let (node, disks) = with_old_disks_alone(&sim, level, loss).await;
                assert_eq!(node.state().await, PoolState::Missing, "{level:?} {loss:?}");
                let refusal = node.control.pools.import(&name("tank"), import(false)).await.unwrap_err();
                // In a half of several pairs, the disk that was lost last knows of the others.
                let expected = [code::POOL_OUTDATED, code::POOL_INCOMPLETE];
                assert!(expected[..if level == Level::Raid1 { 1 } else { 2 }].contains(&refusal.code), "{refusal}");
                let told = node.control.reconciler.events(control::EventFilter::default()).await;
                let why = told.iter().find(|told| told.code == event::POOL_UNOPENED).expect("an event says why");
                assert!(why.message.contains(&refusal.message), "{}", why.message);
                let (_, current) = halves(&disks, level);
                current.iter().for_each(|&member| disks[member].revive());
                node.control.pools.import(&name("tank"), import(false)).await.unwrap();
                let mut host = host_of(&sim).await;
                assert_eq!(host.read(0).await[0], 0xbb, "{level:?} {loss:?}");
                // The old half is resynchronized, and that is recorded: either half may be late at the next start.
                until_healthy(&sim, &node, &halves(&disks, level).0).await;
                drop(host);
                current.iter().for_each(|&member| disks[member].fail());
                let node = node.revived(1, None).await;
                assert_eq!(node.state().await, PoolState::Degraded);
                let mut host = host_of(&sim).await;
                assert_eq!(host.read(0).await[0], 0xbb, "{level:?} {loss:?}");
            });
        }
    }
}

#[test]
fn operator_who_accepts_the_loss_goes_on_with_old_disks_and_is_asked_once() {
    Sim::new(710).run(async move |sim| {
        let (node, _disks) = with_old_disks_alone(&sim, Level::Raid1, Loss::ByOrder).await;
        node.control.pools.import(&name("tank"), import(true)).await.unwrap();
        let mut host = host_of(&sim).await;
        assert_eq!(host.read(0).await[0], 0xaa);
        host.write(0, 0xcc).await;
        drop(host);
        let node = node.revived(1, None).await;
        assert_eq!(node.state().await, PoolState::Degraded);
        let mut host = host_of(&sim).await;
        assert_eq!(host.read(0).await[0], 0xcc);
    });
}

#[test]
fn disk_that_was_copied_to_a_spare_and_let_go_of_is_not_opened_alone() {
    Sim::new(720).run(async move |sim| {
        let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid1, (&["s0"], false)).await;
        uncached(&node).await;
        host.write(0, 0xaa).await;
        disks[1].set_faults(DiskFaults { read_error_per_million: 1_000_000, ..DiskFaults::default() });
        for round in 0..100_000_u64 {
            host.try_read(round % 64).await.unwrap();
            sim.sleep(Duration::from_millis(3)).await;
            if round % 50 == 0 && node.codes().await.contains(&event::MEMBER_COPIED) {
                break;
            }
        }
        assert!(node.codes().await.contains(&event::MEMBER_COPIED));
        host.write(0, 0xbb).await;
        drop(host);
        disks[1].set_faults(DiskFaults::default());
        (0..disks.len()).filter(|disk| *disk != 1).for_each(|disk| disks[disk].fail());
        let node = node.revived(1, None).await;
        assert_eq!(node.state().await, PoolState::Missing, "it holds what it held when it was let go of");
        let refusal = node.control.pools.import(&name("tank"), import(false)).await.unwrap_err();
        assert_eq!(refusal.code, code::POOL_OUTDATED, "{refusal}");
    });
}
