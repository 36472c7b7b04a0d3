//! HTML page of a report: a section for each run, a drawing and its table for each figure, the published values beside
//! ours. It loads no other resource.

mod limits;
mod published;

use super::chart::{Chart, Spread};
use super::draw;
use super::markup::Markup;
use super::{number, stem};
use crate::compare::{self, Row};
use crate::figure::{Form, Measure};
use crate::machine;
use crate::point::Build;
use crate::references::PAPERS;
use crate::run::{Latency, Run};
use crate::scenario::BUILD;
use std::collections::{BTreeMap, BTreeSet};

const PAGE_STYLE: &str = include_str!("page.css");
/// Content security policy: nothing is loaded, executed or embedded; style sheets are inline.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Returns the page of these runs.
pub(super) fn page(runs: &[Run]) -> String {
    let title = match runs {
        [run] => run.scenario.title.clone(),
        runs => format!("{} runs of the lab", runs.len()),
    };
    let mut page = Markup::default();
    page.element("html", &[("xmlns", &"http://www.w3.org/1999/xhtml"), ("lang", &"en")], |html| {
        html.element("head", &[], |head| {
            head.empty("meta", &[("charset", &"utf-8")]);
            // Before the style sheets: a policy applies only to what follows it.
            head.empty("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
            head.empty("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
            head.leaf("title", &[], &title);
            head.style(PAGE_STYLE);
            // Drawings of the page have no styles of their own.
            head.style(draw::STYLE);
        });
        html.element("body", &[], |body| {
            body.element("main", &[], |main| {
                main.leaf("h1", &[], &title);
                contents(main, runs);
                for (index, run) in runs.iter().enumerate() {
                    section(main, runs, index, run);
                }
                comparisons(main, runs);
                main.element("section", &[], published::others);
            });
        });
    });
    // Without it browsers would draw the page in quirks mode.
    format!("<!DOCTYPE html>\n{}", page.finish())
}

fn contents(body: &mut Markup, runs: &[Run]) {
    body.element("nav", &[("aria-label", &"Contents")], |nav| {
        nav.element("ol", &[], |list| {
            for (index, run) in runs.iter().enumerate() {
                for (number, figure) in run.scenario.figures.iter().enumerate() {
                    let told = if runs.len() > 1 {
                        format!("{}: {}", headed(runs, index), figure.title)
                    } else {
                        figure.title.clone()
                    };
                    list.element("li", &[], |item| {
                        item.leaf("a", &[("href", &format!("#figure-{index}-{number}"))], &told)
                    });
                }
            }
        });
    });
}

/// Returns the title of a run, with its number if there are several.
fn headed(runs: &[Run], index: usize) -> String {
    let title = &runs[index].scenario.title;
    if runs.len() > 1 { format!("Run {}: {title}", index + 1) } else { title.clone() }
}

fn section(body: &mut Markup, runs: &[Run], index: usize, run: &Run) {
    let scenario = &run.scenario;
    body.element("section", &[("id", &format!("run-{index}"))], |section| {
        // The page of a single run has its title already.
        let alone = format!("Scenario {}", scenario.name);
        section.leaf("h2", &[], &if runs.len() > 1 { headed(runs, index) } else { alone });
        let samples: usize = run.points.iter().map(|point| point.samples.len()).sum();
        let told = format!(
            "Scenario {}, begun {}: points: {}, rounds asked for: {}, samples: {samples}. Lines and bars show the median of the \
             rounds, whiskers the least and the greatest.",
            scenario.name,
            run.begun,
            run.points.len(),
            scenario.rounds
        );
        section.leaf("p", &[], &told);
        if !scenario.sources.is_empty() {
            section.leaf("p", &[("class", &"soft")], &format!("For: {}.", scenario.sources.join("; ")));
        }
        if !run.complete {
            section.leaf("p", &[("class", &"bad")], "This run was ended before every round was made.");
        }
        // Failed commands are not in the figures, so the page must mention them.
        let errors: u64 = run.points.iter().flat_map(|one| &one.samples).map(|one| one.reads.errors + one.writes.errors).sum();
        if errors > 0 {
            section.leaf("p", &[("class", &"bad")], &format!("{errors} commands ended with an error; they are in no figure."));
        }
        if !scenario.notes.is_empty() {
            section.element("ul", &[], |list| {
                scenario.notes.iter().for_each(|note| list.element("li", &[], |item| prose(item, note)));
            });
        }
        let stem = stem(runs, index);
        section.element("p", &[], |p| {
            p.text("Beside this page: ");
            p.leaf("a", &[("href", &format!("{stem}.csv"))], "every sample as CSV");
            p.text(", ");
            p.leaf("a", &[("href", &format!("{stem}.json"))], "the run file as JSON");
            p.text(", and each figure as SVG.");
        });
        for (number, figure) in scenario.figures.iter().enumerate() {
            let chart = Chart::of(run, figure, &PAPERS);
            // The drawing shows the title; the hidden heading is for navigation by headings (screen readers).
            let named: [(&str, &dyn std::fmt::Display); 2] =
                [("id", &format!("figure-{index}-{number}")), ("class", &"unseen")];
            section.leaf("h3", &named, &figure.title);
            // It scrolls where the page is narrower, so the keyboard must reach it.
            section.element("figure", &[("tabindex", &0), ("aria-label", &figure.title)], |place| place.append(&Markup::made(draw::svg(&chart, false))));
            folded(section, "The figure as a table", |inside| values(inside, &chart));
            published::draw(section, run, &chart);
        }
        builds(section, run);
        limits::draw(section, run);
        folded(section, "The machine", |inside| {
            table(inside, "Where it was measured", &["", ""], |rows| {
                for (name, fact) in machine::ordered(&run.machine.facts) {
                    row(rows, &[name.to_owned(), fact.to_owned()], &[]);
                }
            });
        });
    });
}

/// Formats text with code between backquotes.
fn prose(body: &mut Markup, text: &str) {
    for (index, part) in text.split('`').enumerate() {
        // Odd parts are those between backquotes.
        match index % 2 {
            0 => body.text(part),
            _ => body.leaf("code", &[], part),
        }
    }
}

/// Compares this build with the other one, if both were measured alternately.
fn builds(body: &mut Markup, run: &Run) {
    // Several figures may show the same measure.
    let measures: BTreeSet<Measure> = run.scenario.figures.iter().flat_map(|figure| figure.measures.clone()).collect();
    let measures: Vec<Measure> = measures.into_iter().collect();
    let [this, other] = [Build::This, Build::Other].map(|build| build.to_string());
    // A run of a single build has no such axis.
    if let Ok(rows) = compare::labels(run, BUILD, &this, &other, &measures) {
        body.leaf("h3", &[], "This build through the other, measured in turn");
        compared(body, &rows);
    }
}

fn folded(body: &mut Markup, summary: &str, inside: impl FnOnce(&mut Markup)) {
    body.element("details", &[], |details| {
        details.leaf("summary", &[], summary);
        inside(details);
    });
}

/// Draws a table that scrolls horizontally if it is too wide, also by keyboard.
fn table(body: &mut Markup, caption: &str, heads: &[&str], rows: impl FnOnce(&mut Markup)) {
    let scrolling: [(&str, &dyn std::fmt::Display); 4] =
        [("class", &"wide"), ("tabindex", &0), ("role", &"group"), ("aria-label", &caption)];
    body.element("div", &scrolling, |wide| {
        wide.element("table", &[], |table| {
            table.leaf("caption", &[], caption);
            if heads.iter().any(|head| !head.is_empty()) {
                table.element("thead", &[], |head| {
                    head.element("tr", &[], |tr| {
                        heads.iter().for_each(|head| tr.leaf("th", &[("scope", &"col")], head))
                    });
                });
            }
            table.element("tbody", &[], rows);
        });
    });
}

/// Draws a row: words, the first of which is the row header, then figures.
fn row(rows: &mut Markup, words: &[String], figures: &[String]) {
    rows.element("tr", &[], |tr| {
        for (index, word) in words.iter().enumerate() {
            match index {
                0 => tr.leaf("th", &[("scope", &"row")], word),
                _ => tr.leaf("td", &[], word),
            }
        }
        figures.iter().for_each(|figure| tr.leaf("td", &[("class", &"figure")], figure));
    });
}

/// Tabulates all values of the drawing.
fn values(body: &mut Markup, chart: &Chart<'_>) {
    const QUANTILES: [(f64, &str); 5] =
        [(0.5, "median (µs)"), (0.9, "90 % (µs)"), (0.99, "99 % (µs)"), (0.999, "99.9 % (µs)"), (1.0, "most (µs)")];
    let measures: Vec<Measure> = chart.panels.iter().map(|panel| panel.measure).collect();
    let named = measures.iter().map(|measure| match measure.unit() {
        "" => measure.title().to_owned(),
        unit => format!("{} ({unit})", measure.title()),
    });
    let heat = chart.figure.form == Form::Heat;
    let named: Vec<String> =
        if heat { QUANTILES.iter().map(|(_, name)| (*name).to_owned()).collect() } else { named.collect() };
    let heads: Vec<&str> =
        [chart.bottom.title.as_str(), "line"].into_iter().chain(named.iter().map(String::as_str)).collect();
    table(body, &format!("{}: median of the rounds (least to greatest)", chart.figure.title), &heads, |rows| {
        for (x, label) in chart.bottom.labels.iter().enumerate() {
            for (index, series) in chart.series.iter().enumerate() {
                let latency = heat.then(|| series.latency(x)).flatten();
                let figures: Vec<String> = if heat {
                    QUANTILES.iter().map(|(quantile, _)| micros(latency.as_ref(), *quantile)).collect()
                } else {
                    chart.panels.iter().map(|panel| spread(panel.values[index][x])).collect()
                };
                row(rows, &[label.clone(), series.name.clone()], &figures);
            }
        }
    });
}

fn micros(latency: Option<&Latency>, quantile: f64) -> String {
    let nanos = latency.and_then(|latency| latency.quantile(quantile));
    nanos.map_or("–".into(), |nanos| number(nanos as f64 / 1e3))
}

fn spread(value: Option<Spread>) -> String {
    match value {
        None => "–".into(),
        // One round has no range.
        Some(Spread { middle, rounds: 1, .. }) => number(middle),
        Some(Spread { low, middle, high, .. }) => format!("{} ({} to {})", number(middle), number(low), number(high)),
    }
}

/// Formats labels: `depth 8, peer tgt`.
fn told(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(axis, label)| format!("{axis} {label}")).collect::<Vec<_>>().join(", ")
}

/// Compares later runs of each scenario with its first one.
fn comparisons(body: &mut Markup, runs: &[Run]) {
    for (index, run) in runs.iter().enumerate() {
        // All with the first one, so that several runs have a common base.
        let Some(first) = runs[..index].iter().position(|first| first.scenario.name == run.scenario.name) else {
            continue;
        };
        let measures: BTreeSet<Measure> =
            run.scenario.figures.iter().flat_map(|figure| figure.measures.clone()).collect();
        let measures: Vec<Measure> = measures.into_iter().collect();
        body.element("section", &[], |section| {
            section.leaf("h2", &[], &format!("{}: run {} through run {}", run.scenario.title, index + 1, first + 1));
            section.leaf(
                "p",
                &[],
                "Rounds are paired by their number. What else the machine did is in both only if they ran in turn.",
            );
            compared(section, &compare::runs(run, &runs[first], &measures));
        });
    }
}

fn compared(body: &mut Markup, rows: &[Row]) {
    table(body, "Ratios", &["point", "measure", "verdict"], |inside| {
        for one in rows {
            let verdict =
                one.ratio.as_ref().map_or("not measured in both".to_owned(), |ratio| ratio.sentence(one.measure));
            row(inside, &[told(&one.labels), one.measure.title().to_owned(), verdict], &[]);
        }
    });
}
