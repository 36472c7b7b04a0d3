//! Heat maps: latencies as cells over the axis, on a logarithmic scale; darker cells have more commands.

use super::super::chart::Chart;
use super::super::markup::Markup;
use super::super::scale::Scale;
use super::{BETWEEN, Frame, Slots, round};
use crate::run::Latency;

/// Cells per factor of two in latency.
const CELLS_OF_AN_OCTAVE: f64 = 4.0;

/// Draws a panel for each series, and returns their lower end.
pub(super) fn draw(body: &mut Markup, chart: &Chart<'_>, slots: &Slots, mut y: f64) -> f64 {
    for series in &chart.series {
        let columns: Vec<Option<Latency>> = (0..slots.middles.len()).map(|label| series.latency(label)).collect();
        let all = columns.iter().flatten().flat_map(|latency| latency.buckets.iter().filter(|(_, count)| *count > 0));
        let frame = Frame { top: y + 20.0, scale: Scale::log(all.map(|(nanos, _)| *nanos as f64 / 1e3)) };
        frame.draw(
            body,
            &format!("Latency (µs), log scale{}{}", if series.name.is_empty() { "" } else { ": " }, series.name),
        );
        for (&middle, latency) in slots.middles.iter().zip(&columns) {
            if let Some(latency) = latency {
                column(body, latency, middle, slots.room, &frame);
            }
        }
        y = frame.bottom() + BETWEEN - 20.0;
    }
    y - BETWEEN + 20.0
}

fn column(body: &mut Markup, latency: &Latency, middle: f64, room: f64, frame: &Frame) {
    // On a logarithmic scale cells of equal height are equal factors.
    let cell = |nanos: u64| ((nanos as f64 / 1e3).log2() * CELLS_OF_AN_OCTAVE).floor();
    let mut cells: Vec<(f64, u64)> = Vec::new();
    // Buckets are ascending, so only the last cell can be that of the next bucket.
    for &(nanos, count) in latency.buckets.iter().filter(|(nanos, _)| *nanos > 0) {
        match cells.last_mut() {
            Some((known, sum)) if *known == cell(nanos) => *sum += count,
            _ => cells.push((cell(nanos), count)),
        }
    }
    // The fullest cell of each column, so that columns with few commands are as visible as others.
    let most = cells.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let (x, wide) = (round(middle - room * 0.46), round(room * 0.92));
    for (cell, count) in cells.into_iter().filter(|(_, count)| *count > 0) {
        // Cells at the ends may reach beyond the axis, which ends near the outermost values.
        let edge = |cell: f64| frame.y((cell / CELLS_OF_AN_OCTAVE).exp2()).clamp(frame.top, frame.bottom());
        let (top, floor) = (round(edge(cell + 1.0)), round(edge(cell)));
        // The square root keeps a cell with one command in a thousand visible beside the fullest one.
        let share = round((count as f64 / most as f64).sqrt() * 0.92 * 100.0 + 8.0) / 100.0;
        let high = round(floor - top).max(0.5);
        body.empty(
            "rect",
            &[
                ("class", &"cell"),
                ("x", &x),
                ("y", &top),
                ("width", &wide),
                ("height", &high),
                ("fill-opacity", &share),
            ],
        );
    }
    for (quantile, class) in [(0.5, "quantile"), (0.99, "quantile dashed")] {
        if let Some(nanos) = latency.quantile(quantile).filter(|nanos| *nanos > 0) {
            let y = round(frame.y(nanos as f64 / 1e3));
            body.empty("path", &[("class", &class), ("d", &format!("M{x} {y}h{wide}"))]);
        }
    }
}
