//! Repair at the configured rate, and scrubs, on the real data plane.

use crate::host::Host;
use crate::node::{BLOCKS, Node, furnished_with, name};
use control::request::{
    AddGroup, ImportPool, Locate, NewGroup, NewVolume, PoolSettings, Removal, StartScrub, Unpresent, VolumeSettings,
};
use model::{Level, PoolState, ScrubReport, Size, code, event};
use shard::{DiskFacts, World};
use sim::{Crash, DiskHandle, Sim};
use std::time::Duration;

/// Start of the pool's data on a member.
const DATA: u64 = 16 << 20;

/// Returns a node with a full volume, its disks and its host.
pub(crate) async fn filled(sim: &Sim, spares: &[&str]) -> (Node, Vec<DiskHandle>, Host) {
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
    // Scrubs are identified by the second of their start.
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
        // The log, the checksums, and the first part of the data.
        disks[2].rot(DATA..DATA + (32 << 20));
        for block in 0..BLOCKS {
            assert_eq!(host.read(block).await, [fill(block); 512], "block {block}");
        }
        let found = scrubbed(&sim, &node, false).await;
        assert_eq!((found.mismatches, found.unreadable), (0, 0), "{found:?}");
        let again = scrubbed(&sim, &node, false).await;
        assert!(again.is_clean() && again.repaired == 0, "{again:?}");
        sim.sleep(Duration::from_secs(2)).await;
        let told = node.codes().await;
        assert!(told.contains(&event::BLOCKS_HEALED) && !told.contains(&event::BLOCKS_LOST), "{told:?}");
        let wrong: Vec<u64> = node.pool().await.members().map(|member| member.checksum_errors).collect();
        assert!(wrong[2] > 0 && wrong[0] == 0 && wrong[1] == 0, "{wrong:?}");
    });
}

/// Returns the location of hosts' data on a member, after the log, which contained it as well.
fn data_on(disk: &DiskHandle) -> u64 {
    let is_data = |bytes: &[u8]| (0..BLOCKS).step_by(8).any(|first| *bytes == page(first)[..]);
    let data = disk.image().blocks().filter(|(at, bytes)| *at >= DATA && is_data(bytes)).map(|(at, _)| at).max();
    data.expect("it was written")
}

/// Returns the blocks that a host cannot read, each tried three times.
async fn unreadable(host: &mut Host) -> Vec<u64> {
    let mut bad = Vec::new();
    for block in 0..BLOCKS {
        let mut failed = 0;
        for _ in 0..3 {
            failed += u32::from(host.try_read(block).await.is_err());
        }
        assert!(failed == 0 || failed == 3, "block {block} is lost or it is not");
        bad.extend((failed > 0).then_some(block));
    }
    bad
}

/// Disables caching, so that every read of the volume is a read of a disk.
pub(crate) async fn uncached(node: &Node) {
    let settings = [("cache-share", "0"), ("read-ahead", "off")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let settings = VolumeSettings { settings: settings.into() };
    node.control.volumes.set(&"tank/vm1".parse().unwrap(), settings).await.unwrap();
}

/// Returns the host's blocks that the pool lists as lost.
async fn listed(node: &Node) -> Vec<u64> {
    let lost = node.pool().await.lost;
    assert!(
        !lost.truncated && lost.ranges.iter().all(|range| range.volume.as_ref().unwrap().to_string() == "tank/vm1")
    );
    lost.ranges.iter().flat_map(|range| range.lba..range.lba + range.blocks).collect()
}

/// Fault 16: the rebuild ended as "whole again" and "All good", and the loss was counted only when a host happened to
/// read there, once per attempt.
#[test]
fn rebuild_that_could_not_read_everything_ends_with_a_list_of_what_is_lost() {
    for no_integrity in [false, true] {
        Sim::new(14).run(async move |sim| {
            let (node, disks, mut host) = filled_with(&sim, &["s0"], no_integrity).await;
            uncached(&node).await;
            let at = data_on(&disks[1]);
            disks[1].make_unreadable(at..at + 4096);
            disks[0].fail();
            host.write(0, fill(0)).await;
            let ends = [event::REBUILD_ENDED, event::REBUILD_STOPPED];
            while !node.codes().await.iter().any(|code| ends.contains(code)) {
                sim.sleep(Duration::from_millis(100)).await;
            }
            let of_loss = async || {
                let told = node.control.reconciler.events(control::EventFilter::default()).await;
                told.into_iter().filter(|told| told.code == event::BLOCKS_LOST).collect::<Vec<_>>()
            };
            let told = of_loss().await;
            let lost = node.pool().await.lost;
            // The block that cannot be read, and the block that it was to restore, unless that held parity.
            assert!(told.len() == 1 && (1..=2).contains(&lost.blocks), "nobody has to read it for that: {told:?}");
            let amount = format!("{} of pool tank could not be reconstructed", lost.amount());
            assert!(told[0].message.starts_with(&amount), "{}", told[0].message);
            let status = node.control.status.report().await.unwrap();
            assert_eq!(status.severity, model::Severity::Critical, "{}", status.summary);
            assert!(status.summary.contains("pool tank is missing data"), "{}", status.summary);

            let bad = unreadable(&mut host).await;
            assert_eq!(bad, listed(&node).await, "by volume and LBA");
            sim.sleep(Duration::from_secs(3)).await;
            assert_eq!((bad.len() as u64, of_loss().await[0].count), (8 * lost.blocks, 1), "tries are no losses");

            if no_integrity {
                // A block of a stripe that lacks another block cannot be written alone.
                return;
            }
            // An entry disappears when its blocks are written.
            for first in bad.iter().copied().filter(|block| block % 8 == 0) {
                let [.., high, low] = first.to_be_bytes();
                let written = host.status_of(&[0x2a, 0, 0, 0, high, low, 0, 0, 8, 0], &page(first)).await;
                assert_eq!(written, (0, None), "{first}");
                sim.sleep(Duration::from_secs(2)).await;
                assert!(!listed(&node).await.contains(&first), "{first}");
            }
            assert_eq!(unreadable(&mut host).await, [0_u64; 0]);
            assert!(node.codes().await.contains(&event::BLOCKS_RECOVERED));
            let status = node.control.status.report().await.unwrap();
            assert!(!status.summary.contains("missing data"), "{}", status.summary);
        });
    }
}

#[test]
fn list_of_lost_blocks_outlives_a_restart_and_ends_with_its_volume() {
    Sim::new(15).run(async move |sim| {
        let (node, disks, mut host) = filled(&sim, &["s0"]).await;
        let at = data_on(&disks[1]);
        disks[1].make_unreadable(at..at + 4096);
        disks[0].fail();
        host.write(0, fill(0)).await;
        while !node.codes().await.contains(&event::REBUILD_ENDED) {
            sim.sleep(Duration::from_millis(100)).await;
        }
        let before = listed(&node).await;
        assert!(!before.is_empty());
        let node = node.revived(1, None).await;
        sim.sleep(Duration::from_secs(5)).await;
        assert_eq!(listed(&node).await, before, "nobody has read them since");
        node.hide("tank/vm1").await;
        node.control.volumes.delete(&"tank/vm1".parse().unwrap(), Removal::default()).await.unwrap();
        sim.sleep(Duration::from_secs(70)).await;
        assert_eq!(node.pool().await.lost, model::LostBlocks::default());
    });
}

/// Returns 4 KiB as they were written from this block on.
fn page(first: u64) -> Vec<u8> {
    (first..first + 8).flat_map(|block| [fill(block); 512]).collect()
}

#[test]
fn scrub_finds_what_a_disk_cannot_read_and_puts_it_right() {
    Sim::new(11).run(async move |sim| {
        let (node, disks, mut host) = filled_with(&sim, &[], true).await;
        let before = scrubbed(&sim, &node, false).await;
        assert!(before.is_clean() && before.repaired == 0 && before.checked.bytes() > 0, "{before:?}");
        // Consecutive whole stripes, so that they include data of this disk.
        disks[1].make_unreadable(DATA..DATA + (64 << 10));
        let found = scrubbed(&sim, &node, false).await;
        assert!(found.repaired > 0, "{found:?}");
        let parity_alone = found.unreadable;
        let again = scrubbed(&sim, &node, false).await;
        assert_eq!((again.repaired, again.unreadable), (0, parity_alone), "what was healed stays so");
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
        assert_eq!((found.mismatches, found.repaired), (1, 0), "{found:?}");
        let repaired = scrubbed(&sim, &node, true).await;
        assert_eq!((repaired.mismatches, repaired.repaired), (0, 1), "{repaired:?}");
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

        // A rate at which the rest takes about a minute.
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
        // After the export the disks are at the disposal of their next user.
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
        // Both groups name the owner of the pool, and are found again.
        sim.sleep(Duration::from_secs(20)).await;
        let node = node.restarted(2).await;
        let pool = node.pool().await;
        assert_eq!((pool.groups.len(), pool.state, pool.volumes), (2, PoolState::Healthy, 2));
    });
}

#[test]
fn scrub_continues_after_a_restart_and_a_kill_and_the_schedule_counts_from_its_end() {
    Sim::new(16).run(async move |sim| {
        let (mut node, _disks, _host) = filled(&sim, &[]).await;
        node.control.volumes.create(NewVolume::new("tank/big".parse().unwrap(), Some(Size::mib(64)))).await.unwrap();
        let set = |pairs: &[(&str, &str)]| PoolSettings {
            settings: pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        node.control.pools.set(&name("tank"), set(&[("rebuild.max", "24KiB/s"), ("scrub", "weekly")])).await.unwrap();
        node.control.scrubs.start(&name("tank"), StartScrub { repairs: false }).await.unwrap();
        let begun = node.pool().await.scrub.unwrap();
        for is_killed in [false, true] {
            let before = node.pool().await.scrub.unwrap().checked;
            // A part of 8 MiB; the progress is saved every two minutes.
            sim.sleep(Duration::from_secs(400)).await;
            let checked = node.pool().await.scrub.unwrap().checked;
            assert!(checked.bytes() >= before.bytes() + (8 << 20), "{checked:?} after {before:?}");
            node = if is_killed { node.revived(2, None).await } else { node.restarted(2).await };
            let scrub = node.pool().await.scrub.unwrap();
            assert_eq!((scrub.started, scrub.state), (begun.started, model::ScrubState::Running));
            let least = if is_killed { checked.bytes() - (8 << 20) } else { checked.bytes() };
            assert!(scrub.checked.bytes() >= least, "{scrub:?} after {checked:?}");
            assert!(scrub.progress.is_some_and(|progress| progress.done_bytes > before.bytes()), "{scrub:?}");
            let told = node.control.reconciler.events(control::EventFilter::default()).await;
            let resumed = told.iter().filter(|told| told.code == event::SCRUB_RESUMED);
            assert_eq!(resumed.map(|told| told.count).sum::<u64>(), if is_killed { 2 } else { 1 });
        }
        node.control.pools.set(&name("tank"), set(&[("rebuild.max", "off")])).await.unwrap();
        let ended = loop {
            match node.pool().await.scrub {
                Some(scrub) if !scrub.state.runs() => break scrub,
                _ => sim.sleep(Duration::from_millis(100)).await,
            }
        };
        assert!(ended.is_clean() && ended.started == begun.started, "{ended:?}");
        // Killed immediately: the pool itself records the end, and the schedule counts from there.
        let node = node.revived(1, None).await;
        assert_eq!(node.pool().await.scrub, Some(ended.clone()));
        node.control.reconciler.handle_events(Vec::new()).await.unwrap();
        assert_eq!(node.control.scrubs.list(&name("tank")).await.unwrap(), [ended]);
        let told = node.codes().await;
        let count = |code| told.iter().filter(|told| **told == code).count();
        assert_eq!((count(event::SCRUB_BEGAN), count(event::SCRUB_STOPPED)), (1, 0), "{told:?}");
    });
}
