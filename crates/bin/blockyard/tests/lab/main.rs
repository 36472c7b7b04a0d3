//! Points of the lab on real daemons: the settings of a point apply to its target.

mod connections;
mod replay;
mod reserved;
mod spdk;
mod stopped;

use lab::drive::{self, Transport};
use lab::explain::{Explanation, Limit, explain};
use lab::measure;
use lab::peer::{Serving, TestResources};
use lab::point::{BackgroundLoad, Backing, DiskModel, Peer, Point};
use lab::run::{Machine, Measured, Sample};
use model::{DiskReport, Level, PoolReport, Size, Span, StatusReport, VolumeReport, WritePolicy};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Running target of a point.
struct Stage {
    point: Point,
    folder: TempDir,
    serving: Serving,
}

fn means() -> TestResources {
    TestResources { own: env!("CARGO_BIN_EXE_blockyard").into(), ..TestResources::default() }
}

/// Returns a short point.
fn brief() -> Point {
    Point {
        unit: Size::mib(16),
        depth: 8,
        warm_up: Span::from_millis(20),
        span: Span::from_millis(200),
        ..Point::default()
    }
}

impl Stage {
    #[track_caller]
    fn of(point: Point) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(means().lacks(&point), None);
        let serving = means().start(&point, folder.path()).expect("it serves");
        Self { point, folder, serving }
    }

    /// Runs the load of the point, while its target keeps running.
    fn load(&self) -> Sample {
        let (point, way, meter) = (self.point.clone(), self.serving.way.clone(), self.serving.meter.clone());
        let load = async move |world| drive::run(&world, &point, &way, &meter, point.backing == Backing::Pool, 1).await;
        uring::run(&uring::Options::default(), load).expect("a world").expect("it is measured")
    }

    /// Returns the answer of daemon `index` to a command.
    fn ask<T: DeserializeOwned>(&self, index: usize, words: &[&str], key: &str) -> T {
        let socket = self.folder.path().join(format!("daemon{index}/blockyard.sock"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        let output = command.arg("--socket").arg(socket).args(["-o", "json"]).args(words).output().expect("it runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let mut answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        serde_json::from_value(answer[key].take()).expect("what was asked for")
    }

    fn portals(&self) -> BTreeSet<String> {
        match &self.serving.way {
            Transport::Iscsi(logins) => logins.iter().map(|login| login.portal.to_string()).collect(),
            _ => BTreeSet::new(),
        }
    }
}

/// Returns the allowed cores of a process, as reported by the kernel: `0-1`.
fn cores_of(pid: u32) -> String {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).expect("it runs");
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("the kernel tells").trim().to_owned()
}

#[test]
fn policy_of_a_point_is_the_policy_of_its_volumes() {
    for policy in [WritePolicy::Through, WritePolicy::Back, WritePolicy::BackVolatile] {
        let pool = Point { backing: Backing::Pool, level: Level::Raid5, disks: 3, reads: 50, verify: true, ..brief() };
        let stage = Stage::of(Point { write: policy, ..pool });
        let volume: VolumeReport = stage.ask(0, &["volume", "show", "tank/unit0"], "volume");
        assert_eq!(volume.policy.map(|policy| policy.write), Some(policy));
        let sample = stage.load();
        let proof = sample.proof.expect("it was to be proved");
        assert!(sample.writes.errors == 0 && proof.judged > 0 && proof.faults == 0, "{policy:?}: {proof:?}");
        let pool: PoolReport = stage.ask(0, &["pool", "show", "tank"], "pool");
        let log = pool.log.map(|log| log.group.members.len());
        assert_eq!(log, (policy == WritePolicy::Back).then_some(2));
        // All writes are on the log device, whether or not they are on the disks by now.
        if policy == WritePolicy::Back {
            let log: DiskReport = stage.ask(0, &["disk", "show", "log0"], "disk");
            assert!(log.counters.written_bytes >= stage.point.unit.bytes(), "{:?}", log.counters);
        }
    }
}

#[test]
fn load_beside_another_is_of_a_client_and_a_unit_of_its_own() {
    let beside = BackgroundLoad { depth: 64, reads: 0, block: Size::new(16 << 10), ..BackgroundLoad::default() };
    let stage = Stage::of(Point { luns: 2, beside: Some(beside), ..brief() });
    let Transport::Iscsi(logins) = &stage.serving.way else { panic!("iSCSI leads there") };
    assert!(logins.len() == 2 && logins[0].initiator != logins[1].initiator, "{logins:?}");
    let sample = stage.load();
    let other = sample.beside.expect("it was there");
    assert!(sample.reads.commands > 100 && sample.writes.commands == 0 && other.commands > 100, "{other:?}");
    let [own, others] = ["unit0", "unit1"].map(|unit| {
        let volume: VolumeReport = stage.ask(0, &["volume", "show", unit], "volume");
        volume.counters
    });
    assert!(own.reads >= sample.reads.commands && own.writes == 0, "{own:?}");
    assert!(others.writes >= other.commands && others.written_bytes >= other.bytes, "{others:?}");
}

#[test]
fn client_that_polls_works_where_another_sleeps() {
    let client_seconds = |client_polls| {
        let point = Point { depth: 1, client_polls, ..brief() };
        let sample = measure::once(&point, &means(), 1).expect("it is measured");
        sample.seen.and_then(|seen| seen.load).expect("the load is metered").cpu_seconds
    };
    // A busy machine distorts single pairs, some of them one after the other.
    let differ = (0..20).any(|_| client_seconds(true) > 1.2 * client_seconds(false));
    assert!(differ, "a client that polls has no more CPU time than one that sleeps between two commands");
}

#[test]
fn several_daemons_share_the_units_and_the_load() {
    let (cores, allowed) = match std::thread::available_parallelism().unwrap().get() {
        1 => (1, "0"),
        2 => (2, "0-1"),
        _ => (2, "1-2"),
    };
    let stage = Stage::of(Point { backing: Backing::Ram, daemons: 2, cores, luns: 4, clients: 4, ..brief() });
    let servers: BTreeSet<u32> = stage.serving.meter.servers.iter().copied().collect();
    assert_eq!((servers.len(), stage.portals().len()), (2, 2));
    let sample = stage.load();
    assert!(sample.sessions.len() == 4 && sample.sessions.iter().all(|&commands| commands > 0), "{sample:?}");
    for index in 0..2 {
        let status: StatusReport = stage.ask(index, &["status"], "status");
        assert_eq!((status.engine.shards, status.volumes), (cores, 2));
        assert!(status.engine.commands > 100, "daemon {index} did {} commands", status.engine.commands);
    }
    assert!(servers.iter().all(|&pid| cores_of(pid) == allowed), "{servers:?}");
}

#[test]
fn several_tgtd_share_the_units_and_the_load() {
    let point = Point { peer: Peer::Tgt, backing: Backing::Ram, daemons: 2, luns: 2, clients: 2, ..brief() };
    if let Some(why) = means().lacks(&point) {
        eprintln!("not tried: {why}");
        return;
    }
    let stage = Stage::of(point);
    let names: Vec<_> = stage.serving.meter.servers.iter().map(|pid| format!("/proc/{pid}/comm")).collect();
    assert!(names.len() == 2 && names.iter().all(|name| fs::read_to_string(name).unwrap().trim() == "tgtd"));
    let sample = stage.load();
    assert!(stage.portals().len() == 2 && sample.sessions.iter().all(|&commands| commands > 0), "{sample:?}");
}

/// Creates a pool of four modeled disks, and explains its load; repeated once if other programs occupied the machine.
fn explained(point: Point) -> (Sample, Explanation) {
    let point =
        Point { backing: Backing::Pool, level: Level::Raid10, disks: 4, cache: false, unit: Size::mib(32), ..point };
    let span = Span::from_millis(1500);
    let stage = Stage::of(Point { span, ..point });
    let measured = || {
        let (sample, point) = (stage.load(), stage.point.clone());
        let measured = Measured { labels: [].into(), point, samples: vec![sample.clone()], untried: None };
        (sample, explain(&measured, &Machine::default()).expect("it was measured"))
    };
    let disturbed = |found: &(Sample, Explanation)| matches!(found.1.limit, Limit::Others | Limit::NotShown);
    (0..4).map(|_| measured()).find(|found| !disturbed(found)).unwrap_or_else(measured)
}

#[test]
fn slow_disks_are_named_as_what_limits_and_too_small_a_depth_before_them() {
    let sas = Point { disk: DiskModel::Sas15k, ..brief() };
    let (deep, limit) = explained(Point { depth: 64, ..sas.clone() });
    assert!(matches!(&limit.limit, Limit::Disk { name } if name.starts_with('d')), "{limit:?}");
    assert!(limit.evidence[0].contains("busy") && limit.change.iter().any(|said| said.contains("more disks")));
    let (one, limit) = explained(Point { depth: 1, ..sas.clone() });
    assert_eq!(limit.limit, Limit::Depth, "{limit:?}");
    assert!(limit.evidence.iter().any(|said| said.contains("an operation of a member disk takes")), "{limit:?}");
    // About 180 per second with one disk at a time, and more with four that reorder their queues.
    assert!((90.0..210.0).contains(&one.iops()) && deep.iops() > 3.0 * one.iops(), "{} {}", one.iops(), deep.iops());
    let (ssd, _) = explained(Point { disk: DiskModel::Ssd, ..sas });
    assert!(ssd.iops() > 3.0 * deep.iops(), "{} {}", ssd.iops(), deep.iops());
}

#[test]
fn units_that_fill_for_longer_than_a_session_may_be_silent_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("blockyard.toml");
    fs::write(&config, "silence = \"2s\"\n").unwrap();
    let arguments = vec!["--config".to_owned(), config.to_str().unwrap().to_owned()];
    let pool = Point { backing: Backing::Pool, level: Level::Raid6, disks: 6, disk: DiskModel::Sata, ..brief() };
    let stage = Stage::of(Point { arguments, unit: Size::mib(64), cache: false, sessions: 2, ..pool });
    let begun = Instant::now();
    let sample = stage.load();
    assert!(begun.elapsed() > Duration::from_secs(4), "it filled within {:?}, which shows nothing", begun.elapsed());
    assert_eq!(sample.sessions.len(), 2);
}
