//! Command `blockyard lab explain`.

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{Output, put};
use ::lab::explain::{Explanation, explain as limit_of};
use ::lab::label_filter::LabelFilter;
use ::lab::run::{Measured, Run};
use ::lab::scenario::place;
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Explained<'a> {
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    untried: Option<&'a str>,
    #[serde(flatten)]
    explanation: Option<Explanation>,
}

#[derive(Serialize)]
struct All<'a> {
    schema: u32,
    explanations: Vec<Explained<'a>>,
}

/// Explains the bottleneck of each point of `run` with the labels `only`.
///
/// *Errors*: there is no such point.
pub(super) fn explain(run: &Run, only: &[String], global: &Global) -> Result<(), Failure> {
    let meant = LabelFilter::parse(only)?;
    let points: Vec<&Measured> = run.points.iter().filter(|point| meant.holds(&point.labels)).collect();
    if points.is_empty() {
        return Err(anyhow!("the run has no point at {}", only.join(", ")).into());
    }
    if Output::new(global).is_json() {
        let explanations = points.iter().map(|point| Explained {
            labels: &point.labels,
            untried: point.untried.as_deref(),
            explanation: limit_of(point, &run.machine),
        });
        let all = All { schema: SCHEMA, explanations: explanations.collect() };
        return put(&format!("{}\n", serde_json::to_string_pretty(&all).context("it is all text and numbers")?));
    }
    let told: Vec<String> = points.iter().map(|point| told(point, limit_of(point, &run.machine).as_ref())).collect();
    put(&told.join("\n"))
}

/// Formats the explanation of a point: limit, evidence, remedy, and what was not measured.
fn told(point: &Measured, explanation: Option<&Explanation>) -> String {
    let mut text = format!("{}\n", place(&point.labels));
    let mut line = |head: &str, said: &str| writeln!(text, "  {head:<8} {said}").expect("a string takes all text");
    let Some(explanation) = explanation else {
        line("limit", &format!("not measured: {}", point.untried.as_deref().unwrap_or("the run was stopped before")));
        return text;
    };
    let (same, all) = explanation.rounds;
    let rounds = if all > 1 { format!(" (in {same} of {all} rounds)") } else { String::new() };
    line("limit", &format!("{}{rounds}", explanation.limit));
    for (head, sentences) in
        [("because", &explanation.evidence), ("change", &explanation.change), ("unseen", &explanation.unseen)]
    {
        for (index, sentence) in sentences.iter().enumerate() {
            line(if index == 0 { head } else { "" }, sentence);
        }
    }
    text
}
