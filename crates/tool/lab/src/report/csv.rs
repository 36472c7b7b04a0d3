//! Samples of a run as CSV, RFC 4180.

use crate::figure::Measure;
use crate::run::Run;
use csv::{Terminator, WriterBuilder};

/// Returns a line for each point and round: labels, round, counts, and every measure in its unit.
pub(super) fn samples(run: &Run) -> String {
    let axes: Vec<&str> = run.scenario.axes.iter().map(|axis| axis.name.as_str()).collect();
    let counted = ["round", "seconds", "reads", "read bytes", "read errors", "writes", "written bytes", "write errors"];
    let measures = Measure::ALL.map(|measure| match measure.unit() {
        "" => measure.to_string(),
        unit => format!("{measure} ({unit})"),
    });
    let head = axes.iter().copied().chain(counted).chain(measures.iter().map(String::as_str));
    let mut lines = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    let whole = "memory takes every record of one length";
    lines.write_record(head).expect(whole);
    for measured in &run.points {
        for (round, sample) in measured.samples.iter().enumerate() {
            // A point may lack an axis that only other points have; its column remains empty.
            let labels = axes.iter().map(|axis| measured.labels.get(*axis).cloned().unwrap_or_default());
            let (reads, writes) = (&sample.reads, &sample.writes);
            let counts = [reads, writes].into_iter().flat_map(|tally| [tally.commands, tally.bytes, tally.errors]);
            let counts =
                [(round + 1).to_string(), sample.seconds.to_string()].into_iter().chain(counts.map(|n| n.to_string()));
            let values = Measure::ALL.iter().map(|measure| measure.of(&measured.point, sample));
            let values = values.map(|value| value.map(|value| value.to_string()).unwrap_or_default());
            lines.write_record(labels.chain(counts).chain(values)).expect(whole);
        }
    }
    String::from_utf8(lines.into_inner().expect(whole)).expect("of text comes text")
}
