//! Pools whose parts were used independently: a part that was only opened makes way, and of two written parts an
//! operator keeps one.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{MEMBERS, Node, furnished_at, name, until_healthy};
use control::request::ImportPool;
use model::{Level, PoolState, code, event};
use shard::World;
use sim::{DiskHandle, Sim};
use std::time::Duration;

const MIRRORS: [Level; 2] = [Level::Raid1, Level::Raid10];

/// Returns the members of the two halves, each of which has all data.
fn halves(level: Level) -> [Vec<usize>; 2] {
    match level {
        Level::Raid1 => [vec![0], vec![1, 2, 3]],
        _ => [vec![0, 2], vec![1, 3]],
    }
}

fn attach(disks: &[DiskHandle], there: &[usize]) {
    for (at, disk) in disks.iter().enumerate() {
        if there.contains(&at) { disk.revive() } else { disk.fail() }
    }
}

async fn host_of(sim: &Sim) -> Host {
    let mut host = Host::login(sim, &Login::of(OPEN, 0)).await;
    host.take_attention().await;
    host
}

/// Opens the pool with these disks alone, against the node's record; a host reads it and writes `fill`, if any.
async fn used_alone(sim: &Sim, node: Node, disks: &[DiskHandle], there: &[usize], fill: Option<u8>) -> Node {
    attach(disks, there);
    let node = node.revived(1, None).await;
    if node.state().await == PoolState::Missing {
        let import = ImportPool { force: true, ..ImportPool::default() };
        node.control.pools.import(&name("tank"), import).await.unwrap();
    }
    let mut host = host_of(sim).await;
    host.read(0).await;
    if let Some(fill) = fill {
        host.write(0, fill).await;
    }
    drop(host);
    sim.sleep(Duration::from_secs(20)).await;
    node
}

/// Regression: opening a part of a pool for reading made it one of two parts, and neither could be opened any more.
#[test]
fn part_that_was_opened_and_not_written_makes_way_for_the_written_one() {
    for level in MIRRORS {
        for no_integrity in [false, true] {
            for written_first in [false, true] {
                for restarts in [0, 3] {
                    Sim::new(81).run(async move |sim| {
                        let case = format!("{level} {no_integrity} {written_first} {restarts}");
                        let (node, disks, mut host) = furnished_at(&sim, 1, level, (&[], no_integrity)).await;
                        host.write(0, 0xaa).await;
                        drop(host);
                        let [read, written] = halves(level);
                        let mut node = node;
                        if written_first {
                            node = used_alone(&sim, node, &disks, &written, Some(0xbb)).await;
                        }
                        node = used_alone(&sim, node, &disks, &read, None).await;
                        for _ in 0..restarts {
                            // Each opening commits at least once: the part that was not written may have the newer
                            // generation.
                            node = used_alone(&sim, node, &disks, &read, None).await;
                        }
                        if !written_first {
                            attach(&disks, &written);
                            node = node.revived(1, None).await;
                            assert_eq!(node.state().await, PoolState::Degraded, "{case}: nothing newer was written");
                            let mut host = host_of(&sim).await;
                            host.write(0, 0xbb).await;
                            drop(host);
                        }
                        attach(&disks, &[0, 1, 2, 3]);
                        let node = node.revived(1, None).await;
                        assert!(node.state().await < PoolState::Failed, "{case}: {:?}", node.pool().await);
                        let mut host = host_of(&sim).await;
                        assert_eq!(host.read(0).await[0], 0xbb, "{case}");
                        until_all_back(&sim, &node, &read).await;
                        drop(host);
                        attach(&disks, &read);
                        let node = node.revived(1, None).await;
                        assert_eq!(node.state().await, PoolState::Degraded, "{case}");
                        let mut host = host_of(&sim).await;
                        assert_eq!(host.read(0).await[0], 0xbb, "{case}: it has what it missed");
                    });
                }
            }
        }
    }
}

/// Puts back members that do not return automatically.
async fn until_all_back(sim: &Sim, node: &Node, members: &[usize]) {
    for &member in members {
        let disk = name(MEMBERS[member]);
        let replace = control::request::Replace { replacement: disk.clone(), force: false, confirmed: false };
        // A member that is being rebuilt already refuses.
        let _ = node.control.pools.replace_disk(&disk, replace).await;
    }
    until_healthy(sim, node).await;
}

/// Regression: it was named by identities that no command prints, the status said "attach its disks", and no command
/// kept a part.
#[test]
fn pool_that_was_written_in_two_parts_is_shown_with_both_and_an_operator_keeps_one() {
    for level in MIRRORS {
        for keeps_first in [false, true] {
            Sim::new(82).run(async move |sim| {
                let case = format!("{level} {keeps_first}");
                let (node, disks, mut host) = furnished_at(&sim, 1, level, (&[], false)).await;
                host.write(0, 0xaa).await;
                drop(host);
                let [first, second] = halves(level);
                let node = used_alone(&sim, node, &disks, &first, Some(0x11)).await;
                let node = used_alone(&sim, node, &disks, &second, Some(0x22)).await;
                attach(&disks, &[0, 1, 2, 3]);
                let node = node.revived(1, None).await;
                assert_eq!(node.state().await, PoolState::Missing, "{case}");

                let status = node.control.status.report().await.unwrap();
                let problem = status.problems.iter().find(|problem| problem.subject == "pool tank").unwrap();
                assert!(!problem.action.contains("attach"), "{case}: {problem:?}");
                let path = node.control.disks.report(&name("d1")).await.unwrap().path;
                for part in ["part 1: disk", "part 2: disk", "last in use from 20", &path] {
                    assert!(problem.meaning.contains(part), "{case}: {part} in {problem:?}");
                }
                for keep in ["blockyard pool import tank --keep d0", "blockyard pool import tank --keep d1"] {
                    assert!(problem.action.contains(keep), "{case}: {problem:?}");
                }
                let findings = node.control.status.findings().await.unwrap();
                assert!(findings.iter().any(|finding| finding.message.contains("in 2 separate parts")), "{findings:?}");
                let told = node.control.reconciler.events(control::EventFilter::default()).await;
                let why = told.iter().rev().find(|told| told.code == event::POOL_UNOPENED).unwrap();
                assert!(why.message.contains("part 2: disk"), "{}", why.message);

                let import = |keep: Option<&str>, confirmed| {
                    let keep = keep.map(name);
                    let import = ImportPool { keep, confirmed, ..ImportPool::default() };
                    let pools = node.control.pools.clone();
                    async move { pools.import(&name("tank"), import).await }
                };
                assert_eq!(import(None, true).await.unwrap_err().code, code::POOL_SPLIT, "{case}");
                let (keep, fill, others) = if keeps_first { ("d0", 0x11, &second) } else { ("d1", 0x22, &first) };
                let unconfirmed = import(Some(keep), false).await.unwrap_err();
                assert_eq!(unconfirmed.code, code::UNCONFIRMED, "{case}");
                let lost = format!("{} (", MEMBERS[others[0]]);
                assert!(unconfirmed.message.contains(&lost), "{case}: {unconfirmed}");
                assert_eq!(node.state().await, PoolState::Missing, "{case}: nothing was done");
                import(Some(keep), true).await.unwrap();
                let mut host = host_of(&sim).await;
                assert_eq!(host.read(0).await[0], fill, "{case}");
                drop(host);

                // A restart finds no parts any more, and the other members have the kept data after their rebuild.
                let node = node.revived(1, None).await;
                assert!(node.state().await < PoolState::Failed, "{case}: {:?}", node.pool().await);
                until_all_back(&sim, &node, others).await;
                attach(&disks, others);
                let _node = node.revived(1, None).await;
                let mut host = host_of(&sim).await;
                assert_eq!(host.read(0).await[0], fill, "{case}");
            });
        }
    }
}

/// Regression: the pool was opened degraded without a question.
#[test]
fn node_that_never_had_a_pool_asks_before_it_opens_it_without_some_members() {
    for level in MIRRORS {
        Sim::new(83).run(async move |sim| {
            let (node, disks, mut host) = furnished_at(&sim, 1, level, (&[], false)).await;
            host.write(0, 0xaa).await;
            drop(host);
            sim.sleep(Duration::from_secs(10)).await;
            node.kill();
            let [there, _] = halves(level);
            let other = Node::start_second(&sim).await;
            for &at in &there {
                other.attach_disk(MEMBERS[at], &disks[at]).await;
            }
            let import = |confirmed| ImportPool { force: true, confirmed, ..ImportPool::default() };
            let asked = other.control.pools.import(&name("tank"), import(false)).await.unwrap_err();
            assert_eq!(asked.code, code::UNCONFIRMED, "{asked}");
            assert!(asked.message.contains("group 0 slot 1 (disk identity "), "{asked}");
            assert!(asked.message.contains("last in use by node array1 until 20"), "{asked}");
            let pool = other.control.pools.import(&name("tank"), import(true)).await.unwrap();
            assert_eq!(pool.state, PoolState::Degraded);
            // The node has had the pool since, and does not ask again.
            other.control.pools.export(&name("tank"), Default::default()).await.unwrap();
            other.control.pools.import(&name("tank"), import(false)).await.unwrap();
        });
    }
}

/// Regression: the part served its old content, and took the others back as if theirs were older.
#[test]
fn part_that_was_only_opened_does_not_serve_alone_once_the_other_one_was_written() {
    for level in MIRRORS {
        Sim::new(84).run(async move |sim| {
            let (node, disks, mut host) = furnished_at(&sim, 1, level, (&[], false)).await;
            host.write(0, 0xaa).await;
            drop(host);
            let [opened, written] = halves(level);
            let node = used_alone(&sim, node, &disks, &opened, None).await;
            attach(&disks, &written);
            let node = node.revived(1, None).await;
            assert_eq!(node.state().await, PoolState::Degraded, "{level}: nothing newer was written");
            let mut host = host_of(&sim).await;
            host.write(0, 0xbb).await;
            drop(host);
            attach(&disks, &opened);
            let node = node.revived(1, None).await;
            assert_eq!(node.state().await, PoolState::Missing, "{level}");
            let import = |force| ImportPool { force, ..ImportPool::default() };
            let refused = node.control.pools.import(&name("tank"), import(false)).await.unwrap_err();
            assert_eq!(refused.code, code::POOL_OUTDATED, "{level}: {refused}");

            // An operator insists, and the other members return: they are not overwritten.
            node.control.pools.import(&name("tank"), import(true)).await.unwrap();
            written.iter().for_each(|&at| disks[at].revive());
            for _ in 0..60 {
                node.control.reconciler.handle_events(Vec::new()).await.unwrap();
                sim.sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(node.state().await, PoolState::Degraded, "{level}");
            assert!(node.codes().await.contains(&event::DISK_LEFT_OUT), "{level}");
            let disk = name(MEMBERS[written[0]]);
            let replace = |force| control::request::Replace { replacement: disk.clone(), force, confirmed: true };
            let refused = node.control.pools.replace_disk(&disk, replace(false)).await.unwrap_err();
            assert_eq!(refused.code, code::POOL_SPLIT, "{level}: {refused}");
            let _node = node.revived(1, None).await;
            let mut host = host_of(&sim).await;
            assert_eq!(host.read(0).await[0], 0xbb, "{level}: what was acknowledged is there");
        });
    }
}

/// Regression: the disk that a spare had replaced won with its later commits, and the writes to the others were
/// overwritten.
#[test]
fn disk_whose_place_a_spare_has_is_a_part_of_its_own_when_it_was_written_alone() {
    Sim::new(85).run(async move |sim| {
        let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid1, (&["s0"], false)).await;
        host.write(0, 0xaa).await;
        let replace = control::request::Replace { replacement: name("s0"), force: true, confirmed: true };
        node.control.pools.replace_disk(&name("d0"), replace).await.unwrap();
        until_healthy(&sim, &node).await;
        host.write(0, 0xbb).await;
        drop(host);
        let mut node = node;
        for fill in 0x10..0x20 {
            node = used_alone(&sim, node, &disks, &[0], Some(fill)).await;
        }
        attach(&disks, &[0, 1, 2, 3, 4]);
        let node = node.revived(1, None).await;
        assert_eq!(node.state().await, PoolState::Missing, "{:?}", node.pool().await);
        let keep = ImportPool { keep: Some(name("d1")), confirmed: true, ..ImportPool::default() };
        node.control.pools.import(&name("tank"), keep).await.unwrap();
        let mut host = host_of(&sim).await;
        assert_eq!(host.read(0).await[0], 0xbb, "what was acknowledged is there");
        let pool = node.pool().await;
        assert!(pool.members().any(|member| member.disk == Some(name("s0"))), "{pool:?}");
    });
}
