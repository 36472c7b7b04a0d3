//! Reports about disks that a pool has released, about lost logs, and about pools that another node owns: one true
//! statement each.

use crate::care::filled;
use crate::node::{BLOCKS, Node, furnished_at, name, until_healthy};
use control::request::{ImportPool, NewGroup, NewPool, NewSpare, Replace};
use model::{DiskState, Level, MemberState, PoolState, code, event};
use shard::World;
use sim::{DiskFaults, DiskHandle, Sim};
use std::time::Duration;

async fn replace(node: &Node, old: &str, new: &str) {
    let request = Replace { replacement: name(new), force: false, confirmed: false };
    node.control.pools.replace_disk(&name(old), request).await.unwrap();
}

/// Regression: errors were counted by position, and a new disk started with those of its predecessor.
#[test]
fn errors_of_a_replaced_disk_are_not_its_successors() {
    for no_integrity in [false, true] {
        Sim::new(61).run(async move |sim| {
            let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid5, (&[], no_integrity)).await;
            node.add_disk("e0", 80).await;
            crate::care::uncached(&node).await;
            for block in 0..BLOCKS {
                host.write(block, 7).await;
            }
            disks[1].set_faults(DiskFaults { read_error_per_million: 300_000, ..DiskFaults::default() });
            for block in 0..BLOCKS {
                assert_eq!(host.read(block).await, [7; 512]);
            }
            let before = node.pool().await.groups[0].members[1].clone();
            assert!(before.errors > 0, "it erred: {before:?}");
            node.control.pools.fail_disk(&name("d1")).await.unwrap();
            replace(&node, "d1", "e0").await;
            until_healthy(&sim, &node).await;
            sim.sleep(Duration::from_secs(30)).await;
            let place = node.pool().await.groups[0].members[1].clone();
            assert_eq!(place.disk.as_ref().unwrap().to_string(), "e0");
            assert_eq!((place.errors, place.checksum_errors, place.errors_24h), (0, 0, 0), "{no_integrity}: {place:?}");
            let listed = node.control.disks.report(&name("e0")).await.unwrap();
            assert_eq!(listed.counters.errors, 0);
        });
    }
}

async fn state_of(node: &Node, disk: &str) -> (DiskState, Option<String>) {
    let report = node.control.disks.report(&name(disk)).await.unwrap();
    (report.state, report.former.map(|former| former.sentence()))
}

/// Regression: such a disk was listed as free, and accepted for a pool or as a spare.
#[test]
fn disk_that_a_pool_has_let_go_of_is_a_former_member_and_taken_only_by_force() {
    Sim::new(62).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let spare = node.add_disk("e0", 80).await;
        node.add_disk("e1", 80).await;
        disks[1].fail();
        for _ in 0..100 {
            if node.pool().await.groups[0].members[1].state == MemberState::Failed {
                break;
            }
            node.control.scrubs.start(&name("tank"), control::request::StartScrub { repairs: false }).await.ok();
            sim.sleep(Duration::from_secs(1)).await;
        }
        replace(&node, "d1", "e0").await;
        until_healthy(&sim, &node).await;
        let (state, said) = state_of(&node, "d1").await;
        assert_eq!(state, DiskState::Former);
        assert!(said.unwrap().starts_with("failed member of pool tank, replaced by disk e0 on "));
        let findings = node.control.status.findings().await.unwrap();
        let told = findings.iter().find(|finding| finding.subject == "disk d1").unwrap();
        assert!(told.message.contains("failed member of pool tank") && told.fix.contains("disk remove d1"), "{told:?}");
        assert_eq!(state_of(&node, "e0").await, (DiskState::InUse, None));
        assert_eq!(state_of(&node, "e1").await, (DiskState::Free, None));

        // It answers again, but its label could not be read meanwhile: its history does not depend on that.
        disks[1].revive();
        let groups = |force| NewPool {
            name: name("pond"),
            groups: vec![NewGroup {
                level: Level::Raid1,
                chunk: None,
                no_integrity: false,
                member_size: None,
                disks: vec![name("d1"), name("e1")],
            }],
            force,
            spares: Vec::new(),
            spread: false,
        };
        let refused = node.control.pools.create(groups(false)).await.unwrap_err();
        assert_eq!(refused.code, code::DISK_FOREIGN);
        assert!(refused.message.contains("failed member of pool tank"), "{refused}");
        let as_spare = node.control.spares.add(&name("d1"), NewSpare::default()).await.unwrap_err();
        assert!(as_spare.code == code::DISK_FOREIGN && as_spare.message.contains("failed member"), "{as_spare}");

        let node = node.restarted(1).await;
        let (state, said) = state_of(&node, "d1").await;
        assert!(state == DiskState::Former && said.is_some_and(|said| said.contains("replaced by disk e0")));
        let forced = NewSpare { force: true, ..NewSpare::default() };
        let report = node.control.spares.add(&name("d1"), forced).await.unwrap();
        assert!(report.state == DiskState::Free && report.former.is_none() && report.spare.is_some(), "{report:?}");
        // The spare is used when it is needed.
        spare.fail();
        for _ in 0..200 {
            if node.codes().await.contains(&event::SPARE_TOOK_OVER) {
                break;
            }
            node.control.scrubs.start(&name("tank"), control::request::StartScrub { repairs: false }).await.ok();
            sim.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(node.pool().await.groups[0].members[1].disk.as_ref().unwrap().to_string(), "d1");
    });
}

/// Regression: a node reported "attach its disks" for a pool that another node had taken over.
#[test]
fn node_whose_pool_was_taken_over_names_the_node_that_has_it() {
    Sim::new(63).run(async move |sim| {
        let (node, disks, host) = filled(&sim, &[]).await;
        drop(host);
        let other = Node::start_second(&sim).await;
        for (disk, handle) in crate::node::MEMBERS.iter().zip(&disks) {
            other.attach_disk(disk, handle).await;
        }
        node.kill();
        let forced = ImportPool { force: true, ..ImportPool::default() };
        other.control.pools.import(&name("tank"), forced).await.unwrap();
        let check = async |node: &Node, when: &str| {
            let pool = node.pool().await;
            assert_eq!(pool.state, PoolState::Missing, "{when}");
            let status = node.control.status.report().await.unwrap();
            let problem = status.problems.iter().find(|problem| problem.subject == "pool tank").unwrap();
            assert!(problem.meaning.contains("node array2"), "{when}: {problem:?}");
            assert!(!problem.action.contains("attach"), "{when}: {problem:?}");
            assert!(problem.action.contains("export it on that node"), "{when}: {problem:?}");
            let findings = node.control.status.findings().await.unwrap();
            assert!(findings.iter().any(|finding| finding.message.contains("node array2")), "{when}: {findings:?}");
            let refused = node.control.pools.export(&name("tank"), Default::default()).await.unwrap_err();
            assert!(refused.message.contains("node array2") && !refused.hint.contains("attach"), "{when}: {refused}");
        };
        let node = node.revived(1, None).await;
        check(&node, "all disks are here").await;
        // One disk is missing, so the pool is incomplete here: it belongs to the other node all the same.
        disks[3].fail();
        let node = node.revived(1, None).await;
        check(&node, "a disk is away").await;
        let _: &[DiskHandle] = &disks;
        sim.sleep(Duration::from_secs(10)).await;
        check(&node, "later").await;
    });
}
