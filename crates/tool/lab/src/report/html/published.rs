//! Published values beside ours, and contradictions of the papers.

use super::super::chart::Chart;
use super::super::markup::Markup;
use super::super::number;
use super::{row, table, told};
use crate::references::{PAPERS, Printed};
use crate::run::Run;

const DISTANCE: &str = "Figures over distance (S3: throughput, CPU, copies and database loads over kilometres) are an axis without \
    data: there is no wide-area link in this lab so far.";

pub(super) fn draw(body: &mut Markup, run: &Run, chart: &Chart<'_>) {
    let Some(printed) = chart.printed else { return };
    let title = PAPERS.paper.get(&printed.paper).map_or(printed.paper.as_str(), String::as_str);
    let place = format!("The paper: {title}; {}. Measured on {}.", printed.place, printed.machine);
    body.leaf("p", &[("class", &"soft")], &place);
    if !printed.numbers.is_empty() {
        numbers(body, run, chart, printed);
    }
    if !printed.claims.is_empty() {
        claims(body, run, printed);
    }
    let contradictions: Vec<_> = PAPERS.contradictions(printed).collect();
    if !contradictions.is_empty() {
        body.leaf("p", &[], "Where the paper contradicts itself, or misleads:");
        body.element("ul", &[], |list| contradictions.iter().for_each(|one| list.leaf("li", &[], &one.text)));
    }
}

/// Lists published values without a figure here.
pub(super) fn others(body: &mut Markup) {
    body.leaf("h2", &[], "What the papers have, and this page does not");
    body.leaf("p", &[], DISTANCE);
    table(body, "The papers' other numbers", &["paper", "number", "why nothing of ours is beside it"], |rows| {
        PAPERS.cited.iter().for_each(|one| row(rows, &[one.paper.clone(), one.text.clone(), one.why.clone()], &[]));
    });
    body.leaf("p", &[], "Where they contradict themselves, or mislead:");
    let others = PAPERS.contradictions.iter().filter(|one| one.figures.is_empty());
    body.element("ul", &[], |list| {
        others.for_each(|one| list.leaf("li", &[], &format!("{}: {}", one.paper, one.text)))
    });
}

fn numbers(body: &mut Markup, run: &Run, chart: &Chart<'_>, printed: &Printed) {
    let heads = ["the paper's", "our point", "paper", "ours", "ours / paper"];
    table(body, &format!("{}'s numbers beside ours", printed.paper), &heads, |rows| {
        for one in &printed.numbers {
            let residuals = one.residuals(run, chart.figure);
            // Listed all the same, so that no number of the paper is left out.
            if residuals.is_empty() {
                let words = [one.what.clone(), "no point of ours stands there".to_owned()];
                row(rows, &words, &[one.said(), "–".into(), "–".into()]);
            }
            for residual in residuals {
                let ours = format!("{} {}", number(residual.ours), one.measure.unit());
                let words = [one.what.clone(), told(residual.labels)];
                row(rows, &words, &[one.said(), ours.trim_end().to_owned(), number(residual.ratio)]);
            }
        }
    });
}

fn claims(body: &mut Markup, run: &Run, printed: &Printed) {
    let heads = ["the paper's ratio", "our point", "paper", "ours", "verdict"];
    table(body, &format!("{}'s ratios beside ours", printed.paper), &heads, |rows| {
        for one in &printed.claims {
            let said = if one.low < one.high {
                format!("{} to {}", number(one.low), number(one.high))
            } else {
                number(one.low)
            };
            let held = one.held(run);
            if held.is_empty() {
                row(
                    rows,
                    &[one.what.clone(), "not measured here".to_owned()],
                    &[said.clone(), "–".into(), String::new()],
                );
            }
            for held in held {
                let verdict = match held.agrees {
                    // Its interval is a single value, which hardly ever is within the paper's range.
                    _ if held.ours.rounds.len() < 2 => "one round shows nothing",
                    true => "agrees",
                    false => "does not agree",
                };
                row(
                    rows,
                    &[one.what.clone(), told(&held.labels)],
                    &[said.clone(), held.ours.to_string(), verdict.into()],
                );
            }
        }
    });
}
