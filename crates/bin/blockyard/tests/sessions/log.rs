//! Log device of a pool: writes acknowledged under the policy `back` survive every failure.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{BLOCKS, MEMBERS, Node, SIZE, name};
use control::request::{
    AddLog, ImportPool, NewClone, NewSnapshots, NewSpare, NewVolume, Removal, RemoveLog, Replace, RollBack, Unpresent,
    VolumeSettings,
};
use model::{
    LogReport, LogState, MemberState, PoolState, Refusal, Size, SnapshotLock, VolumeReport, VolumeState, WritePolicy,
    code, event,
};
use shard::World;
use sim::{Crash, DiskFaults, DiskHandle, Sim};
use std::time::Duration;

const LOG: [&str; 2] = ["n0", "n1"];

/// Pool with a log device and a write-back volume.
struct Stage {
    node: Node,
    host: Host,
    members: Vec<DiskHandle>,
    log: Vec<DiskHandle>,
}

impl Stage {
    async fn new(sim: &Sim, shards: usize) -> Self {
        sim.set_time_limit(Duration::from_secs(3600));
        let node = Node::start(sim, shards).await;
        let (mut members, mut log) = (Vec::new(), Vec::new());
        for disk in MEMBERS {
            members.push(node.add_disk(disk, 80).await);
        }
        for disk in LOG {
            log.push(node.add_disk(disk, 80).await);
        }
        node.furnish(&[]).await;
        add_log(&node, &LOG, false).await.unwrap();
        set_write_policy(&node, "tank/vm1", "back").await.unwrap();
        let mut host = Host::login(sim, &Login::of(OPEN, 0)).await;
        host.take_attention().await;
        Self { node, host, members, log }
    }

    /// Writes all blocks, so that they are in the log and not on the disks of the pool.
    async fn write_late(&mut self, fill: u8) {
        for block in 0..BLOCKS {
            self.host.write(block, fill ^ pattern(block)).await;
        }
        let dirty = self.volume("tank/vm1").await.cache.unwrap().dirty;
        assert!(dirty > Size::ZERO, "nothing is in the log alone");
    }

    async fn volume(&self, volume: &str) -> VolumeReport {
        self.node.control.volumes.report(&volume.parse().unwrap()).await.unwrap()
    }

    /// Restarts the machine, with a crash if given, and logs the host in again.
    async fn cut(self, sim: &Sim, crash: Option<Crash>, shards: usize) -> Self {
        let Self { node, members, log, .. } = self;
        let node = node.revived(shards, crash).await;
        let mut host = Host::login(sim, &Login::of(OPEN, 0)).await;
        while host.ask(&[0; 6]).await.is_err_and(|(key, _, _)| key == 6) {}
        Self { node, host, members, log }
    }

    async fn assert_holds(&mut self, fill: u8) {
        for block in 0..BLOCKS {
            assert_eq!(self.host.read(block).await, [fill ^ pattern(block); 512], "block {block}");
        }
    }

    /// Requires that the pool and the status report the same about the log, including `sentence`.
    async fn assert_said_once(&self, sentence: &str) {
        let (why, status) = (self.report().await.reason.unwrap(), self.node.control.status.report().await.unwrap());
        let problem = status.problems.iter().find(|problem| problem.subject == "log of pool tank").unwrap();
        assert_eq!(problem.meaning, why);
        assert!(why.contains(sentence) && !why.contains("before everything"), "{why}");
    }

    async fn report(&self) -> LogReport {
        self.node.pool().await.log.expect("the pool has a log")
    }

    async fn remove(&self, lost: bool) -> Result<(), Refusal> {
        let request = RemoveLog { lost, confirmed: lost };
        self.node.control.pools.remove_log(&name("tank"), request).await.map(drop)
    }

    async fn times(&self, code: model::EventCode) -> usize {
        self.node.codes().await.into_iter().filter(|told| *told == code).count()
    }
}

fn pattern(block: u64) -> u8 {
    (block * 7).to_le_bytes()[0]
}

async fn add_log(node: &Node, disks: &[&str], confirmed: bool) -> Result<(), Refusal> {
    let disks = disks.iter().map(|disk| name(disk)).collect();
    node.control.pools.add_log(&name("tank"), AddLog { disks, force: false, confirmed }).await.map(drop)
}

async fn set_write_policy(node: &Node, volume: &str, policy: &str) -> Result<VolumeReport, Refusal> {
    let settings = [("write-policy".to_owned(), policy.to_owned())].into();
    node.control.volumes.set(&volume.parse().unwrap(), VolumeSettings { settings }).await
}

/// Returns WCE of the caching page, by MODE SENSE (6).
async fn write_cache(host: &mut Host) -> bool {
    let page = host.ask(&[0x1a, 0x08, 0x08, 0, 64, 0]).await.unwrap();
    page[6] & 0x04 != 0
}

#[test]
fn everything_acknowledged_from_the_log_is_there_after_a_kill_or_a_power_cut() {
    let crashes = [None, Some(Crash::NoneLanded), Some(Crash::AnySubset)];
    for (seed, crash) in (91..).zip(crashes.into_iter().cycle().take(6)) {
        Sim::new(seed).run(async move |sim| {
            let mut stage = Stage::new(&sim, 1 + usize::try_from(seed % 2).unwrap()).await;
            assert!(!write_cache(&mut stage.host).await, "what is acknowledged is durable");
            stage.write_late(1).await;
            // Twice in succession: replayed data is replayed over.
            for round in 2..4 {
                stage.write_late(round).await;
                let volume: model::VolumeName = "tank/vm1".parse().unwrap();
                assert_eq!(stage.report().await.volumes, [volume]);
                stage = stage.cut(&sim, crash, 1).await;
                assert!(stage.times(event::LOG_REPLAYED).await > 0, "{:?}", stage.node.codes().await);
                stage.assert_holds(round).await;
                let policy = stage.volume("tank/vm1").await.policy.unwrap();
                assert_eq!((policy.write, stage.report().await.state), (WritePolicy::Back, LogState::Ready));
            }
            // A clean end empties the log.
            stage.write_late(9).await;
            let replays = stage.times(event::LOG_REPLAYED).await;
            stage.node = stage.node.restarted(1).await;
            assert_eq!(stage.times(event::LOG_REPLAYED).await, replays, "nothing was left in it");
            stage.host = Host::login(&sim, &Login::of(OPEN, 0)).await;
            stage.host.take_attention().await;
            stage.assert_holds(9).await;
        });
    }
}

#[test]
fn log_that_loses_a_disk_goes_on_and_another_disk_takes_its_place() {
    Sim::new(101).run(async move |sim| {
        let mut stage = Stage::new(&sim, 1).await;
        stage.log[0].fail();
        stage.write_late(1).await;
        sim.sleep(Duration::from_millis(100)).await;
        assert_eq!((stage.node.state().await, stage.report().await.state), (PoolState::Degraded, LogState::Ready));
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        stage.assert_holds(1).await;
        stage.node.add_disk("s0", 96).await;
        stage.write_late(2).await;
        let request = Replace { replacement: name("s0"), force: false, confirmed: false };
        stage.node.control.pools.replace_disk(&name("n0"), request).await.unwrap();
        for round in 0.. {
            assert!(round < 1000, "the pool is {:?}", stage.node.pool().await);
            sim.sleep(Duration::from_millis(500)).await;
            if stage.node.state().await == PoolState::Healthy {
                break;
            }
        }
        assert_eq!(stage.report().await.group.members[0].disk, Some(name("s0")));
        // Automatically as well, and then the first one alone has everything.
        stage.node.add_disk("s1", 96).await;
        stage.node.control.spares.add(&name("s1"), NewSpare { pool: None, force: false }).await.unwrap();
        stage.log[1].fail();
        stage.write_late(3).await;
        for round in 0.. {
            assert!(round < 1000, "the pool is {:?}", stage.node.pool().await);
            sim.sleep(Duration::from_millis(500)).await;
            if stage.node.state().await == PoolState::Healthy {
                break;
            }
        }
        assert_eq!(stage.report().await.group.members[1].disk, Some(name("s1")));
        stage.write_late(4).await;
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        stage.assert_holds(4).await;
        assert!(stage.report().await.group.members.iter().all(|member| member.state == MemberState::InSync));
        assert_eq!(stage.times(event::LOG_FAILED).await, 0);
    });
}

#[test]
fn volumes_wait_for_a_log_whose_disks_are_away_and_have_everything_when_they_are_back() {
    Sim::new(102).run(async move |sim| {
        let mut stage = Stage::new(&sim, 1).await;
        let other = NewVolume::new("tank/vm2".parse().unwrap(), Some(Size::new(1 << 20)));
        stage.node.control.volumes.create(other).await.unwrap();
        stage.node.show_as("tank/vm2", 1).await;
        while stage.host.test_unit_ready().await.is_some() {}
        stage.write_late(1).await;
        stage.log.iter().for_each(DiskHandle::fail);
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        assert_eq!((stage.node.state().await, stage.report().await.state), (PoolState::Healthy, LogState::Lost));
        assert_eq!((stage.times(event::LOG_LOST).await, stage.times(event::VOLUME_HELD).await), (1, 1));
        assert_eq!(stage.volume("tank/vm1").await.state, VolumeState::Failed);
        assert!(stage.host.try_read(0).await.is_err(), "it is not served as it was before");
        let found = stage.node.control.pools.check(&name("tank"), false).await.unwrap().findings;
        assert_eq!(found.len(), 1, "{found:?}");
        let refused = set_write_policy(&stage.node, "tank/vm1", "through").await.unwrap_err();
        assert_eq!(refused.code, code::POLICY_IMPOSSIBLE);
        assert_eq!(set_write_policy(&stage.node, "tank/vm2", "back").await.unwrap_err().code, code::POLICY_IMPOSSIBLE);
        assert_eq!(stage.remove(false).await.unwrap_err().code, code::LOG_IN_USE);
        // The other one serves, and the pool continues.
        stage.host.address(1);
        while stage.host.test_unit_ready().await.is_some() {}
        for block in 0..64 {
            stage.host.write(block, 7).await;
        }
        // Its disks are soon older than any copy that counts.
        for number in 0..6 {
            let (volumes, name) = (vec!["tank/vm2".parse().unwrap()], name(&format!("s{number}")));
            let new = NewSnapshots { volumes, name, lock: SnapshotLock::Unlocked.into() };
            stage.node.control.snapshots.create(new).await.unwrap();
        }
        stage.log.iter().for_each(DiskHandle::revive);
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        assert_eq!((stage.node.state().await, stage.report().await.state), (PoolState::Healthy, LogState::Ready));
        stage.assert_holds(1).await;
        assert_eq!(stage.volume("tank/vm1").await.policy.unwrap().write, WritePolicy::Back);
        stage.write_late(2).await;
        stage = stage.cut(&sim, None, 1).await;
        stage.assert_holds(2).await;
    });
}

#[test]
fn log_that_comes_back_while_its_pool_is_open_goes_on_and_volumes_that_waited_for_it_serve() {
    Sim::new(109).run(async move |sim| {
        let mut stage = Stage::new(&sim, 2).await;
        stage.write_late(1).await;
        stage.log.iter().for_each(DiskHandle::fail);
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 2).await;
        assert_eq!(stage.report().await.state, LogState::Lost);
        assert_eq!(stage.volume("tank/vm1").await.state, VolumeState::Failed);
        let control = stage.node.control.clone();
        let put_back = async |disk: &str, by: &str| {
            let replacement = name(by);
            control.pools.replace_disk(&name(disk), Replace { replacement, force: false, confirmed: false }).await
        };
        stage.node.add_disk("x0", 80).await;
        assert_eq!(put_back("n0", "x0").await.unwrap_err().code, code::LOG_AWAY, "another disk has nothing of it");
        stage.log[1].revive();
        put_back("n1", "n1").await.unwrap();
        assert_eq!(stage.report().await.state, LogState::Ready);
        // Events are written one after the other.
        for _ in 0..100 {
            if stage.times(event::LOG_REPLAYED).await > 0 {
                break;
            }
            sim.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((stage.times(event::LOG_RETURNED).await, stage.times(event::LOG_REPLAYED).await), (1, 1));
        assert_eq!(stage.volume("tank/vm1").await.state, VolumeState::Online);
        while stage.host.test_unit_ready().await.is_some() {}
        stage.assert_holds(1).await;
        assert_eq!(stage.volume("tank/vm1").await.policy.unwrap().write, WritePolicy::Back, "as it was set");
        stage.log[0].revive();
        put_back("n0", "n0").await.unwrap();
        while stage.report().await.group.members.iter().any(|member| member.state != MemberState::InSync) {
            sim.sleep(Duration::from_millis(100)).await;
        }
        stage.write_late(2).await;
        // The disk that returned first is no longer needed.
        stage.log[1].fail();
        drop(control);
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 2).await;
        stage.assert_holds(2).await;
    });
}

#[test]
fn log_that_is_lost_is_given_up_only_when_that_is_said_and_its_volumes_serve_what_is_on_the_disks() {
    Sim::new(103).run(async move |sim| {
        let mut stage = Stage::new(&sim, 2).await;
        stage.write_late(1).await;
        set_write_policy(&stage.node, "tank/vm1", "through").await.unwrap();
        set_write_policy(&stage.node, "tank/vm1", "back").await.unwrap();
        stage.write_late(2).await;
        assert_eq!(stage.remove(true).await.unwrap_err().code, code::LOG_NOT_LOST);
        stage.log.iter().for_each(DiskHandle::fail);
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 2).await;
        let unconfirmed = RemoveLog { lost: true, confirmed: false };
        let refused = stage.node.control.pools.remove_log(&name("tank"), unconfirmed).await.unwrap_err();
        assert_eq!(refused.code, code::UNCONFIRMED);
        stage.remove(true).await.unwrap();
        assert_eq!(stage.times(event::LOG_GIVEN_UP).await, 1);
        assert!(stage.node.pool().await.log.is_none());
        while stage.host.test_unit_ready().await.is_some() {}
        for block in 0..BLOCKS {
            let read = stage.host.read(block).await;
            let may = [[1 ^ pattern(block); 512], [2 ^ pattern(block); 512]];
            assert!(may.iter().any(|may| read == *may), "block {block}");
        }
        // Its old disks are unused when they return.
        stage.log.iter().for_each(DiskHandle::revive);
        stage = stage.cut(&sim, None, 1).await;
        assert!(stage.node.pool().await.log.is_none());
        assert_eq!(stage.volume("tank/vm1").await.state, VolumeState::Online);
        for disk in ["m0", "m1"] {
            stage.node.add_disk(disk, 80).await;
        }
        add_log(&stage.node, &["m0", "m1"], false).await.unwrap();
        assert_eq!(stage.volume("tank/vm1").await.policy.unwrap().write, WritePolicy::Back, "as it was set");
        stage.write_late(3).await;
        stage = stage.cut(&sim, Some(Crash::AnySubset), 1).await;
        stage.assert_holds(3).await;
    });
}

#[test]
fn log_that_fails_while_it_is_used_loses_nothing() {
    for crash in [None, Some(Crash::NoneLanded)] {
        Sim::new(104).run(async move |sim| {
            let mut stage = Stage::new(&sim, 1).await;
            stage.write_late(1).await;
            stage.log.iter().for_each(DiskHandle::fail);
            for block in 0..BLOCKS {
                stage.host.write(block, 2 ^ pattern(block)).await;
            }
            sim.sleep(Duration::from_secs(3)).await;
            assert_eq!(stage.report().await.state, LogState::Failed);
            stage.assert_said_once("all of its data is on the disks of the pool").await;
            assert_eq!((stage.times(event::LOG_FAILED).await, stage.times(event::LOG_SETTLED).await), (1, 1));
            stage.host.write(5, 0x55).await;
            let refused = stage.remove(false).await.unwrap_err();
            assert_eq!(refused.code, code::LOG_IN_USE);
            stage.host.ask(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
            let mut stage = stage.cut(&sim, crash, 1).await;
            assert_eq!(stage.host.read(5).await, [0x55; 512]);
            stage.host.write(5, 2 ^ pattern(5)).await;
            stage.assert_holds(2).await;
            assert_eq!(stage.times(event::VOLUME_HELD).await, 0);
            // Regression: the event said that the daemon had ended before everything was written, while the status knew
            // of no loss.
            assert_eq!(stage.report().await.state, LogState::Lost);
            stage.assert_said_once("its contents are on the disks of the pool").await;
            set_write_policy(&stage.node, "tank/vm1", "through").await.unwrap();
            stage.remove(false).await.unwrap();
            assert!(stage.node.pool().await.log.is_none());
        });
    }
}

#[test]
fn log_is_removed_when_nobody_is_written_back_and_its_disks_are_free() {
    Sim::new(105).run(async move |sim| {
        let mut stage = Stage::new(&sim, 2).await;
        stage.write_late(1).await;
        let refused = stage.remove(false).await.unwrap_err();
        assert_eq!(refused.code, code::LOG_IN_USE);
        assert_eq!(refused.message, "volume tank/vm1 uses the log device of pool tank");
        assert_eq!(add_log(&stage.node, &LOG, false).await.unwrap_err().code, code::LOG_KNOWN);
        set_write_policy(&stage.node, "tank/vm1", "through").await.unwrap();
        assert_eq!(stage.volume("tank/vm1").await.cache.unwrap().dirty, Size::ZERO, "it was drained");
        for round in 0..2 {
            stage.remove(false).await.unwrap();
            assert!(stage.node.pool().await.log.is_none());
            assert_eq!(stage.remove(false).await.unwrap_err().code, code::LOG_UNKNOWN);
            assert_eq!(
                set_write_policy(&stage.node, "tank/vm1", "back").await.unwrap_err().message,
                "volume tank/vm1 cannot use write-back: pool tank has no log device"
            );
            if round == 1 {
                stage = stage.cut(&sim, None, 1).await;
            }
            // A single disk needs confirmation.
            assert_eq!(add_log(&stage.node, &LOG[..1], false).await.unwrap_err().code, code::UNCONFIRMED);
            add_log(&stage.node, &LOG[..1 + round], true).await.unwrap();
        }
        set_write_policy(&stage.node, "tank/vm1", "back").await.unwrap();
        stage.write_late(2).await;
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        stage.assert_holds(2).await;
        assert_eq!((stage.times(event::LOG_ADDED).await, stage.times(event::LOG_REMOVED).await), (3, 2));
    });
}

#[test]
fn volume_with_data_in_the_log_is_copied_resized_rolled_back_and_deleted_right() {
    Sim::new(106).run(async move |sim| {
        let mut stage = Stage::new(&sim, 1).await;
        let control = stage.node.control.clone();
        let volume = || "tank/vm1".parse::<model::VolumeName>().unwrap();
        stage.write_late(1).await;
        let new = NewSnapshots { volumes: vec![volume()], name: name("noon"), lock: SnapshotLock::Unlocked.into() };
        control.snapshots.create(new).await.unwrap();
        stage.write_late(2).await;
        let copy = NewClone {
            snapshot: "tank/vm1@noon".parse().unwrap(),
            name: "tank/copy".parse().unwrap(),
            thick: false,
            zero_detection: false,
        };
        control.snapshots.create_clone(copy).await.unwrap();
        stage.node.show_as("tank/copy", 1).await;
        while stage.host.test_unit_ready().await.is_some() {}
        set_write_policy(&stage.node, "tank/copy", "back").await.unwrap();
        stage.host.address(1);
        while stage.host.test_unit_ready().await.is_some() {}
        stage.host.write(8, 0x44).await;
        stage.host.write_same_unmap(0, 16).await.unwrap();
        assert_eq!(stage.host.read(8).await, [0; 512], "what was in the log of it is gone");
        stage.host.write(0, 0x77).await;
        stage.host.address(0);
        control.volumes.resize(&volume(), control::request::Resize { size: Size::mib(2) }).await.unwrap();
        while stage.host.test_unit_ready().await.is_some() {}
        stage.host.write(SIZE.bytes() / 512 + 5, 0x66).await;
        drop(control);
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        assert_eq!(stage.host.read(SIZE.bytes() / 512 + 5).await, [0x66; 512]);
        assert_eq!(stage.host.read(9).await, [2 ^ pattern(9); 512]);
        stage.host.address(1);
        while stage.host.test_unit_ready().await.is_some() {}
        assert_eq!(stage.host.read(0).await, [0x77; 512]);
        assert_eq!(stage.host.read(8).await, [0; 512], "a discard is replayed in its place");
        for block in 16..BLOCKS {
            assert_eq!(stage.host.read(block).await, [1 ^ pattern(block); 512], "block {block}");
        }
        // Rollback to the snapshot with newer data in the log, and an immediate crash.
        stage.host.address(0);
        stage.write_late(3).await;
        let back = RollBack { snapshot: "tank/vm1@noon".parse().unwrap(), force: true, confirmed: true };
        stage.node.control.snapshots.roll_back(back).await.unwrap();
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        stage.assert_holds(1).await;
        // A deleted volume leaves nothing in the log.
        stage.host.address(1);
        while stage.host.test_unit_ready().await.is_some() {}
        stage.host.write(20, 0x20).await;
        stage.host.address(0);
        stage.node.hide("tank/copy").await;
        while stage.host.test_unit_ready().await.is_some() {}
        stage.write_late(4).await;
        stage.node.control.volumes.delete(&"tank/copy".parse().unwrap(), Removal::default()).await.unwrap();
        while stage.host.test_unit_ready().await.is_some() {}
        stage = stage.cut(&sim, Some(Crash::NoneLanded), 1).await;
        stage.assert_holds(4).await;
        assert_eq!(stage.report().await.state, LogState::Ready);
    });
}

#[test]
fn pool_that_is_exported_leaves_nothing_in_its_log() {
    Sim::new(107).run(async move |sim| {
        let mut stage = Stage::new(&sim, 1).await;
        stage.write_late(1).await;
        let seen = Unpresent { volume: "tank/vm1".parse().unwrap(), host: name("web"), target: None, force: true };
        stage.node.control.presentations.unpresent(&seen).await.unwrap();
        stage.node.control.pools.export(&name("tank"), Removal::default()).await.unwrap();
        stage.members.iter().for_each(|disk| disk.crash(Crash::NoneLanded));
        // Independent of the log from now on.
        stage.log.iter().for_each(DiskHandle::fail);
        let pool = stage.node.control.pools.import(&name("tank"), ImportPool::default()).await.unwrap();
        assert_eq!((pool.state, pool.log.unwrap().state), (PoolState::Healthy, LogState::Lost));
        stage.node.show().await;
        while stage.host.test_unit_ready().await.is_some() {}
        stage.assert_holds(1).await;
        assert_eq!(stage.times(event::VOLUME_HELD).await, 0);
        stage.remove(false).await.unwrap();
    });
}

#[test]
fn writers_meet_no_wall_when_disks_are_slow_and_the_log_fills() {
    Sim::new(108).run(async move |sim| {
        let mut stage = Stage::new(&sim, 1).await;
        let slow = Duration::from_millis(40);
        for disk in &stage.members {
            disk.set_faults(DiskFaults { latency: slow..=slow, ..DiskFaults::default() });
        }
        let mut longest = Duration::ZERO;
        for round in 0..4 {
            for block in 0..BLOCKS {
                let begun = sim.now();
                stage.host.write(block, round ^ pattern(block)).await;
                longest = longest.max(sim.now().since(begun));
            }
        }
        // Blocks of 512 bytes: the rest of a 4 KiB block is read from those disks.
        assert!(longest < 3 * slow, "{longest:?}: no write waits until disks have written");
        stage.assert_holds(3).await;
    });
}
