//! Line charts: a marker for the median of each point's rounds, and a whisker for their range.

use super::super::chart::{Chart, Panel};
use super::super::markup::Markup;
use super::{COLOURS, Frame, Slots, round};
use std::fmt::Write;

pub(super) fn draw(body: &mut Markup, chart: &Chart<'_>, panel: &Panel<'_>, slots: &Slots, frame: &Frame) {
    let count = chart.series.len() as f64;
    // Without a numeric axis, markers at one label are side by side.
    let apart = if slots.scale.is_some() { 0.0 } else { (slots.room * 0.7 / count).min(12.0) };
    for (index, (series, values)) in chart.series.iter().zip(&panel.values).enumerate() {
        let aside = (index as f64 - (count - 1.0) / 2.0) * apart;
        let known = slots.middles.iter().zip(values).filter_map(|(&x, value)| Some((x + aside, (*value)?)));
        let mut line = String::new();
        for (x, spread) in known.clone() {
            let verb = if line.is_empty() { 'M' } else { 'L' };
            write!(line, "{verb}{} {}", round(x), round(frame.y(spread.middle))).expect("a String takes everything");
        }
        // Points of a non-numeric axis are not connected.
        if slots.scale.is_some() || series.baseline {
            body.empty("path", &[("class", &class(index, series.baseline, "line")), ("d", &line)]);
        }
        // A baseline is a mere line: neither markers nor whiskers, also in the legend.
        if series.baseline {
            continue;
        }
        for (x, spread) in known {
            let (low, high) = (frame.y(spread.low), frame.y(spread.high));
            // The marker would hide a shorter whisker.
            if low - high > 2.0 {
                body.empty("path", &[("class", &class(index, false, "spread")), ("d", &whisker(x, low, high))]);
            }
            // Drawn after the whisker, so that it is not crossed by it.
            let mark = marker(index, x, frame.y(spread.middle));
            body.empty("path", &[("class", &class(index, false, "mark")), ("d", &mark)]);
        }
    }
}

/// Draws the line of the legend.
pub(super) fn sample(body: &mut Markup, index: usize, baseline: bool, x: f64, y: f64) {
    body.empty("path", &[("class", &class(index, baseline, "line")), ("d", &format!("M{x} {y}h26"))]);
    if !baseline {
        body.empty("path", &[("class", &class(index, false, "mark")), ("d", &marker(index, x + 13.0, y))]);
    }
}

/// Returns a whisker from minimum to maximum.
pub(super) fn whisker(x: f64, low: f64, high: f64) -> String {
    let (x, low, high) = (round(x), round(low), round(high));
    format!("M{x} {low}V{high}M{} {low}h6M{} {high}h6", x - 3.0, x - 3.0)
}

fn class(index: usize, baseline: bool, what: &str) -> String {
    let turn = ["", " dashed", " dotted"][index / COLOURS % 3];
    if baseline { format!("{what} baseline") } else { format!("{what} s{}{turn}", index % COLOURS) }
}

/// Returns a marker shape that distinguishes series without color.
fn marker(index: usize, x: f64, y: f64) -> String {
    let (x, y) = (round(x), round(y));
    match index % 6 {
        0 => format!("M{} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x - 4.0),
        1 => format!("M{} {}h7v7h-7z", x - 3.5, y - 3.5),
        2 => format!("M{x} {}l4.5 8h-9z", y - 5.0),
        3 => format!("M{x} {}l5 5l-5 5l-5 -5z", y - 5.0),
        4 => format!("M{x} {}l4.5 -8h-9z", y + 5.0),
        _ => format!("M{} {}h2.6v3.2h3.2v2.6h-3.2v3.2h-2.6v-3.2h-3.2v-2.6h3.2z", x - 1.3, y - 4.5),
    }
}
