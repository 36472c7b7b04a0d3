//! Artificial run for tests: figures of every form, an unmeasured point, and varying rounds.

use crate::figure::Measure;
use crate::point::Peer;
use crate::run::{FORMAT, Latency, Machine, Measured, Run, Sample, Tally, Usage};
use crate::scenario::Scenario;

const SCENARIO: &str = r#"
    name = "synthetic"
    title = "Depth & peers: what <nobody> measured"
    sources = ["S1: IOmeter", "N9"]
    rounds = 6
    unmeasured = ["The paper's 2 Gb Fibre Channel array: this machine has none."]
    notes = ["Made for tests."]
    [[axis]]
    name = "peer"
    values = ["blockyard", "tgt", "spdk"]
    [[axis]]
    name = "load"
    values = [{ label = "100 % read", reads = 100 }, { label = "80:20", reads = 80 }]
    [[axis]]
    name = "depth"
    values = [1, 4, 16, 64]
    [[figure]]
    title = "IOPS and response time over queue depth"
    form = "lines"
    x = "depth"
    x_title = "outstanding commands"
    log_x = true
    measures = ["iops", "latency", "server-cpu"]
    paper = "s1-depth"
    baseline = "spdk"
    [[figure]]
    title = "Bars by load at depth 16"
    form = "bars"
    x = "load"
    measures = ["iops", "latency", "bandwidth"]
    only = { depth = "16" }
    [[figure]]
    title = "Where commands of this product took their time"
    form = "heat"
    x = "depth"
    only = { peer = "blockyard" }
"#;

/// Returns the run: three peers, two loads, four depths, six rounds; `spdk` is not available.
pub(crate) fn run() -> Run {
    let scenario = Scenario::parse(SCENARIO).expect("it is right");
    let points = scenario.points().expect("it is right").into_iter().map(|(labels, point)| {
        let rounds = if point.peer == Peer::Spdk { 0 } else { scenario.rounds };
        let per_second = f64::from(point.depth).powf(0.8) * if point.peer == Peer::Tgt { 4_000.0 } else { 32_000.0 };
        let samples = (0..rounds).map(|round| sample(per_second, point.depth, point.reads, round)).collect();
        let untried = (rounds == 0).then(|| "the path of a built iscsi_tgt was not given".to_owned());
        Measured { labels, point, samples, untried }
    });
    let facts = [("cpu", "Nothing at 0 GHz"), ("kernel", "Linux 0.0")].map(|(name, fact)| (name.into(), fact.into()));
    Run {
        format: FORMAT,
        points: points.collect(),
        scenario,
        machine: Machine { facts: facts.into() },
        begun: "2026-01-02T03:04:05Z".into(),
        complete: true,
    }
}

fn sample(per_second: f64, depth: u32, reads: u8, round: u32) -> Sample {
    let commands = (per_second * (1.0 + 0.03 * (f64::from(round) - 2.5))) as u64;
    let tally = |percent: u8| {
        let commands = commands * u64::from(percent) / 100;
        let micros = (f64::from(depth) / per_second * 1e9) as u64;
        let buckets = [(micros / 2, 2), (micros, 90), (micros * 2, 7), (micros * 9, 1)];
        let buckets = buckets.map(|(nanos, of)| (nanos, commands * of / 100)).to_vec();
        Tally { commands, bytes: commands * 4096, errors: 0, latency: Latency { buckets } }
    };
    let usage = |cpu_seconds: f64| Usage { cpu_seconds, resident_bytes: 20 << 20 };
    Sample {
        seconds: 1.0,
        reads: tally(reads),
        writes: tally(100 - reads),
        sessions: vec![commands],
        beside: None,
        proof: None,
        server: Some(usage(0.9)),
        client: usage(0.4),
        seen: None,
    }
}

#[test]
fn the_synthetic_run_is_a_run() {
    let run = run();
    let text = serde_json::to_string(&run).expect("it is all text and numbers");
    assert_eq!(serde_json::from_str::<Run>(&text).expect("it was written"), run);
    let first = &run.points[0];
    assert!(Measure::Iops.of(&first.point, &first.samples[0]).is_some_and(|iops| iops > 20_000.0));
}
