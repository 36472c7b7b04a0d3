//! Pools that become larger while hosts use them, and what a kill or a power cut in the midst of that leaves.

use crate::host::{Host, Login};
use crate::node::{BLOCKS, MEMBERS, Node, furnished_with, name};
use control::request::{GrowPool, NewGroup, NewPool, NewVolume, Replace};
use model::{Level, PoolState, Size, code, event};
use shard::World;
use sim::{Crash, Sim};
use std::time::Duration;

const LARGER: [&str; 4] = ["e0", "e1", "e2", "e3"];

fn fill(block: u64) -> u8 {
    (block * 5 + 3).to_le_bytes()[0]
}

async fn write_all(host: &mut Host) {
    for block in 0..BLOCKS {
        host.write(block, fill(block)).await;
    }
}

async fn check_all(host: &mut Host) {
    while host.test_unit_ready().await.is_some() {}
    for block in 0..BLOCKS {
        assert_eq!(host.read(block).await, [fill(block); 512], "block {block}");
    }
}

async fn until_healthy(sim: &Sim, node: &Node) {
    while node.state().await != PoolState::Healthy {
        sim.sleep(Duration::from_millis(100)).await;
    }
}

/// Puts a disk of 160 MiB into the place of each member, one after the other.
async fn replace_all(sim: &Sim, node: &Node) {
    for (member, larger) in MEMBERS.iter().zip(LARGER) {
        node.add_disk(larger, 160).await;
        let by = Replace { replacement: name(larger), force: true, confirmed: true };
        node.control.replace_disk(&name(member), by).await.unwrap();
        until_healthy(sim, node).await;
    }
}

async fn host_of(sim: &Sim) -> Host {
    Host::login(sim, &Login::of(crate::array::OPEN, 0)).await
}

#[test]
fn pool_whose_disks_were_all_replaced_by_larger_ones_grows_while_hosts_use_it() {
    Sim::new(60).run(async move |sim| {
        let (node, _disks, mut host) = furnished_with(&sim, 2, &[], false).await;
        write_all(&mut host).await;
        let before = node.pool().await;
        let refused = node.control.grow_pool(&name("tank"), GrowPool::default()).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_FULL_SIZE);
        assert!(refused.message.contains("disk d0 has no more room"), "{refused}");

        replace_all(&sim, &node).await;
        let foretold = node.pool().await.groups[0].growth.expect("there is room");
        assert_eq!(node.pool().await.size, before.size, "nobody has asked for it yet");
        let pool = node.control.grow_pool(&name("tank"), GrowPool { group: Some(0) }).await.unwrap();
        assert_eq!(pool.size.bytes(), before.size.bytes() + foretold.bytes());
        assert!(foretold.bytes() > 200 << 20, "{foretold}");
        assert_eq!((pool.state, pool.groups[0].growth), (PoolState::Healthy, None));
        assert!(pool.groups[0].member_size > before.groups[0].member_size, "smaller disks do not fit any more");
        assert!(node.codes().await.contains(&event::POOL_GREW));
        check_all(&mut host).await;
        // A volume that only fits where the room is new.
        let size = Some(Size::new(pool.free().bytes() - (32 << 20)));
        node.control.create_volume(NewVolume::new("tank/vm2".parse().unwrap(), size)).await.unwrap();
        let refused = node.control.grow_pool(&name("tank"), GrowPool { group: Some(0) }).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_FULL_SIZE);
        let refused = node.control.grow_pool(&name("tank"), GrowPool { group: Some(1) }).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_UNKNOWN);

        let node = node.restarted(2).await;
        let again = node.pool().await;
        assert_eq!((again.size, again.state, again.volumes), (pool.size, PoolState::Healthy, 2));
        check_all(&mut host_of(&sim).await).await;
    });
}

#[test]
fn pool_does_not_grow_while_a_member_is_missing_or_without_checksums() {
    Sim::new(61).run(async move |sim| {
        let (node, _disks, _host) = furnished_with(&sim, 1, &[], false).await;
        replace_all(&sim, &node).await;
        node.control.fail_disk(&name("e1")).await.unwrap();
        assert_eq!(node.pool().await.groups[0].growth, None);
        let refused = node.control.grow_pool(&name("tank"), GrowPool::default()).await.unwrap_err();
        assert_eq!(refused.code, code::POOL_BUSY);
        assert!(refused.message.contains("disk e1 is not in step"), "{refused}");

        for disk in ["p0", "p1"] {
            node.add_disk(disk, 80).await;
        }
        let disks = vec![name("p0"), name("p1")];
        let groups = vec![NewGroup { level: Level::Raid1, chunk: None, no_integrity: true, disks }];
        let plain = NewPool { name: name("plain"), groups, force: false, spares: Vec::new(), spread: false };
        node.control.create_pool(plain).await.unwrap();
        let refused = node.control.grow_pool(&name("plain"), GrowPool::default()).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_FIXED);
        assert!(refused.message.contains("keeps no checksums"), "{refused}");
    });
}

/// Grows a pool and ends the daemon after so many microseconds; how much the pool has grown then.
async fn grow_and_end(sim: &Sim, after_us: u64, crash: Option<Crash>) -> u64 {
    let (node, disks, mut host) = furnished_with(sim, 1, &[], false).await;
    write_all(&mut host).await;
    replace_all(sim, &node).await;
    drop(disks);
    let before = node.pool().await;
    let foretold = before.groups[0].growth.expect("there is room");
    let (control, machine) = (node.control.clone(), node.machine());
    machine.spawn(async move { drop(control.grow_pool(&name("tank"), GrowPool::default()).await) });
    sim.sleep(Duration::from_micros(after_us)).await;
    let node = node.revived(1, crash).await;
    let grown = node.pool().await.size.bytes() - before.size.bytes();
    assert!(grown == 0 || grown == foretold.bytes(), "the old size or the new: {grown} more");
    check_all(&mut host_of(sim).await).await;
    if grown == 0 {
        node.control.grow_pool(&name("tank"), GrowPool::default()).await.unwrap();
    }
    let pool = node.pool().await;
    assert_eq!(pool.size.bytes(), before.size.bytes() + foretold.bytes());
    assert_eq!(pool.state, PoolState::Healthy);
    grown
}

#[test]
fn pool_whose_growth_is_cut_short_anywhere_has_the_old_size_or_the_new_and_grows_again() {
    let mut sizes = Vec::new();
    for (seed, after_us) in (0..12).map(|step| (70 + step, step * 200)) {
        let crash = [None, Some(Crash::NoneLanded), Some(Crash::Torn)][usize::try_from(seed % 3).unwrap()];
        sizes.push(Sim::new(seed).run(async move |sim| grow_and_end(&sim, after_us, crash).await));
    }
    assert!(sizes.contains(&0) && sizes.iter().any(|&grown| grown > 0), "before, and after: {sizes:?}");
}
