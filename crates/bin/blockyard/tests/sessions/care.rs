//! Repair at the pace that was set, and scrubs, on the real data plane.

use crate::host::Host;
use crate::node::{BLOCKS, Node, furnished_with, name};
use control::request::{
    AddGroup, ImportPool, Locate, NewGroup, NewVolume, PoolSettings, Removal, StartScrub, Unpresent,
};
use model::{Level, PoolState, ScrubReport, Size, code, event};
use shard::{DiskFacts, World};
use sim::{Crash, DiskHandle, Sim};
use std::time::Duration;

/// Where the data of the pool begins on a member.
const DATA: u64 = 16 << 20;

/// A node with a full volume, its disks and its host.
pub async fn filled(sim: &Sim, spares: &[&str]) -> (Node, Vec<DiskHandle>, Host) {
    filled_with(sim, spares, false).await
}

async fn filled_with(sim: &Sim, spares: &[&str], no_integrity: bool) -> (Node, Vec<DiskHandle>, Host) {
    let (node, disks, mut host) = furnished_with(sim, 2, spares, no_integrity).await;
    for block in 0..BLOCKS {
        host.write(block, fill(block)).await;
    }
    (node, disks, host)
}

fn fill(block: u64) -> u8 {
    (block * 7 + 1).to_le_bytes()[0]
}

async fn scrubbed(sim: &Sim, node: &Node, repairs: bool) -> ScrubReport {
    // Each is known by the second in which it began.
    sim.sleep(Duration::from_secs(2)).await;
    node.control.scrubs.start(&name("tank"), StartScrub { repairs }).await.unwrap();
    loop {
        match node.pool().await.scrub {
            Some(scrub) if !scrub.state.runs() => return scrub,
            _ => sim.sleep(Duration::from_millis(100)).await,
        }
    }
}

#[test]
fn scrub_knows_by_checksums_who_is_right_and_heals_untold() {
    Sim::new(10).run(async move |sim| {
        let (node, disks, mut host) = filled(&sim, &[]).await;
        assert!(scrubbed(&sim, &node, false).await.is_clean());
        // The log, the checksums, and whatever of the data begins behind them.
        disks[2].rot(DATA..DATA + (32 << 20));
        for block in 0..BLOCKS {
            assert_eq!(host.read(block).await, [fill(block); 512], "block {block}");
        }
        let found = scrubbed(&sim, &node, false).await;
        assert_eq!((found.mismatches, found.unreadable), (0, 0), "{found:?}");
        let again = scrubbed(&sim, &node, false).await;
        assert!(again.is_clean() && again.healed == 0, "{again:?}");
        sim.sleep(Duration::from_secs(2)).await;
        let told = node.codes().await;
        assert!(told.contains(&event::BLOCKS_HEALED) && !told.contains(&event::BLOCKS_LOST), "{told:?}");
        let wrong: Vec<u64> = node.pool().await.members().map(|member| member.wrong_blocks).collect();
        assert!(wrong[2] > 0 && wrong[0] == 0 && wrong[1] == 0, "{wrong:?}");
    });
}

#[test]
fn rebuild_that_could_not_read_everything_says_at_its_end_what_is_lost() {
    Sim::new(14).run(async move |sim| {
        let (node, disks, mut host) = filled(&sim, &["s0"]).await;
        // Hosts' data on a member, behind the log that has had it, too.
        let is_data = |bytes: &[u8]| (0..BLOCKS).step_by(8).any(|first| *bytes == page(first)[..]);
        let data =
            disks[1].image().blocks().filter(|(at, bytes)| *at >= DATA && is_data(bytes)).map(|(at, _)| at).max();
        let at = data.expect("it was written");
        disks[1].make_unreadable(at..at + 4096);
        disks[0].fail();
        host.write(0, fill(0)).await;
        while !node.codes().await.contains(&event::REBUILD_ENDED) {
            sim.sleep(Duration::from_millis(100)).await;
        }
        let told = node.control.steward.events(control::Wanted::default()).await;
        let lost = told.iter().find(|told| told.code == event::BLOCKS_LOST).expect("nobody has to read it for that");
        assert!(lost.sentence.contains("4 KiB of disk s0 of pool tank could not be rebuilt"), "{}", lost.sentence);
        node.control.steward.look_after(Vec::new()).await.unwrap();
        let status = node.control.status.report().await.unwrap();
        assert_eq!(status.severity, model::Severity::Critical, "{}", status.verdict);
    });
}

/// 4 KiB as they were written from this block on.
fn page(first: u64) -> Vec<u8> {
    (first..first + 8).flat_map(|block| [fill(block); 512]).collect()
}

#[test]
fn scrub_finds_what_a_disk_cannot_read_and_puts_it_right() {
    Sim::new(11).run(async move |sim| {
        let (node, disks, mut host) = filled_with(&sim, &[], true).await;
        let before = scrubbed(&sim, &node, false).await;
        assert!(before.is_clean() && before.healed == 0 && before.checked.bytes() > 0, "{before:?}");
        // Whole stripes in a row, so that data of this disk is among them.
        disks[1].make_unreadable(DATA..DATA + (64 << 10));
        let found = scrubbed(&sim, &node, false).await;
        assert!(found.healed > 0, "{found:?}");
        let parity_alone = found.unreadable;
        let again = scrubbed(&sim, &node, false).await;
        assert_eq!((again.healed, again.unreadable), (0, parity_alone), "what was healed stays so");
        for block in 0..BLOCKS {
            assert_eq!(host.read(block).await, [fill(block); 512], "block {block}");
        }
        let told = node.codes().await;
        assert!(told.contains(&event::SCRUB_ENDED), "{told:?}");
        assert_eq!(node.control.scrubs.list(&name("tank")).await.unwrap().len(), 3, "all are remembered");
    });
}

#[test]
fn scrub_counts_what_disagrees_and_repairs_it_when_told() {
    Sim::new(12).run(async move |sim| {
        let (node, disks, _host) = filled_with(&sim, &[], true).await;
        disks[2].rot(DATA..DATA + 4096);
        let found = scrubbed(&sim, &node, false).await;
        assert_eq!((found.mismatches, found.healed), (1, 0), "{found:?}");
        let repaired = scrubbed(&sim, &node, true).await;
        assert_eq!((repaired.mismatches, repaired.healed), (0, 1), "{repaired:?}");
        assert!(scrubbed(&sim, &node, false).await.is_clean());
        let told = node.codes().await;
        let count = |code| told.iter().filter(|told| **told == code).count();
        assert_eq!((count(event::SCRUB_FOUND), count(event::SCRUB_HEALED), count(event::SCRUB_ENDED)), (1, 1, 1));
    });
}

#[test]
fn repair_waits_while_it_is_paused_and_goes_on_as_it_was_set() {
    Sim::new(13).run(async move |sim| {
        let (node, disks, mut host) = filled_with(&sim, &["s0"], true).await;
        node.control.pools.pause(&name("tank"), true).await.unwrap();
        disks[0].fail();
        host.write(0, 0xaa).await;
        sim.sleep(Duration::from_secs(60)).await;
        let pool = node.pool().await;
        assert_eq!((pool.state, pool.rebuild().map(|progress| progress.done_bytes)), (PoolState::Rebuilding, Some(0)));

        // A rate that makes the rest last for about a minute.
        let total = pool.rebuild().unwrap().total_bytes;
        let settings = [("rebuild.max".to_owned(), format!("{}B/s", total / 60))].into();
        node.control.pools.set(&name("tank"), PoolSettings { settings }).await.unwrap();
        node.control.pools.pause(&name("tank"), false).await.unwrap();
        let resumed = sim.now();
        sim.sleep(Duration::from_secs(20)).await;
        let progress = node.pool().await.rebuild().expect("it runs");
        assert!((15..50).contains(&progress.percent()), "{progress:?}");
        let settings = [("rebuild.max".to_owned(), "off".to_owned())].into();
        node.control.pools.set(&name("tank"), PoolSettings { settings }).await.unwrap();
        while node.state().await != PoolState::Healthy {
            sim.sleep(Duration::from_millis(100)).await;
            assert!(sim.now().since(resumed) < Duration::from_secs(50), "what was set holds at once");
        }
    });
}

#[test]
fn disk_is_described_lit_and_let_blink_while_its_pool_serves() {
    Sim::new(14).run(async move |sim| {
        let (node, disks, mut host) = filled(&sim, &[]).await;
        let identity = node.control.disks.report(&name("d1")).await.unwrap().identity;
        assert_eq!(identity.model.as_deref(), Some("Simulated disk"));
        let refusal = node.control.disks.locate(&name("d1"), Locate::On).await.unwrap_err();
        assert_eq!(refusal.code, code::DISK_NO_LIGHT);
        disks[1].set_facts(DiskFacts { has_light: true, ..DiskFacts::default() });
        node.control.disks.locate(&name("d1"), Locate::On).await.unwrap();
        assert!(disks[1].is_lit() && !disks[0].is_lit());
        node.control.disks.locate(&name("d1"), Locate::Off).await.unwrap();
        assert!(!disks[1].is_lit());

        let before = [0, 1].map(|disk: usize| disks[disk].counts().reads);
        node.control.disks.locate(&name("d1"), Locate::Blink { seconds: 3 }).await.unwrap();
        sim.sleep(Duration::from_secs(2)).await;
        assert_eq!(host.read(7).await, [fill(7); 512]);
        sim.sleep(Duration::from_secs(2)).await;
        let after = [0, 1].map(|disk: usize| disks[disk].counts().reads);
        assert!(after[1] - before[1] > 100 && after[0] - before[0] < 40, "{before:?} {after:?}");
        sim.sleep(Duration::from_secs(2)).await;
        assert!(disks[1].counts().reads - after[1] < 20, "and then it is over, but for what each beat reads");
    });
}

#[test]
fn pool_is_exported_whole_and_imported_with_all_that_was_written() {
    Sim::new(15).run(async move |sim| {
        let (node, disks, mut host) = filled(&sim, &[]).await;
        let volume = "tank/vm1".parse().unwrap();
        let seen = Unpresent { volume, host: name("web"), target: None, force: true };
        node.control.presentations.unpresent(&seen).await.unwrap();
        node.control.pools.export(&name("tank"), Removal::default()).await.unwrap();
        assert!(node.control.pools.list().await.unwrap().is_empty());
        // Whoever has the disks now may do with them what he likes.
        disks.iter().for_each(|disk| disk.crash(Crash::NoneLanded));
        node.control.pools.import(&name("tank"), ImportPool::default()).await.unwrap();
        assert!(!node.codes().await.contains(&event::RESYNC_BEGAN), "it was closed cleanly");
        node.show().await;
        while host.test_unit_ready().await.is_some() {}
        for block in 0..BLOCKS {
            assert_eq!(host.read(block).await, [fill(block); 512], "block {block}");
        }
    });
}

#[test]
fn pool_that_is_closed_without_its_disks_is_closed_and_says_what_is_not_in_order() {
    Sim::new(19).run(async move |sim| {
        let (node, disks, _host) = filled_with(&sim, &[], true).await;
        node.hide("tank/vm1").await;
        disks.iter().for_each(DiskHandle::fail);
        node.control.pools.export(&name("tank"), Removal::default()).await.unwrap();
        assert!(node.control.pools.list().await.unwrap().is_empty());
        sim.sleep(Duration::from_secs(1)).await;
        assert!(node.codes().await.contains(&event::POOL_UNCLEAN));
        disks.iter().for_each(DiskHandle::revive);
        assert_eq!(
            node.control
                .pools
                .import(&name("tank"), ImportPool { force: true, ..ImportPool::default() })
                .await
                .unwrap()
                .volumes,
            1
        );
        sim.sleep(Duration::from_secs(60)).await;
        assert!(node.codes().await.contains(&event::RESYNC_ENDED), "its redundancy was looked through");
    });
}

#[test]
fn pool_grows_by_a_group_while_hosts_use_it() {
    Sim::new(16).run(async move |sim| {
        let (node, _disks, mut host) = filled(&sim, &[]).await;
        for disk in ["e0", "e1"] {
            node.add_disk(disk, 160).await;
        }
        let before = node.pool().await;
        let disks = ["e0", "e1"].map(name).to_vec();
        let group = NewGroup { level: Level::Raid1, chunk: None, no_integrity: false, member_size: None, disks };
        let pool = node.control.pools.add_group(&name("tank"), AddGroup { group, force: false }).await.unwrap();
        assert_eq!((pool.groups.len(), pool.state), (2, PoolState::Healthy));
        assert_eq!(pool.size.bytes() - before.size.bytes(), 128 << 20);
        // More than the first group has left.
        let size = Some(Size::new(pool.free().bytes() - (64 << 20)));
        node.control.volumes.create(NewVolume::new("tank/vm2".parse().unwrap(), size)).await.unwrap();
        assert_eq!(host.read(9).await, [fill(9); 512]);
        assert!(node.codes().await.contains(&event::POOL_GREW));
        // Both groups say whose the pool is, and are found again.
        sim.sleep(Duration::from_secs(20)).await;
        let node = node.restarted(2).await;
        let pool = node.pool().await;
        assert_eq!((pool.groups.len(), pool.state, pool.volumes), (2, PoolState::Healthy, 2));
    });
}
