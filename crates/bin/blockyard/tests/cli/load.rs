//! `blockyard lab` against daemons that it starts itself.

use crate::lab::Outcome;
use crate::serve::ask;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SCENARIO: &str = r#"
    name = "small"
    title = "Small"
    rounds = 1
    [base]
    unit = "4MiB"
    warm_up = "50ms"
    span = "200ms"
    [[axis]]
    name = "who"
    values = [
        { label = "bare", peer = "bare", backing = "null" },
        { label = "ram", reads = 50, verify = true, sessions = 2, luns = 2 },
        { label = "native", peer = "native", reads = 50, verify = true },
        { label = "null", backing = "null", reads = 50, verify = true },
    ]
"#;

fn run(dir: &Path, arguments: &[&str]) -> Outcome {
    ask(dir, &[&["lab"], arguments].concat())
}

#[test]
fn lab_measures_proves_and_finds_the_target_that_forgets() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, out) = (dir.path().join("small.toml"), dir.path().join("small.json"));
    fs::write(&file, SCENARIO).expect("a scenario");
    let (file, out) = (file.to_str().expect("a text"), out.to_str().expect("a text"));
    for who in ["bare", "ram", "native"] {
        let ended = run(dir.path(), &["run", file, "--only", &format!("who={who}"), "--out", out]);
        assert_eq!(ended.code, 0, "{who}: {}", ended.stderr);
        assert_eq!(ended.stderr.contains("blocks read and verified"), who != "bare", "{who}: {}", ended.stderr);
        let run: ::lab::run::Run =
            serde_json::from_slice(&fs::read(out).expect("it is kept")).expect("it is read as it was written");
        let sample = &run.points[0].samples[0];
        assert!(run.complete && sample.iops() > 0.0 && sample.reads.errors + sample.writes.errors == 0, "{sample:?}");
        assert_eq!(sample.server.is_some(), who != "native");
    }
    // A target that discards writes is detected: the verification can fail.
    let null = run(dir.path(), &["run", file, "--only", "who=null"]);
    assert_eq!(null.code, 1);
    assert!(
        null.stderr.contains("zeros where generation") && null.stderr.contains("blocks failed verification"),
        "{}",
        null.stderr
    );
    let unknown = run(dir.path(), &["run", file, "--only", "who=nobody"]);
    assert!(unknown.stderr.contains("only bare, ram, native, null"), "{}", unknown.stderr);
}

#[test]
fn lab_writes_over_nothing_unless_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let device = dir.path().join("device");
    let mut data = vec![0; 1 << 20];
    data[70_000] = 1;
    fs::write(&device, &data).expect("a device");
    let unit = device.to_str().expect("a text");
    let write = |more: &[&str]| {
        let load = ["load", unit, "reads=0", "span=100ms", "warm_up=0s", "block=4KiB", "depth=2"];
        run(dir.path(), &[&load[..], more].concat())
    };
    let refused = write(&[]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("holds data, at byte 70000") && refused.stderr.contains("--overwrite"));
    assert_eq!(fs::read(&device).expect("it is there"), data);
    assert_eq!(write(&["--overwrite"]).code, 0);
    assert_ne!(fs::read(&device).expect("it is there"), data);
    let wrong = run(dir.path(), &["load", unit, "colour=3"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("unknown field `colour`"), "{}", wrong.stderr);
}

#[test]
fn lab_explains_what_limits_a_point_and_says_what_it_cannot() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, out) = (dir.path().join("asked.toml"), dir.path().join("asked.json"));
    let scenario = r#"
        name = "asked"
        title = "Asked"
        rounds = 1
        [base]
        unit = "4MiB"
        span = "300ms"
        [[axis]]
        name = "pace"
        values = [{ label = "rate", rate = 200 }, { label = "think", think = "20ms", depth = 4 }]
    "#;
    fs::write(&file, scenario).expect("a scenario");
    let (file, out) = (file.to_str().expect("a text"), out.to_str().expect("a text"));
    assert_eq!(run(dir.path(), &["run", file, "--out", out]).code, 0);
    let told = run(dir.path(), &["explain", out, "--only", "pace=rate"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(lines[..2], ["the point at pace = rate", "  limit    the load, which asks for no more"]);
    assert!(lines[2].starts_with("  because  200 commands a second were asked for"), "{}", told.stdout);
    assert!(told.stdout.contains("shard-0 of the target ran"), "{}", told.stdout);
    let json = ask(dir.path(), &["-o", "json", "lab", "explain", out, "--only", "pace=think"]);
    let all: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(all["explanations"][0]["limit"]["kind"], "load", "{all:#}");
    let nowhere = run(dir.path(), &["explain", out, "--only", "pace=walk"]);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("no point at pace=walk"), "{}", nowhere.stderr);
    // A run of a build without meters.
    let mut kept: serde_json::Value = serde_json::from_slice(&fs::read(out).expect("it is kept")).expect("JSON");
    kept["points"][0]["samples"][0].as_object_mut().expect("a sample").remove("seen");
    fs::write(out, kept.to_string()).expect("a run");
    let old = run(dir.path(), &["explain", out, "--only", "pace=rate"]);
    assert!(old.stdout.contains("limit    not shown") && old.stdout.contains("measure it again"), "{}", old.stdout);
}

#[test]
fn lab_keeps_what_was_measured_before_a_point_that_fails() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, out) = (dir.path().join("fails.toml"), dir.path().join("fails.json"));
    let scenario = r#"
        name = "fails"
        title = "Fails"
        rounds = 1
        [base]
        unit = "1MiB"
        span = "100ms"
        [[axis]]
        name = "who"
        values = [
            { label = "small" },
            { label = "memory", peer = "bare", arguments = ["--memory", "1MiB"] },
            { label = "broken", arguments = ["--no-such-thing"] },
        ]
    "#;
    fs::write(&file, scenario).expect("a scenario");
    let (file, out) = (file.to_str().expect("a text"), out.to_str().expect("a text"));
    let told = run(dir.path(), &["run", file, "--out", out]);
    assert_eq!(told.code, 1, "{}", told.stdout);
    assert!(
        told.stderr.contains("the results so far are in ") && told.stderr.contains("who = broken"),
        "{}",
        told.stderr
    );
    let kept: ::lab::run::Run = serde_json::from_slice(&fs::read(out).expect("it is kept")).expect("a run");
    let samples: Vec<usize> = kept.points.iter().map(|point| point.samples.len()).collect();
    assert_eq!((samples, kept.complete), (vec![1, 1, 0], false));
    let moved = |at: usize| kept.points[at].samples[0].reads.commands > 0;
    assert!(moved(0) && moved(1), "a unit below a MiB, and bare bytes from a memory");
}

/// Creates a program file that runs this build with further arguments for its daemon.
fn build_with(dir: &Path, name: &str, arguments: &str) -> String {
    let path = dir.join(name);
    let own = env!("CARGO_BIN_EXE_blockyard");
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*' serve '*) exec {own} \"$@\" {arguments} ;;\n*) exec {own} \"$@\" ;;\nesac\n"
    );
    fs::write(&path, script).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    path.to_str().expect("a text").to_owned()
}

#[test]
fn lab_compares_two_builds_in_turn_and_sees_the_slower_one_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, out) = (dir.path().join("turns.toml"), dir.path().join("turns.json"));
    let scenario = r#"
        name = "turns"
        title = "Turns"
        rounds = 1
        [base]
        backing = "file"
        unit = "4MiB"
        depth = 4
        warm_up = "20ms"
        span = "250ms"
        [[axis]]
        name = "who"
        values = [{ label = "ours" }, { label = "bare", peer = "bare" }]
    "#;
    fs::write(&file, scenario).expect("a scenario");
    let (file, out) = (file.to_str().expect("a text"), out.to_str().expect("a text"));
    // The same arguments, but files of this daemon are as slow as a disk.
    let (same, slow) = (build_with(dir.path(), "same", ""), build_with(dir.path(), "slow", "--disks-like /=sata"));
    let own = env!("CARGO_BIN_EXE_blockyard");
    let told = run(dir.path(), &["compare", own, &slow, "--scenario", file, "--only", "who=ours", "--out", out]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let iops = |said: &str| said.lines().find(|line| line.contains("Commands per second")).map(str::to_owned);
    let said = iops(&told.stdout).expect("a ratio");
    assert!(said.starts_with("ours\t") && said.contains("\tfaster: ") && said.contains(" of 6 rounds)"), "{said}");
    let kept: ::lab::run::Run = serde_json::from_slice(&fs::read(out).expect("it is kept")).expect("a run");
    assert!(kept.machine.facts["other build"].starts_with(&format!("{slow} (0.")), "{:?}", kept.machine.facts);
    // This build is not compared with itself: one of many rounds may be fast by chance.
    let turns = ["run", file, "--against", &same, "--rounds", "6", "--out", out];
    assert_eq!(run(dir.path(), &turns).code, 0);
    let told = run(dir.path(), &["compare", out, "--axis", "build", "--labels", "this", "other"]);
    let said = iops(&told.stdout).expect("a ratio");
    let ratio: f64 = said.split(": ").nth(1).and_then(|said| said.split(' ').next()?.parse().ok()).expect("a ratio");
    assert!((0.5..2.0).contains(&ratio), "{said}");
    let kept: ::lab::run::Run = serde_json::from_slice(&fs::read(out).expect("it is kept")).expect("a run");
    let places: Vec<_> = kept.points.iter().map(|point| point.labels.values().cloned().collect::<Vec<_>>()).collect();
    assert_eq!(places, [["this", "ours"], ["other", "ours"], ["this", "bare"]]);
    let no_program = run(dir.path(), &["run", file, "--against", "/bin/true"]);
    assert!(no_program.code == 1 && no_program.stderr.contains("/bin/true is no program"), "{}", no_program.stderr);
    let no_scenario = run(dir.path(), &["compare", own, own]);
    assert!(no_scenario.code == 1 && no_scenario.stderr.contains("--scenario FILE"), "{}", no_scenario.stderr);
}
