//! Disks with read errors, or slow for long: reported, copied to a hot spare, and removed only then.

use crate::care::uncached;
use crate::host::Host;
use crate::node::{BLOCKS, MEMBERS, Node, furnished_at, name};
use control::request::PoolSettings;
use model::{EventCode, Level, MemberState, PoolState, event};
use shard::World;
use sim::{DiskFaults, Sim};
use std::time::Duration;

const REDUNDANT: [Level; 4] = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];

fn fill(block: u64) -> u8 {
    (block * 13 + 5).to_le_bytes()[0]
}

/// Fills the volume without caching: every read is a read of a disk.
async fn write_all(node: &Node, host: &mut Host) {
    uncached(node).await;
    for block in 0..BLOCKS {
        host.write(block, fill(block)).await;
    }
}

/// Reads until one of these events occurs; returns the number of failed reads.
async fn read_until(sim: &Sim, node: &Node, host: &mut Host, ends: &[EventCode], longest: Duration) -> u64 {
    let (since, mut failed) = (sim.now(), 0);
    for round in 0_u64.. {
        let block = round * 37 % BLOCKS;
        match host.try_read(block).await {
            Ok(read) => assert_eq!(read, [fill(block); 512], "block {block}"),
            Err(_) => failed += 1,
        }
        sim.sleep(Duration::from_millis(3)).await;
        if round.is_multiple_of(50) && node.codes().await.iter().any(|code| ends.contains(code)) {
            break;
        }
        assert!(
            sim.now().since(since) < longest,
            "{:?}: {:?}",
            node.codes().await,
            node.pool().await.groups[0].members
        );
    }
    failed
}

fn useless() -> DiskFaults {
    DiskFaults { read_error_per_million: 1_000_000, ..DiskFaults::default() }
}

/// Fault 26: 48,460 read errors, "in sync", "All good", and an unused spare.
#[test]
fn member_that_fails_its_reads_is_copied_to_the_spare_and_redundancy_is_never_given_up() {
    for level in REDUNDANT {
        for no_integrity in [false, true] {
            Sim::new(21).run(async move |sim| {
                let kind = format!("{level}, no_integrity {no_integrity}");
                let (node, disks, mut host) = furnished_at(&sim, 1, level, (&["s0"], no_integrity)).await;
                write_all(&node, &mut host).await;
                disks[1].set_faults(useless());
                let failed =
                    read_until(&sim, &node, &mut host, &[event::SPARE_TOOK_OVER], Duration::from_secs(240)).await;
                assert_eq!(failed, 0, "{kind}");
                let told = node.codes().await;
                let said = node.control.reconciler.events(control::EventFilter::default()).await;
                let said: Vec<String> = said.into_iter().map(|event| event.message).collect();
                let expected = [event::DISK_ERRS, event::MEMBER_COPY_BEGAN, event::MEMBER_COPIED];
                assert!(expected.iter().all(|code| told.contains(code)), "{kind}: {said:#?}");
                let never = [event::POOL_DEGRADED, event::DISK_FAILED, event::BLOCKS_LOST, event::REBUILD_BEGAN];
                assert!(!never.iter().any(|code| told.contains(code)), "{kind}: {said:#?}");

                let pool = node.pool().await;
                let place = &pool.groups[0].members[1];
                assert_eq!((pool.state, place.state), (PoolState::Healthy, MemberState::InSync), "{kind}");
                assert_eq!(place.disk.as_ref().unwrap().to_string(), "s0", "{kind}");
                assert_eq!((place.replaces.as_deref(), place.errors), (Some(MEMBERS[1]), 0), "{kind}");
                let asked = disks[1].counts();
                disks[0].fail();
                for block in 0..BLOCKS {
                    assert_eq!(host.read(block).await, [fill(block); 512], "{kind}: block {block}");
                }
                host.write(3, fill(3)).await;
                let now = disks[1].counts();
                assert_eq!((now.reads, now.writes), (asked.reads, asked.writes), "{kind}: nobody asks it");

                // The new disk is the member after a restart as well.
                disks[0].revive();
                let node = node.revived(1, None).await;
                let pool = node.pool().await;
                assert_eq!(pool.groups[0].members[1].disk.as_ref().unwrap().to_string(), "s0", "{kind}");
                assert!(!pool.groups[0].members[1].state.is_lost(), "{kind}");
            });
        }
    }
}

#[test]
fn member_that_fails_some_reads_is_named_by_its_count_and_stays_without_a_spare() {
    Sim::new(22).run(async move |sim| {
        let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid5, (&[], false)).await;
        write_all(&node, &mut host).await;
        disks[1].set_faults(DiskFaults { read_error_per_million: 50_000, ..DiskFaults::default() });
        read_until(&sim, &node, &mut host, &[event::DISK_ERRS], Duration::from_secs(1200)).await;
        let status = node.control.status.report().await.unwrap();
        let problem = status.problems.iter().find(|problem| problem.subject == "disk d1").expect("it is named");
        assert_eq!((problem.severity, problem.state.as_str()), (model::Severity::Warning, "failing reads"));
        assert!(problem.action.contains("blockyard disk replace d1 NEW"), "{}", problem.action);
        assert_eq!(node.state().await, PoolState::Healthy);
        assert!(node.pool().await.groups[0].members[1].errors_24h >= 100);
    });
}

#[test]
fn useless_member_without_a_spare_is_taken_out_only_where_its_group_serves_without_it() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        Sim::new(23).run(async move |sim| {
            let (node, disks, mut host) = furnished_at(&sim, 1, level, (&[], false)).await;
            write_all(&node, &mut host).await;
            disks[1].set_faults(useless());
            let ends = if level == Level::Raid0 { event::DISK_ERRS } else { event::DISK_USELESS };
            read_until(&sim, &node, &mut host, &[ends], Duration::from_secs(240)).await;
            sim.sleep(Duration::from_secs(10)).await;
            let is_out = node.pool().await.groups[0].members[1].state == MemberState::Failed;
            assert_eq!(is_out, level != Level::Raid0, "{level}");
        });
    }
}

#[test]
fn policy_that_is_off_leaves_a_member_that_errs_in_its_place() {
    Sim::new(24).run(async move |sim| {
        let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid5, (&["s0"], false)).await;
        write_all(&node, &mut host).await;
        let settings = [("disk.errors".to_owned(), "off".to_owned()), ("disk.error-rate".to_owned(), "off".to_owned())];
        node.control.pools.set(&name("tank"), PoolSettings { settings: settings.into() }).await.unwrap();
        disks[1].set_faults(useless());
        for round in 0..4000_u64 {
            let block = round * 37 % BLOCKS;
            assert_eq!(host.read(block).await, [fill(block); 512]);
            sim.sleep(Duration::from_millis(3)).await;
        }
        let place = node.pool().await.groups[0].members[1].clone();
        assert_eq!((place.state, place.disk.unwrap().to_string()), (MemberState::InSync, "d1".to_owned()));
        assert!(place.errors > 1000 && !node.codes().await.contains(&event::DISK_ERRS), "{}", place.errors);
    });
}

#[test]
fn member_that_is_slow_for_as_long_as_the_policy_says_is_copied_to_the_spare() {
    Sim::new(25).run(async move |sim| {
        let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid6, (&["s0"], false)).await;
        write_all(&node, &mut host).await;
        let settings = [("disk.slow".to_owned(), "1m".to_owned())].into();
        node.control.pools.set(&name("tank"), PoolSettings { settings }).await.unwrap();
        let slow = Duration::from_millis(300)..=Duration::from_millis(400);
        disks[2].set_faults(DiskFaults { latency: slow, ..DiskFaults::default() });
        for round in 0_u64.. {
            let block = round * 5 % BLOCKS;
            host.write(block, fill(block)).await;
            if round.is_multiple_of(10) {
                node.control.reconciler.handle_events(Vec::new()).await.unwrap();
                if node.codes().await.contains(&event::SPARE_TOOK_OVER) {
                    break;
                }
            }
            assert!(round < 3000, "{:?}", node.codes().await);
        }
        let pool = node.pool().await;
        assert_eq!(pool.state, PoolState::Healthy);
        assert_eq!(pool.groups[0].members[2].disk.as_ref().unwrap().to_string(), "s0");
        assert!(!node.codes().await.contains(&event::POOL_DEGRADED));
        for block in 0..BLOCKS {
            assert_eq!(host.read(block).await, [fill(block); 512], "block {block}");
        }
    });
}

/// A crash during the copy, or a spare that fails, leaves the member in place; the copy starts again.
#[test]
fn copy_that_is_cut_short_costs_nothing() {
    for by_crash in [true, false] {
        Sim::new(26).run(async move |sim| {
            let (node, disks, mut host) = furnished_at(&sim, 1, Level::Raid5, (&["s0"], false)).await;
            write_all(&node, &mut host).await;
            let settings = [("rebuild.max".to_owned(), "256KiB/s".to_owned())].into();
            node.control.pools.set(&name("tank"), PoolSettings { settings }).await.unwrap();
            disks[1].set_faults(useless());
            read_until(&sim, &node, &mut host, &[event::MEMBER_COPY_BEGAN], Duration::from_secs(240)).await;
            let pool = node.pool().await;
            let copy = pool.groups[0].members[1].copy.as_ref().expect("it runs");
            assert_eq!(copy.disk.to_string(), "s0");
            let node = if by_crash {
                drop(host);
                disks[1].set_faults(DiskFaults::default());
                node.revived(1, None).await
            } else {
                disks[4].fail();
                host.write(0, fill(0)).await;
                sim.sleep(Duration::from_secs(30)).await;
                assert!(node.codes().await.contains(&event::MEMBER_COPY_FAILED), "{:?}", node.codes().await);
                node
            };
            let pool = node.pool().await;
            let place = &pool.groups[0].members[1];
            assert_eq!((place.state, place.disk.as_ref().unwrap().to_string()), (MemberState::InSync, "d1".to_owned()));
            assert_eq!(pool.state, PoolState::Healthy, "by_crash {by_crash}");
        });
    }
}
