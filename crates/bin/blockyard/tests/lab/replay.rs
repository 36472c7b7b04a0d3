//! A load is recorded by the daemon and replayed against other units.

use super::{Stage, brief};
use lab::drive::{self, Login, Transport};
use lab::point::{Backing, Point};
use lab::replay::{Kind, Plan};
use lab::run::Sample;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Fields of a step that must be preserved.
type StepFields = (Kind, u64, u64);

impl Stage {
    fn logins(&self) -> &[Login] {
        match &self.serving.way {
            Transport::Iscsi(logins) => logins,
            _ => panic!("it serves iSCSI"),
        }
    }

    fn url(&self, unit: usize) -> String {
        let login = &self.logins()[unit];
        format!("iscsi://{}/{}/{}", login.portal, login.target, login.lun)
    }

    /// Runs the load of the point in two sessions, all of it on the first unit.
    fn load_the_first(&self) -> Sample {
        let login = self.logins()[0].clone();
        let way = Transport::Iscsi(vec![login.clone(), Login { session: login.session + 100, ..login }]);
        let (point, meter) = (Point { luns: 1, ..self.point.clone() }, self.serving.meter.clone());
        let load = async move |world| drive::run(&world, &point, &way, &meter, false, 1).await;
        uring::run(&uring::Options::default(), load).expect("a world").expect("it is measured")
    }

    /// Ends the trace of a volume, and returns its content.
    fn taken(&self, volume: &str) -> Plan {
        let file = self.folder.path().join(format!("{volume}.trace").replace('/', "-"));
        let path = file.to_str().expect("text");
        let _: Value = self.ask(0, &["volume", "trace", volume, "--out", path, "--stop"], "trace");
        plan_in(&file)
    }
}

fn plan_in(file: &Path) -> Plan {
    let traced = trace::parse(&fs::read(file).expect("the file")).expect("a trace");
    assert_eq!((traced.overwritten, traced.unended), (0, 0), "all of it is there");
    Plan::of(&traced).expect("something to replay")
}

fn replay(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(["-o", "json", "lab", "replay"])
        .args(words)
        .output()
        .expect("it runs")
}

#[track_caller]
fn replayed(words: &[&str]) -> Value {
    let output = replay(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn refused(words: &[&str]) -> String {
    let output = replay(words);
    assert!(!output.status.success() && output.stdout.is_empty(), "{words:?} was not refused");
    String::from_utf8(output.stderr).expect("text")
}

/// Returns the commands of every session in order; the order of sessions depends only on their content.
fn asked(plan: &Plan) -> Vec<Vec<StepFields>> {
    let of_session = plan.sessions.iter();
    let mut sessions: Vec<Vec<StepFields>> =
        of_session.map(|steps| steps.iter().map(|step| (step.kind, step.offset, step.bytes)).collect()).collect();
    sessions.sort();
    sessions
}

/// Returns commands and bytes by kind.
fn counted(told: &Value, which: &str) -> BTreeMap<String, [u64; 3]> {
    let kinds = told["kinds"].as_array().expect("kinds").iter();
    let of = |kind: &Value| {
        let figure = |name: &str| kind[which][name].as_u64().expect("a number");
        (kind["kind"].as_str().expect("a name").to_owned(), ["commands", "bytes", "failed"].map(figure))
    };
    kinds.map(of).collect()
}

#[test]
fn load_that_was_recorded_is_replayed_in_its_order_at_its_times_and_as_large() {
    let point = Point { backing: Backing::Ram, luns: 2, clients: 2, reads: 70, rate: 4000, ..brief() };
    let stage = Stage::of(point);
    let _: Value = stage.ask(0, &["volume", "trace", "unit0", "--start"], "trace");
    let loaded = stage.load_the_first();
    let recorded = stage.taken("unit0");
    assert_eq!((recorded.sessions.len(), loaded.sessions.len()), (2, 2));
    // The load counts commands due in its span; the recording includes the warm-up before it.
    let commands = recorded.steps().count() as u64;
    assert!(commands >= loaded.reads.commands + loaded.writes.commands && loaded.writes.commands > 50, "{commands}");
    let file = stage.folder.path().join("unit0.trace");
    let file = file.to_str().expect("text");

    let _: Value = stage.ask(0, &["volume", "trace", "unit1", "--start"], "trace");
    let told = replayed(&[file, "--to", &stage.url(1), "--overwrite"]);
    let again = stage.taken("unit1");
    assert_eq!(asked(&again), asked(&recorded));
    assert_eq!(counted(&told, "replayed"), counted(&told, "recorded"));
    let all: u64 = counted(&told, "replayed").values().map(|[commands, ..]| commands).sum();
    assert_eq!(all, commands);
    // Other programs may occupy the machine at times; the median shows whether times are kept.
    let begun = |plan: &Plan| plan.steps().map(|step| step.began_ns).collect::<Vec<_>>();
    let (mut then, mut now) = (begun(&recorded), begun(&again));
    then.sort_unstable();
    now.sort_unstable();
    let mut shifts: Vec<u64> = then.iter().zip(&now).map(|(then, now)| then.abs_diff(*now)).collect();
    shifts.sort_unstable();
    let (median, last) = (shifts[shifts.len() / 2], then.last().expect("commands"));
    assert!(median < 20_000_000 && *last > 100_000_000, "half of them began more than {median} ns away, of {last}");

    let why = refused(&[file, "--to", &stage.url(1)]);
    assert!(why.contains("holds data") && why.contains("--overwrite"), "{why}");
    let twice = replayed(&[file, "--to", &stage.url(1), "--overwrite", "--speed", "2"]);
    let seconds = |key: &str| twice[key].as_f64().expect("seconds");
    assert!(seconds("replayed_seconds") < 0.9 * seconds("recorded_seconds"), "{twice}");
}

#[test]
fn load_that_was_recorded_is_replayed_to_a_file_and_refused_where_it_does_not_fit() {
    let stage = Stage::of(Point { backing: Backing::Ram, luns: 1, clients: 1, reads: 50, depth: 4, ..brief() });
    let _: Value = stage.ask(0, &["volume", "trace", "unit0", "--start", "--commands", "1000000"], "trace");
    stage.load_the_first();
    let recorded = stage.taken("unit0");
    let folder = stage.folder.path();
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let (file, large, small) = (path("unit0.trace"), path("large"), path("small"));
    fs::File::create(&large).expect("a file").set_len(16 << 20).expect("room");
    fs::File::create(&small).expect("a file").set_len(1 << 20).expect("room");

    let told = replayed(&[&file, "--to", &large, "--pace", "fast"]);
    assert_eq!(counted(&told, "replayed"), counted(&told, "recorded"));
    // Written data identifies its location.
    let written = recorded.steps().find(|step| step.kind == Kind::Write).expect("a write");
    let bytes = fs::read(&large).expect("the file");
    let stamp = bytes[written.offset as usize..].first_chunk::<16>().expect("a stamp");
    assert_eq!(stamp[..], [*b"BYSTAMP1", (written.offset / 512).to_be_bytes()].concat());

    let why = refused(&[&file, "--to", &small]);
    assert!(why.contains("the unit has 1MiB") && why.contains("--wrap"), "{why}");
    assert!(fs::read(&small).expect("the file").iter().all(|&byte| byte == 0), "nothing was written");
    replayed(&[&file, "--to", &small, "--wrap", "--pace", "fast"]);
    refused(&[&file, "--to", &large, "--overwrite", "--speed", "0"]);
    refused(&[&file, "--to", &large, "--pace", "fast", "--speed", "2"]);

    let shown = replay(&[&file, "--show"]);
    let lines = String::from_utf8(shown.stdout).expect("text");
    let reads = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let reads = reads.filter(|line| line["operation"] == "READ (16)" && line["status"] == 0).count();
    assert_eq!(reads, recorded.steps().filter(|step| step.kind == Kind::Read).count());
    assert_eq!(replayed(&[&file])["kinds"]["READ"]["commands"], reads);

    let mut bytes = fs::read(&file).expect("the trace");
    bytes[100] ^= 1;
    fs::write(&file, &bytes).expect("room");
    assert!(refused(&[&file]).contains("it is damaged"));
    fs::write(&file, &bytes[..99]).expect("room");
    assert!(refused(&[&file, "--show"]).contains("it is cut off"));
}
