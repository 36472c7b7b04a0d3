//! Number of steps for common tasks: the commands of the README, run unchanged.

use crate::lab::Outcome;
use crate::serve::{ask, end, start, wait_until_served};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const README: &str = include_str!("../../../../../README.md");
const OURS: &str = "iqn.1993-08.org.debian:01:abc123";
const THEIRS: &str = "iqn.1993-08.org.debian:01:db";

/// Returns the command of the README's table for this task: the first of its line.
fn command_for(task: &str) -> &'static str {
    let line = README.lines().find(|line| line.starts_with(&format!("| {task} |")));
    let line = line.unwrap_or_else(|| panic!("the README has no task \"{task}\""));
    let (_, command) = line.split_once("`blockyard ").expect("a command");
    command.split('`').next().expect("it ends")
}

/// Runs a command of the README, with disks and sizes of this test.
fn run(dir: &Path, command: &str) -> Outcome {
    let small = command.replace("100GiB", "16MiB").replace("2TiB", "24MiB").replace("IQN", THEIRS);
    let disks = small.replace("/dev/", "./");
    ask(dir, &disks.split_whitespace().collect::<Vec<_>>())
}

/// Runs a command like [`run`] that must succeed.
#[track_caller]
fn good(dir: &Path, command: &str) -> String {
    let outcome = run(dir, command);
    assert_eq!(outcome.code, 0, "blockyard {command}: {}", outcome.stderr);
    outcome.stdout
}

fn json(dir: &Path, command: &str) -> Value {
    serde_json::from_str(&good(dir, &format!("{command} -o json"))).expect("JSON")
}

/// Host that reads the volume until it is dropped.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Reader {
    fn of(unit: &str) -> Self {
        let load = ["lab", "load", unit, "--initiator", OURS, "span=60s", "warm_up=0s", "depth=1", "reads=100"];
        let child = Command::new(env!("CARGO_BIN_EXE_blockyard")).args(load).stdout(Stdio::null()).spawn();
        Self(child.expect("it runs"))
    }
}

#[test]
fn tasks_of_the_readme_take_one_command_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    for disk in ["sdb", "sdc", "sdd", "sde", "sdf"] {
        fs::File::create(dir.join(disk)).expect("a file").set_len(64 << 20).expect("a sparse file");
    }

    let first = README.lines().find_map(|line| line.strip_prefix("blockyard up ")).expect("the first LUN");
    good(dir, &format!("up {first}"));
    let presented = json(dir, "presentation list");
    assert_eq!(presented["presentations"][0]["volume"], "tank/vm1", "the first LUN: one command");
    good(dir, "volume create tank/db 16MiB");

    good(dir, command_for("add a host"));
    assert_eq!(json(dir, "host list")["hosts"][1]["initiators"][0], THEIRS);
    good(dir, command_for("present a volume"));
    assert_eq!(json(dir, "presentation list")["presentations"][1]["host"], "db");
    good(dir, command_for("grow a volume, online"));
    assert_eq!(json(dir, "volume show tank/db")["volume"]["size"], 24 << 20);

    good(dir, "disk fail sdc");
    good(dir, command_for("replace a failed disk"));
    good(dir, "pool show tank --wait");
    assert!(good(dir, "pool show tank").contains("sdf"), "the new disk was not known before");

    let (target, portal) = (&presented["presentations"][0]["target"], &json(dir, "portal list")["portals"][0]);
    let target = json(dir, "target list")["targets"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["name"] == *target)?["iqn"].as_str().map(str::to_owned))
        .expect("the target's name");
    let portal = portal["address"].as_str().expect("an address");
    let reader = Reader::of(&format!("iscsi://{portal}/{target}/0"));
    let begun = Instant::now();
    let sees = |command: &str, wanted: [&str; 2]| loop {
        let said = good(dir, command);
        if wanted.iter().all(|part| said.contains(part)) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{command} does not show {wanted:?}: {said}");
    };
    sees(command_for("list sessions"), [OURS, "127.0.0.1"]);
    sees(
        &format!("{} --once", command_for("find the slowest volumes and their bottleneck")),
        ["tank/vm1", "BOTTLENECK"],
    );
    drop(reader);

    assert_ne!(run(dir, command_for("check for problems")).code, 6, "it answers, whatever it finds");
    let exported =
        good(dir, command_for("export, compare and apply the configuration").split(' ').next().expect("export"));
    fs::write(dir.join("array.toml"), exported).expect("writes");
    assert_eq!(good(dir, "diff -f array.toml --exit-code"), "no changes\n");
    end(&mut daemon, Signal::TERM);
}

#[test]
fn three_commands_go_from_bare_disks_to_a_lun_and_what_is_refused_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    for disk in ["sdb", "sdc", "sdd", "sde"] {
        fs::File::create(dir.join(disk)).expect("a file").set_len(64 << 20).expect("a sparse file");
    }
    good(dir, &format!("host add web --initiator {OURS}"));
    let refused = run(dir, "pool create tank --level raid6 ./sdb ./sdc ./sdd");
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    let refused = run(dir, "pool create tank --level raid1 ./sdb ./nothing");
    assert!(refused.code != 0 && refused.stderr.contains("nothing"), "{}", refused.stderr);
    assert_eq!(good(dir, "disk list --no-headers"), "", "no disk is left known");

    for command in ["pool create tank --level raid1 ./sdb ./sdc", "volume create tank/v 8MiB", "present tank/v web"] {
        good(dir, command);
    }
    assert_eq!(json(dir, "presentation list")["presentations"][0]["host"], "web");
    good(dir, "pool add-member tank ./sdd --wait");
    good(dir, "pool add-log tank ./sde --yes");
    let disks = good(dir, "disk list --no-headers");
    assert_eq!(disks.matches("in use").count(), 4, "{disks}");
    end(&mut daemon, Signal::TERM);
}
