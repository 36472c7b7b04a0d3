//! Pools that grow while hosts use them, and the result of a kill or a power loss in between.

use crate::host::{Host, Login};
use crate::node::{BLOCKS, MEMBERS, Node, furnished_with, name};
use control::request::{AddMember, GrowPool, NewGroup, NewPool, NewVolume, PoolSettings, Replace};
use model::{Level, MemberState, PoolReport, PoolState, Refusal, Size, code, event};
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

/// Replaces each member by a disk of 160 MiB, one after the other.
async fn replace_all(sim: &Sim, node: &Node) {
    for (member, larger) in MEMBERS.iter().zip(LARGER) {
        node.add_disk(larger, 160).await;
        let by = Replace { replacement: name(larger), force: true, confirmed: true };
        node.control.pools.replace_disk(&name(member), by).await.unwrap();
        until_healthy(sim, node).await;
    }
}

/// Returns how many times a test ends the daemon: `usual`, or `BLOCKYARD_GROWTH_CUTS`.
fn cuts(usual: usize) -> usize {
    std::env::var("BLOCKYARD_GROWTH_CUTS").map_or(usual, |cuts| cuts.parse().expect("a number"))
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
        let refused = node.control.pools.grow(&name("tank"), GrowPool::default()).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_FULL_SIZE);
        assert!(refused.message.contains("disk d0 has no more space"), "{refused}");

        replace_all(&sim, &node).await;
        let foretold = node.pool().await.groups[0].growth.expect("there is room");
        assert_eq!(node.pool().await.size, before.size, "nobody has asked for it yet");
        let pool =
            node.control.pools.grow(&name("tank"), GrowPool { group: Some(0), member_size: None }).await.unwrap();
        assert_eq!(pool.size.bytes(), before.size.bytes() + foretold.bytes());
        assert!(foretold.bytes() > 200 << 20, "{foretold}");
        assert_eq!((pool.state, pool.groups[0].growth), (PoolState::Healthy, None));
        assert!(pool.groups[0].member_size > before.groups[0].member_size, "smaller disks do not fit any more");
        assert!(node.codes().await.contains(&event::POOL_GREW));
        check_all(&mut host).await;
        // A volume that only fits into the new space.
        let size = Some(Size::new(pool.free().bytes() - (32 << 20)));
        node.control.volumes.create(NewVolume::new("tank/vm2".parse().unwrap(), size)).await.unwrap();
        let refused =
            node.control.pools.grow(&name("tank"), GrowPool { group: Some(0), member_size: None }).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_FULL_SIZE);
        let refused =
            node.control.pools.grow(&name("tank"), GrowPool { group: Some(1), member_size: None }).await.unwrap_err();
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
        node.control.pools.fail_disk(&name("e1")).await.unwrap();
        assert_eq!(node.pool().await.groups[0].growth, None);
        let refused = node.control.pools.grow(&name("tank"), GrowPool::default()).await.unwrap_err();
        assert_eq!(refused.code, code::POOL_BUSY);
        assert!(refused.message.contains("disk e1 is not in sync"), "{refused}");

        for disk in ["p0", "p1"] {
            node.add_disk(disk, 80).await;
        }
        let disks = vec![name("p0"), name("p1")];
        let groups = vec![NewGroup { level: Level::Raid1, chunk: None, no_integrity: true, member_size: None, disks }];
        let plain = NewPool { name: name("plain"), groups, force: false, spares: Vec::new(), spread: false };
        node.control.pools.create(plain).await.unwrap();
        let refused = node.control.pools.grow(&name("plain"), GrowPool::default()).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_FIXED);
        assert!(refused.message.contains("keeps no checksums"), "{refused}");
    });
}

/// Grows a pool and ends the daemon after `after_us` microseconds; returns the growth of the pool by then.
async fn grow_and_end(sim: &Sim, after_us: u64, crash: Option<Crash>) -> u64 {
    let (node, disks, mut host) = furnished_with(sim, 1, &[], false).await;
    write_all(&mut host).await;
    replace_all(sim, &node).await;
    drop(disks);
    let before = node.pool().await;
    let foretold = before.groups[0].growth.expect("there is room");
    let (control, machine) = (node.control.clone(), node.machine());
    machine.spawn(async move { drop(control.pools.grow(&name("tank"), GrowPool::default()).await) });
    sim.sleep(Duration::from_micros(after_us)).await;
    let node = node.revived(1, crash).await;
    let grown = node.pool().await.size.bytes() - before.size.bytes();
    assert!(grown == 0 || grown == foretold.bytes(), "the old size or the new: {grown} more");
    check_all(&mut host_of(sim).await).await;
    if grown == 0 {
        node.control.pools.grow(&name("tank"), GrowPool::default()).await.unwrap();
    }
    let pool = node.pool().await;
    assert_eq!(pool.size.bytes(), before.size.bytes() + foretold.bytes());
    assert_eq!(pool.state, PoolState::Healthy);
    grown
}

#[test]
fn pool_whose_growth_is_cut_short_anywhere_has_the_old_size_or_the_new_and_grows_again() {
    let mut sizes = Vec::new();
    let cuts = cuts(8);
    for step in 0..cuts {
        let crash = [None, Some(Crash::NoneLanded), Some(Crash::Torn)][step % 3];
        let after_us = 2_400 * step as u64 / cuts as u64;
        sizes.push(Sim::new(70 + step as u64).run(async move |sim| grow_and_end(&sim, after_us, crash).await));
    }
    assert!(sizes.contains(&0) && sizes.iter().any(|&grown| grown > 0), "before, and after: {sizes:?}");
}

/// Blocks of 512 bytes between two written locations of the second volume.
const STRIDE: u64 = 64;
const SECOND_MIB: u64 = 12;

/// Adds a second volume over many stripes, as LUN 1.
async fn add_second(node: &Node, host: &mut Host) {
    node.control
        .volumes
        .create(NewVolume::new("tank/vm2".parse().unwrap(), Some(Size::mib(SECOND_MIB))))
        .await
        .unwrap();
    node.show_as("tank/vm2", 1).await;
    host.address(1);
    while host.test_unit_ready().await.is_some() {}
    for place in 0..SECOND_MIB * 2048 / STRIDE {
        host.write(place * STRIDE, fill(place)).await;
    }
}

/// Requires that the second volume holds the data of `add_second`, and later data at `changed` locations.
async fn check_second(host: &mut Host, changed: u64) {
    host.address(1);
    while host.test_unit_ready().await.is_some() {}
    for place in 0..SECOND_MIB * 2048 / STRIDE {
        let expected = if place < changed { !fill(place) } else { fill(place) };
        assert_eq!(host.read(place * STRIDE).await, [expected; 512], "place {place}");
    }
}

async fn add_member(node: &Node, disk: &str) -> Result<PoolReport, Refusal> {
    let request = AddMember { disk: name(disk), group: None, force: false };
    node.control.pools.add_member(&name("tank"), request).await
}

async fn set(node: &Node, key: &str, value: &str) {
    let settings = [(key.to_owned(), value.to_owned())].into();
    node.control.pools.set(&name("tank"), PoolSettings { settings }).await.unwrap();
}

/// Waits for the end of the reshape, and returns the report of the pool.
async fn reshaped(sim: &Sim, node: &Node) -> PoolReport {
    loop {
        let pool = node.pool().await;
        if pool.reshape().is_none() {
            return pool;
        }
        sim.sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn group_gets_one_more_member_and_its_room_while_hosts_write() {
    Sim::new(90).run(async move |sim| {
        let (node, _disks, mut host) = furnished_with(&sim, 2, &[], false).await;
        add_second(&node, &mut host).await;
        node.add_disk("e0", 96).await;
        let before = node.pool().await;
        // The whole array in about a minute.
        set(&node, "rebuild.max", "4MiB/s").await;
        let pool = add_member(&node, "e0").await.unwrap();
        assert_eq!(pool.members().count(), 5);
        let (mut seen, mut changed) = (Vec::new(), 0);
        let refused = loop {
            let pool = node.pool().await;
            let Some(progress) = pool.reshape() else { break None };
            assert_eq!(pool.size, before.size, "the room is there at the end");
            seen.push(progress);
            if progress.percent() >= 50 {
                let by = Replace { replacement: name("e0"), force: true, confirmed: true };
                break Some(node.control.pools.replace_disk(&name("d0"), by).await.unwrap_err());
            }
            host.write(changed * STRIDE, !fill(changed)).await;
            changed += 1;
            sim.sleep(Duration::from_millis(100)).await;
        };
        assert!(refused.is_some() && changed > 20, "it takes a while: {changed}");
        assert!(
            seen.iter().any(|progress| progress.bytes_per_second > 0 && progress.seconds_left.is_some()),
            "{seen:?}"
        );
        node.control.pools.pause(&name("tank"), true).await.unwrap();
        sim.sleep(Duration::from_secs(5)).await;
        let held = node.pool().await.reshape().expect("it is paused").done_bytes;
        sim.sleep(Duration::from_secs(30)).await;
        assert_eq!(node.pool().await.reshape().expect("it is paused").done_bytes, held);
        node.control.pools.pause(&name("tank"), false).await.unwrap();
        set(&node, "rebuild.max", "off").await;

        let pool = reshaped(&sim, &node).await;
        assert_eq!(pool.state, PoolState::Healthy);
        // A third more, in whole slabs.
        let gained = pool.size.bytes() - before.size.bytes();
        assert!(gained > before.size.bytes() / 4 && gained < before.size.bytes() / 2, "{gained} more");
        let mut host = host_of(&sim).await;
        let told = node.codes().await;
        assert!(told.contains(&event::RESHAPE_BEGAN) && told.contains(&event::RESHAPE_ENDED), "{told:?}");
        check_second(&mut host, changed).await;
        // Both kinds of volumes use the new space.
        let (rest, third) = (pool.free().bytes(), "tank/vm3".parse().unwrap());
        let segments = Some(Size::new(64 << 10));
        let new = NewVolume { stripe_unit: segments, ..NewVolume::new(third, Some(Size::new(rest / 2))) };
        node.control.volumes.create(new).await.unwrap();
        node.show_as("tank/vm3", 2).await;
        host.address(2);
        while host.test_unit_ready().await.is_some() {}
        let places = || (0..rest / 2 / 512).step_by(4096 + 77);
        for block in places() {
            host.write(block, fill(block)).await;
        }
        let node = node.restarted(1).await;
        assert_eq!(node.pool().await.size, pool.size);
        // Any disk may fail.
        node.control.pools.fail_disk(&name("e0")).await.unwrap();
        let mut host = host_of(&sim).await;
        check_second(&mut host, changed).await;
        host.address(2);
        while host.test_unit_ready().await.is_some() {}
        for block in places() {
            assert_eq!(host.read(block).await, [fill(block); 512], "block {block} of the third");
        }
    });
}

/// Adds a member, ends the daemon after `after`, continues with or without a lost disk, and returns whether the reshape
/// was running.
async fn add_and_end(sim: &Sim, after: Duration, crash: Option<Crash>, lost: bool) -> bool {
    let (node, disks, mut host) = furnished_with(sim, 1, &[], false).await;
    add_second(&node, &mut host).await;
    node.add_disk("e0", 80).await;
    set(&node, "rebuild.max", "40MiB/s").await;
    let before = node.pool().await;
    let (control, machine) = (node.control.clone(), node.machine());
    let request = AddMember { disk: name("e0"), group: None, force: false };
    machine.spawn(async move { drop(control.pools.add_member(&name("tank"), request).await) });
    sim.sleep(after).await;
    if lost {
        disks[1].fail();
    }
    let node = node.revived(1, crash).await;
    let under_way = node.pool().await.reshape().is_some();
    let mut host = host_of(sim).await;
    check_second(&mut host, 0).await;
    let mut pool = reshaped(sim, &node).await;
    if pool.members().count() == 4 {
        assert_eq!(pool.size, before.size);
        if !lost {
            add_member(&node, "e0").await.unwrap();
            pool = reshaped(sim, &node).await;
        }
    }
    if pool.members().count() == 5 {
        assert!(pool.size > before.size, "{}", pool.size);
    }
    assert_eq!(pool.state, if lost { PoolState::Degraded } else { PoolState::Healthy });
    check_second(&mut host, 0).await;
    let found = node.control.pools.check(&name("tank"), false).await.unwrap();
    assert!(found.findings.is_empty(), "{found:?}");
    under_way
}

#[test]
fn reshape_that_is_cut_short_anywhere_goes_on_and_keeps_every_block() {
    let mut under_way = 0;
    let cuts = cuts(8);
    for step in 0..cuts {
        let crash = [None, Some(Crash::NoneLanded), Some(Crash::Torn)][step % 3];
        let cut = Sim::new(100 + step as u64).run(async move |sim| {
            // Any order of magnitude, from the first commit to the last stripe.
            let about = 100 << sim.random_below(14);
            let after = Duration::from_micros(about + sim.random_below(about));
            add_and_end(&sim, after, crash, step % 4 == 3).await
        });
        under_way += usize::from(cut);
    }
    println!("{under_way} of {cuts} were under way");
    assert!(under_way >= cuts / 3, "only {under_way} of {cuts} were under way");
}

#[test]
fn disk_that_dies_during_a_reshape_is_replaced_after_it() {
    Sim::new(130).run(async move |sim| {
        let (node, disks, mut host) = furnished_with(&sim, 2, &["s0"], false).await;
        add_second(&node, &mut host).await;
        node.add_disk("e0", 80).await;
        set(&node, "rebuild.max", "10MiB/s").await;
        add_member(&node, "e0").await.unwrap();
        sim.sleep(Duration::from_secs(2)).await;
        disks[2].fail();
        for place in 0..100 {
            host.write(place * STRIDE, !fill(place)).await;
        }
        let during = node.pool().await;
        assert!(during.reshape().is_some() && during.state == PoolState::Degraded, "{during:?}");
        set(&node, "rebuild.max", "off").await;
        reshaped(&sim, &node).await;
        while node.state().await != PoolState::Healthy {
            sim.sleep(Duration::from_secs(1)).await;
        }
        let pool = node.pool().await;
        assert_eq!(pool.groups[0].members[2].disk, Some(name("s0")));
        let told = node.codes().await;
        assert!(told.contains(&event::SPARE_TOOK_OVER) && !told.contains(&event::SPARE_REFUSED), "{told:?}");
        disks[0].fail();
        check_second(&mut host, 100).await;
    });
}

#[test]
fn disk_that_dies_before_it_has_joined_is_let_go_and_mirrors_get_a_copy() {
    Sim::new(131).run(async move |sim| {
        let (node, _disks, mut host) = furnished_with(&sim, 1, &[], false).await;
        write_all(&mut host).await;
        let before = node.pool().await;
        let dead = node.add_disk("e0", 80).await;
        node.control.pools.pause(&name("tank"), true).await.unwrap();
        add_member(&node, "e0").await.unwrap();
        sim.sleep(Duration::from_secs(1)).await;
        let joining = node.pool().await;
        assert_eq!(joining.groups[0].members[4].state, MemberState::Joining);
        assert_eq!(node.control.pools.fail_disk(&name("e0")).await.unwrap_err().code, code::POOL_BUSY);
        assert_eq!(add_member(&node, "e0").await.unwrap_err().code, code::DISK_IN_USE);
        dead.fail();
        node.control.pools.pause(&name("tank"), false).await.unwrap();
        let pool = reshaped(&sim, &node).await;
        assert_eq!((pool.members().count(), pool.size), (4, before.size));
        assert!(node.codes().await.contains(&event::MEMBER_REFUSED));
        node.control.disks.remove(&name("e0")).await.unwrap();
        check_all(&mut host).await;

        for disk in ["m0", "m1", "m2", "small"] {
            node.add_disk(disk, if disk == "small" { 72 } else { 80 }).await;
        }
        let refused = add_member(&node, "small").await.unwrap_err();
        assert!(refused.code == code::DISK_TOO_SMALL && refused.message.contains("disk small"), "{refused}");
        let group = |level, disks: &[&str]| {
            let disks = disks.iter().map(|disk| name(disk)).collect();
            vec![NewGroup { level, chunk: None, no_integrity: false, member_size: None, disks }]
        };
        let pool =
            |text: &str, groups| NewPool { name: name(text), groups, force: false, spares: vec![], spread: false };
        node.control.pools.create(pool("pair", group(Level::Raid1, &["m0", "m1"]))).await.unwrap();
        let request = AddMember { disk: name("m2"), group: Some(0), force: false };
        let size = node.control.pools.report(&name("pair")).await.unwrap().size;
        node.control.pools.add_member(&name("pair"), request).await.unwrap();
        loop {
            sim.sleep(Duration::from_millis(100)).await;
            let pair = node.control.pools.report(&name("pair")).await.unwrap();
            if pair.state == PoolState::Healthy && pair.reshape().is_none() {
                assert_eq!((pair.members().count(), pair.size), (3, size), "one copy more, and no room");
                break;
            }
        }
        for disk in ["m0", "m1"] {
            node.control.pools.fail_disk(&name(disk)).await.unwrap();
        }
        for disk in ["n0", "n1", "n2"] {
            node.add_disk(disk, 80).await;
        }
        node.control.pools.create(pool("striped", group(Level::Raid0, &["n0", "n1"]))).await.unwrap();
        let request = AddMember { disk: name("n2"), group: None, force: false };
        let refused = node.control.pools.add_member(&name("striped"), request).await.unwrap_err();
        assert_eq!(refused.code, code::GROUP_FIXED);
        assert!(refused.hint.contains("add-group"), "{refused}");
    });
}

#[test]
fn raid6_group_is_laid_out_anew_though_two_disks_die_meanwhile() {
    Sim::new(132).run(async move |sim| {
        let (node, _disks, mut host) = furnished_with(&sim, 2, &[], false).await;
        let mut handles = Vec::new();
        for disk in ["q0", "q1", "q2", "q3", "q4"] {
            handles.push(node.add_disk(disk, 80).await);
        }
        let disks = ["q0", "q1", "q2", "q3"].map(name).to_vec();
        let groups = vec![NewGroup { level: Level::Raid6, chunk: None, no_integrity: false, member_size: None, disks }];
        let six = NewPool { name: name("six"), groups, force: false, spares: Vec::new(), spread: false };
        let before = node.control.pools.create(six).await.unwrap();
        let volume = NewVolume::new("six/v".parse().unwrap(), Some(Size::mib(SECOND_MIB)));
        node.control.volumes.create(volume).await.unwrap();
        node.show_as("six/v", 1).await;
        host.address(1);
        while host.test_unit_ready().await.is_some() {}
        for place in 0..SECOND_MIB * 2048 / STRIDE {
            host.write(place * STRIDE, fill(place)).await;
        }
        let settings = [("rebuild.max".to_owned(), "8MiB/s".to_owned())].into();
        node.control.pools.set(&name("six"), PoolSettings { settings }).await.unwrap();
        let request = AddMember { disk: name("q4"), group: Some(0), force: false };
        node.control.pools.add_member(&name("six"), request).await.unwrap();
        let six = async || node.control.pools.report(&name("six")).await.unwrap();
        for (lost, percent) in [(1, 10), (4, 40)] {
            while six().await.reshape().is_some_and(|progress| progress.percent() < percent) {
                sim.sleep(Duration::from_millis(100)).await;
            }
            assert!(six().await.reshape().is_some(), "it is under way");
            handles[lost].fail();
            host.write(lost as u64 * STRIDE, fill(lost as u64)).await;
        }
        while six().await.reshape().is_some() {
            sim.sleep(Duration::from_millis(100)).await;
        }
        let pool = six().await;
        assert_eq!((pool.state, pool.members().count()), (PoolState::Degraded, 5));
        assert!(pool.size.bytes() > before.size.bytes() / 4 * 5, "{} after {}", pool.size, before.size);
        check_second(&mut host, 0).await;
    });
}
